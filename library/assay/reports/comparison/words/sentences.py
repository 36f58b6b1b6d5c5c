"""What a comparison says below its first line, which its console text, Markdown and page share; names are untrusted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE, Reason, Verdict
from assay.comparison.stopped import ALWAYS_VALID, STAGEWISE
from assay.gates.stopping_text import saved_text
from assay.model.answers.interrupts import interrupted_note
from assay.reports.comparison.words.figures import figures_of, level_text, p_phrase
from assay.reports.comparison.words.headline import Naming, named
from assay.reports.words.metric_text import count_text
from assay.reports.words.selected_cases import selection_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import MetricComparison, PairComparison, Variant
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_ADJUSTMENTS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_CLASSICAL = {"chi_square": "chi-square", "fisher_exact": "Fisher's exact", "t_test": "t-test"}
_OMNIBUS = {"cochran_q": "Cochran's Q", "friedman": "Friedman"}
_MOST_ASSUMED = 5
_EQUAL_SHARE = 0.9  # of the number of clusters, from which their effective number is called that of equal ones
_DECIDABLE = ("", Reason.NO_SCALE, Reason.NOT_SIGNIFICANT, Reason.NOT_SIGNIFICANT_ADJUSTED, Reason.RULE_UNDECIDED)
"""Reasons beside which tests could have decided."""
_NO_LETTERS = re.compile("[^0-9A-Za-z]")


def stopping_texts(report: ComparisonReport) -> list[str]:
    """Return what to know of a comparison that stops early, or of runs that stopped in another one."""
    stopping = report.comparison.stopping
    if stopping is None:
        names = [facts.run_id for facts in report.facts if facts.stopped is not None]
        return [
            f"run {name} stopped early, in a comparison with another run: this one's p-values and intervals are not "
            "adjusted for that"
            for name in names
        ]
    of = "p-values and intervals of all metrics"
    if report.comparison.pairs[0].metric(stopping.metric).interval_method in (ALWAYS_VALID, STAGEWISE):
        of = f"p-values, and intervals of other values than those of {stopping.metric},"
    said = [f"{of} are not adjusted for looking early: {stopping.rule} decides"]
    if stopping.has_decided:
        asked = f"A asked {stopping.asked_a:,}, B {stopping.asked_b:,} of {count_text(stopping.planned, 'case')}"
        saved = saved_text(stopping.saved_calls, stopping.saved_tokens, stopping.saved_usd, stopping.saved_s)
        said.append(f"stopped early by {stopping.rule}: {asked}; {saved}")
    return said


def banners(report: ComparisonReport, naming: Naming = Naming.LETTER) -> list[str]:
    """Return why there are figures without a verdict, and which runs are over a part of their dataset."""
    comparison = report.comparison
    found = [f"NOT COMPARABLE: {one.message}" for one in comparison.mismatches]
    if comparison.filtered:
        found.append(
            f"EXPLORATORY: the cases were chosen by the filter {comparison.settings.where!r} after the run; p-values "
            "do not account for that choice, and there is no verdict"
        )
    return found + _selections(report, naming)


def _selections(report: ComparisonReport, naming: Naming) -> list[str]:
    """Return which runs are over a part of their dataset, one sentence for those with the same part."""
    labels: dict[str, list[str]] = {}
    for variant, head in zip(report.comparison.variants, report.heads, strict=True):
        if sentence := selection_sentence(head):
            labels.setdefault(sentence, []).append(named(report, variant.label, naming))
    return [f"PART OF THE DATASET: {' and '.join(runs)}: {sentence}" for sentence, runs in labels.items()]


def cautions(report: ComparisonReport) -> list[str]:
    """Return what to know before believing the primary metric of each run against the first."""
    pairs = report.baseline_pairs
    names = report.names
    prefixes = {id(pair): f"{names[pair.b]} against {names[pair.a]}: " if len(pairs) > 1 else "" for pair in pairs}
    found = [f"{prefixes[id(pair)]}{said}" for pair in pairs for said in _cautions(report, pair)]
    return [*notices(report), *found]


def notices(report: ComparisonReport) -> list[str]:
    """Return what to know of the runs and of how they were compared, whatever the figures say."""
    return [*stopping_texts(report), *_agent_errors(report), *_matchings(report), *_assumed_directions(report)]


def _matchings(report: ComparisonReport) -> Iterator[str]:
    """Yield how many cases were matched by content, and which changed between the datasets."""
    for pair in report.baseline_pairs:
        a, b = report.names[pair.a], report.names[pair.b]
        if pair.matched_by == "content":
            alone = [f"{count:,} only in {name}" for count, name in ((pair.n_only_a, a), (pair.n_only_b, b)) if count]
            are = "is" if pair.n_common == 1 else "are"
            tail = f" ({', '.join(alone)})" if alone else ""
            cases = f"{count_text(pair.n_common, 'case')} {are} matched by question and references"
            yield f"most ids in {b} are different: {cases}{tail}"
        if pair.n_changed:
            are = "is" if pair.n_changed == 1 else "are"
            against = f" of {b}" if len(report.baseline_pairs) > 1 else ""
            yield f"{count_text(pair.n_changed, 'case')}{against} changed between the datasets and {are} not compared"


def _assumed_directions(report: ComparisonReport) -> Iterator[str]:
    """Yield which metrics do not say which values are better."""
    names = [one.metric for one in report.shown(report.comparison.pairs[0]) if one.is_direction_assumed]
    if names:
        more = f" and {len(names) - _MOST_ASSUMED} more" if len(names) > _MOST_ASSUMED else ""
        yield (
            f"{', '.join(names[:_MOST_ASSUMED])}{more}: higher is taken to be better, as nothing says so; set "
            "higher_is_better to true or false"
        )


def agent_errors_text(variant: Variant) -> str:
    """Return on how many rows of a run the agent failed, and how many of them wait for a person."""
    return f"{variant.agent_errors:,}{interrupted_note(variant.interrupted)}"


def _agent_errors(report: ComparisonReport) -> Iterator[str]:
    """Yield how many agent calls failed, where any did and the first line does not say so.

    What made a run worse may not be the agent.
    """
    variants, (first, *others) = report.comparison.variants, report.baseline_pairs
    is_said = not others and first.errors is not None and first.errors.worse
    if any(one.agent_errors for one in variants) and not is_said:
        counts = ", ".join(f"{report.names[one.label]} {agent_errors_text(one)}" for one in variants)
        yield f"rows whose agent failed: {counts}"


def _cautions(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    one = pair.metric(report.comparison.primary)
    figures = figures_of(report, one.metric)
    chosen = report.comparison.settings.difference or report.comparison.settings.margin
    if one.verdict is Verdict.INCONCLUSIVE and chosen and one.n_needed is not None and one.n_needed > one.n_pairs:
        power = f"{report.comparison.settings.power:.4g}"
        yield (
            f"few cases: {count_text(one.n_pairs, 'paired case')}, where about {one.n_needed:,} are needed to detect a "
            f"difference of {figures.value(chosen)} with power {power}"
        )
    if one.interval_method == "cr2":
        yield "the interval is that of cluster-robust errors (CR2): too few clusters for the interval of the test"
    if is_unequal := _has_unequal_clusters(one):
        yield _clusters_sentence(report, one)
    if "large_differences" in one.notes and not is_unequal:
        yield "a few large differences carry the mean: its interval is doubtful; p tests whether the runs behave alike"
    if one.borderline and one.interval_method == ALWAYS_VALID:
        yield "borderline: the rule decided, and its always-valid interval, which is made more cautiously, holds 0"
    elif one.borderline:
        yield "borderline: p-value and interval disagree; the p-value decides"
    elif one.reason == Reason.NOT_SIGNIFICANT_ADJUSTED:
        level = level_text(report.comparison.settings.alpha)
        yield f"the {level} interval is not adjusted for the number of tests; the adjusted p-value decides"
    if one.without_errors is not None:
        yield (
            f"without the cases that have agent errors: {figures.difference(one.without_errors)}, "
            f"{p_phrase(one.without_errors_p)}"
        )


def _has_unequal_clusters(one: MetricComparison) -> bool:
    """Whether clusters are worth few of equal size, and the largest of them is why."""
    if "few_clusters" not in one.notes or not one.clusters or one.effective_clusters is None:
        return False
    return one.effective_clusters < _EQUAL_SHARE * one.clusters


def _clusters_sentence(report: ComparisonReport, one: MetricComparison) -> str:
    """Return how unequal the clusters are."""
    said = f"{one.clusters} clusters by {report.comparison.settings.cluster}, as good as {one.effective_clusters:.1f}"
    share = f"{one.largest_cluster or 'the largest'} has {one.largest_cluster_share or 0.0:.0%} of the cases"
    return f"{said} of equal size: {share}"


def detectable_sentence(report: ComparisonReport, one: MetricComparison) -> str:
    """Return the smallest difference of a metric that the cases of two runs could show.

    Empty where no difference could have been a verdict: a threshold beside that would say otherwise. So would "too few
    cases" beside a difference that was found.
    """
    is_found = one.detectable is None and one.verdict in (Verdict.A_BETTER, Verdict.B_BETTER)
    if one.reason not in _DECIDABLE or is_found or report.comparison.stopping is not None:
        return ""
    power = f"{100 * report.comparison.settings.power:.4g}%"
    cases = count_text(one.n_pairs, "case")
    if one.detectable is None:
        # A difference was found all the same, or clusters are few and unequal, which leaves their power unknown.
        if one.verdict is not Verdict.INCONCLUSIVE or one.clusters is not None:
            return ""
        return f"{cases} are too few to find any difference of {one.metric} with {power} power"
    found = figures_of(report, one.metric).value(one.detectable)
    return f"with {cases}, only differences of {one.metric} above {found} are found with {power} power"


def floor_sentence(report: ComparisonReport, one: MetricComparison) -> str:
    """Return how far the first run is from itself."""
    if one.noise_floor is None:
        return "noise floor (A/A): not measured - run with --aa"
    figures, floor = figures_of(report, one.metric), one.noise_floor
    said = (
        f"noise floor (A/A): {figures.value(floor.difference)} {one.metric}, two standard errors of a pair of equal "
        f"runs, of which {floor.flip_rate:.1%} of {count_text(floor.n, 'case')} came out differently"
    )
    if one.difference is not None and abs(one.difference) <= floor.difference:
        return f"{said}; the difference is not above it"
    return said


def method_text(report: ComparisonReport, one: MetricComparison) -> str:
    """Return which test a metric had."""
    settings = report.comparison.settings
    of_clusters = f" of sums by {settings.cluster}" if one.clusters is not None else ""
    drawn = f" ({_draws(one):,} draws, seed {settings.seed})" if one.p_error else ""
    return {
        "mcnemar_exact": "exact McNemar",
        "sign_flip_exact": f"sign-flip permutation{of_clusters}",
        "sign_flip_random": f"sign-flip permutation{of_clusters}{drawn}",
        "sign_flip_normal_limit": f"sign-flip permutation{of_clusters} (normal limit)",
    }.get(one.method, "no test")


def _draws(one: MetricComparison) -> int:
    """Return from how many assignments of signs a p-value is, by its standard error."""
    p, error = one.p or 0.0, one.p_error or 1.0
    return round(p * (1 - p) / error**2)


def matrix_heading(report: ComparisonReport, metric: str) -> str:
    """Return what a matrix of differences shows."""
    said = f"differences of {metric}, column - row, with raw and {adjustment_text(report)}-adjusted p"
    are_all = all(pair.metric(metric).decides for pair in report.comparison.pairs)
    return f"{said}:" if are_all else f"{said}; pairs with raw p alone decide nothing:"


def meaning_sentence(report: ComparisonReport) -> str:
    """Return what p-values test and what intervals cover."""
    level = level_text(report.comparison.settings.alpha)
    return (
        "null hypothesis of p: the two runs behave alike, so that each difference is as likely as its negative; "
        f"intervals are of the mean difference, {level} each, not adjusted for the number of tests"
    )


def counts_text(one: MetricComparison, a: str, b: str) -> str:
    """Return in how many cases either run is better, and in how many they are the same."""
    return f"{b} won {one.wins:,}, {a} won {one.losses:,}, {one.ties:,} same"


def joined_text(pair: PairComparison, one: MetricComparison) -> str:
    """Return how many cases of two runs a metric leaves out, and why."""
    changed = f", {pair.n_changed:,} changed" if pair.n_changed else ""
    return f"{pair.n_only_a:,} only {pair.a}, {pair.n_only_b:,} only {pair.b}, {one.n_dropped:,} dropped{changed}"


def adjustment_text(report: ComparisonReport) -> str:
    """Return how p-values are adjusted."""
    return _ADJUSTMENTS[report.comparison.settings.adjust.value]


def classical_texts(report: ComparisonReport, pair: PairComparison) -> list[str]:
    """Return the unpaired test of the primary metric and of each other metric that was asked for."""
    left_out = {PASS_RATE, *report.implied} - {report.comparison.primary}
    return [
        f"{_CLASSICAL.get(one.classical.test, one.classical.test)} {p_phrase(one.classical.p)} ({one.metric})"
        for one in pair.metrics
        if one.classical is not None and one.classical.p is not None and one.metric not in left_out
    ]


def omnibus_sentence(report: ComparisonReport, metric: str) -> str:
    """Return the test of a metric over all runs; the empty text for two."""
    test = report.comparison.omnibus.get(metric)
    if test is None:
        return ""
    statistic = "" if test.statistic is None else f"{test.statistic:.2f}, "
    said = f"omnibus test of {metric} ({_OMNIBUS.get(test.test, test.test)}): {statistic}{p_phrase(test.p)}"
    return f"{said}, {count_text(test.n, 'case')} in every run"


def ranking_texts(report: ComparisonReport) -> list[str]:
    """Return the runs by their ranking, with scores and, of three or more, how often resampled cases put them first."""
    found: list[str] = []
    for one in report.comparison.ranking:
        best = report.comparison.variant(one.label).best_share if len(report.comparison.variants) > 2 else None
        score = "" if one.score is None else f" {one.score:.2f}"
        share = "" if best is None else f" ({best:.1%})" if found else f" (highest mean in {best:.1%} of resamples)"
        found.append(f"{one.label}{score}{share}")
    return found


def judge_sentence(report: ComparisonReport) -> str:
    """Return who judged, and at what cost."""
    variants = report.comparison.variants
    if not any(one.verdicts for one in variants):
        return "judge: none"
    judges = dict.fromkeys(str(model) for facts in report.facts if (model := _judge_of(facts.config)))
    prints = dict.fromkeys(_NO_LETTERS.sub("", each)[:4] + "…" for one in variants for each in one.fingerprints)
    costs = [one.judge_cost_usd for one in variants if one.judge_cost_usd is not None]
    invalid, total = sum(one.invalid_verdicts for one in variants), sum(one.verdicts for one in variants)
    cost = f"{sum(costs):.2f}" if costs else "n/a"
    return (
        f"judge: {', '.join(judges) or 'not named'}, fingerprint {', '.join(list(prints)[:3]) or 'n/a'}, invalid "
        f"{invalid}/{total}, position flips n/a, cost {cost} (batch {_batch_cost(report)})"
    )


def _judge_of(config: object) -> object:
    judge = config.get("judge") if isinstance(config, dict) else None
    return judge.get("model") if isinstance(judge, dict) else None


def _batch_cost(report: ComparisonReport) -> str:
    """Return what verdicts through batch APIs cost, as far as the runs say it: runs do not price them apart."""
    found = [head["summary"].get("judging") or {} for head in report.heads]
    if not found or any("batched" not in one for one in found if one):
        return "n/a"
    batched = [one for one in found if one.get("batched")]
    if any(one["batched"] < one["asked"] or one.get("cost_usd") is None for one in batched):
        return "n/a"
    return f"{sum(one['cost_usd'] for one in batched):.2f}"


def decision_sentence(report: ComparisonReport) -> str:
    """Return what the comparison means for a pipeline: its exit status, or its part of the verdict of a run."""
    decision = report.decision
    if report.comparison.mismatches:  # a banner says why
        decision = replace(decision, reasons=tuple(one for one in decision.reasons if one not in _banned(report)))
    if not report.of_run:
        return f"decision: {decision.sentence}"
    summary = report.heads[1]["summary"]
    return f"comparison: {decision.part_of_run(summary['overall_status'], summary['exit_status'])}"


def _banned(report: ComparisonReport) -> set[str]:
    return {one.message for one in report.comparison.mismatches}


def effort_texts(report: ComparisonReport) -> list[str]:
    """Return cost, latency and tokens of the runs, those after the first with their difference from it."""
    variants = report.comparison.variants
    kinds = (
        ("cost (USD)", [one.cost_usd for one in variants], 4),
        ("mean latency (s)", [one.mean_latency_s for one in variants], 2),
        ("p95 latency (s)", [one.p95_latency_s for one in variants], 2),
        ("mean tokens", [one.mean_tokens for one in variants], 0),
    )
    return [
        f"{name}: "
        + ", ".join(_effort(label, value, values[0], decimals) for label, value in _labelled(report, values))
        for name, values, decimals in kinds
        if any(value is not None for value in values)
    ]


def _labelled(report: ComparisonReport, values: Sequence[float | None]) -> list[tuple[str, float | None]]:
    return [(one.label, value) for one, value in zip(report.comparison.variants, values, strict=True)]


def _effort(label: str, value: float | None, first: float | None, decimals: int) -> str:
    if value is None:
        return f"{label} n/a"
    known = f"{label} {value:,.{decimals}f}"
    return known if first is None or label == "A" else f"{known} ({value - first:+z,.{decimals}f})"
