"""Sentences below the first line of a comparison, shared by all formats; names are untrusted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.comparison.metric_pairs import FEW_CLUSTERS, LARGE_LOSSES
from assay.comparison.model import PASS_RATE, ComparisonVerdict, Matching, Reason, Side
from assay.comparison.stopped import ALWAYS_VALID, STAGEWISE
from assay.gates.stopping_text import saved_text
from assay.model.answers.interrupts import interrupted_note
from assay.reports.comparison.words.figures import figures_of, level_text, p_phrase
from assay.reports.comparison.words.headline import Naming, named
from assay.reports.words.metric_text import count_text
from assay.reports.words.selected_cases import selection_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.comparison.model import MetricComparison, PairComparison, Variant
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_ADJUSTMENTS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_CLASSICAL = {"chi_square": "chi-square", "fisher_exact": "Fisher's exact", "t_test": "t-test"}
_OMNIBUS = {"cochran_q": "Cochran's Q", "friedman": "Friedman"}
_MOST_ASSUMED = 5
_EQUAL_SHARE = 0.9  # clusters count as equal if their effective number is at least this share of their number
_DECIDABLE = ("", Reason.NO_SCALE, Reason.NOT_SIGNIFICANT, Reason.NOT_SIGNIFICANT_ADJUSTED, Reason.RULE_UNDECIDED)
"""The reasons of metrics whose test could have decided."""
_NO_LETTERS = re.compile("[^0-9A-Za-z]")


def stopping_texts(report: ComparisonReport) -> list[str]:
    """Return the notes on early stopping, in this comparison or an earlier one."""
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
    sentences = [f"{of} are not adjusted for looking early: {stopping.rule} decides"]
    if stopping.has_decided:
        planned = count_text(stopping.planned_case_count, "case")
        counts = f"A asked {stopping.a_asked_case_count:,}, B {stopping.b_asked_case_count:,} of {planned}"
        saved = saved_text(stopping.saved_call_count, stopping.saved_token_count, stopping.saved_usd, stopping.saved_ms)
        sentences.append(f"stopped early by {stopping.rule}: {counts}; {saved}")
    return sentences


def banners(report: ComparisonReport, naming: Naming = Naming.LETTER) -> list[str]:
    """Return the reasons for a missing verdict, and the runs that cover only a part of their dataset."""
    comparison = report.comparison
    sentences = [f"NOT COMPARABLE: {mismatch.message}" for mismatch in comparison.mismatches]
    if comparison.filtered:
        sentences.append(
            f"EXPLORATORY: the cases were chosen by the filter {comparison.settings.where!r} after the run; p-values "
            "do not account for that choice, and there is no verdict"
        )
    return sentences + _selections(report, naming)


def _selections(report: ComparisonReport, naming: Naming) -> list[str]:
    """Return a sentence for each part of a dataset that runs cover, with these runs."""
    labels: dict[str, list[str]] = {}
    for variant, head in zip(report.comparison.variants, report.heads, strict=True):
        if sentence := selection_sentence(head):
            labels.setdefault(sentence, []).append(named(report, variant.label, naming))
    return [f"PART OF THE DATASET: {' and '.join(runs)}: {sentence}" for sentence, runs in labels.items()]


def cautions(report: ComparisonReport) -> list[str]:
    """Return the cautions about the primary metric of the runs against the first."""
    pairs = report.baseline_pairs
    names = report.names
    prefixes = {
        id(pair): f"{names[pair.b.label]} against {names[pair.a.label]}: " if len(pairs) > 1 else "" for pair in pairs
    }
    sentences = [f"{prefixes[id(pair)]}{caution}" for pair in pairs for caution in _cautions(report, pair)]
    return [*notices(report), *sentences]


def notices(report: ComparisonReport) -> list[str]:
    """Return notes on the runs and the method, independent of the figures."""
    return [*stopping_texts(report), *_agent_errors(report), *_matchings(report), *_assumed_directions(report)]


def _matchings(report: ComparisonReport) -> Iterator[str]:
    """Yield the numbers of cases that were matched by content, and that changed between the datasets."""
    for pair in report.baseline_pairs:
        a, b = report.names[pair.a.label], report.names[pair.b.label]
        if pair.matched_by is Matching.CONTENT:
            alone = [
                f"{count:,} only in {name}"
                for count, name in ((pair.a_only_case_count, a), (pair.b_only_case_count, b))
                if count
            ]
            are = "is" if pair.common_case_count == 1 else "are"
            tail = f" ({', '.join(alone)})" if alone else ""
            cases = f"{count_text(pair.common_case_count, 'case')} {are} matched by question and references"
            yield f"most ids in {b} are different: {cases}{tail}"
        if pair.changed_case_count:
            are = "is" if pair.changed_case_count == 1 else "are"
            against = f" of {b}" if len(report.baseline_pairs) > 1 else ""
            changed = count_text(pair.changed_case_count, "case")
            yield f"{changed}{against} changed between the datasets and {are} not compared"


def _assumed_directions(report: ComparisonReport) -> Iterator[str]:
    """Yield the metrics that do not say whether higher is better."""
    names = [metric.metric for metric in report.shown(report.comparison.pairs[0]) if metric.is_direction_assumed]
    if names:
        more = f" and {len(names) - _MOST_ASSUMED} more" if len(names) > _MOST_ASSUMED else ""
        yield (
            f"{', '.join(names[:_MOST_ASSUMED])}{more}: higher is taken to be better, as nothing says so; set "
            "higher_is_better to true or false"
        )


def agent_errors_text(variant: Variant) -> str:
    """Return the number of rows whose agent failed, and how many of them wait for a person."""
    return f"{variant.agent_error_count:,}{interrupted_note(variant.interrupted_count)}"


def _agent_errors(report: ComparisonReport) -> Iterator[str]:
    """Yield the numbers of failed agent calls, if there are any and the first line does not mention them.

    They may explain why a run is worse although its agent is not.
    """
    variants, (first, *others) = report.comparison.variants, report.baseline_pairs
    is_said = not others and first.errors is not None and first.errors.worse is not Side.NEITHER
    if any(variant.agent_error_count for variant in variants) and not is_said:
        counts = ", ".join(f"{report.names[variant.label]} {agent_errors_text(variant)}" for variant in variants)
        yield f"rows whose agent failed: {counts}"


def _cautions(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    primary = pair.metric(report.comparison.primary)
    figures = figures_of(report, primary.metric)
    chosen = report.comparison.settings.difference or report.comparison.settings.margin
    if (
        primary.verdict is ComparisonVerdict.INCONCLUSIVE
        and chosen
        and primary.needed_case_count is not None
        and primary.needed_case_count > primary.pair_count
    ):
        power = f"{report.comparison.settings.power:.4g}"
        yield (
            f"few cases: {count_text(primary.pair_count, 'paired case')}, where about {primary.needed_case_count:,} "
            f"are needed to detect a difference of {figures.value(chosen)} with power {power}"
        )
    if primary.interval_method == "cr2":
        yield "the interval is that of cluster-robust errors (CR2): too few clusters for the interval of the test"
    if is_unequal := _has_unequal_clusters(primary):
        yield _clusters_sentence(report, primary)
    if LARGE_LOSSES in primary.notes and not is_unequal:
        yield "a few large differences carry the mean: its interval is doubtful; p tests whether the runs behave alike"
    if primary.borderline and primary.interval_method == ALWAYS_VALID:
        yield "borderline: the rule decided, and its always-valid interval, which is made more cautiously, holds 0"
    elif primary.borderline:
        yield "borderline: p-value and interval disagree; the p-value decides"
    elif primary.reason == Reason.NOT_SIGNIFICANT_ADJUSTED:
        level = level_text(report.comparison.settings.alpha)
        yield f"the {level} interval is not adjusted for the number of tests; the adjusted p-value decides"
    if primary.without_errors is not None:
        yield (
            f"without the cases that have agent errors: {figures.difference(primary.without_errors)}, "
            f"{p_phrase(primary.without_errors_p)}"
        )


def _has_unequal_clusters(metric: MetricComparison) -> bool:
    """Whether the clusters are equivalent to few of equal size because their sizes differ."""
    if FEW_CLUSTERS not in metric.notes or not metric.cluster_count or metric.effective_cluster_count is None:
        return False
    return metric.effective_cluster_count < _EQUAL_SHARE * metric.cluster_count


def _clusters_sentence(report: ComparisonReport, metric: MetricComparison) -> str:
    """Return the sentence on the unequal sizes of clusters."""
    sentence = (
        f"{metric.cluster_count} clusters by {report.comparison.settings.cluster}, as good as "
        f"{metric.effective_cluster_count:.1f}"
    )
    share = f"{metric.largest_cluster or 'the largest'} has {metric.largest_cluster_share or 0.0:.0%} of the cases"
    return f"{sentence} of equal size: {share}"


def detectable_sentence(report: ComparisonReport, metric: MetricComparison) -> str:
    """Return the smallest difference of a metric that the cases of two runs could detect.

    Empty if no difference could have led to a verdict, as a smallest difference would suggest the opposite; likewise if
    a difference was found, beside which "too few cases" would be wrong.
    """
    is_found = metric.detectable is None and metric.verdict in (ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER)
    if metric.reason not in _DECIDABLE or is_found or report.comparison.stopping is not None:
        return ""
    power = f"{100 * report.comparison.settings.power:.4g}%"
    cases = count_text(metric.pair_count, "case")
    if metric.detectable is None:
        # The power of few, unequal clusters is unknown.
        if metric.verdict is not ComparisonVerdict.INCONCLUSIVE or metric.cluster_count is not None:
            return ""
        return f"{cases} are too few to find any difference of {metric.metric} with {power} power"
    difference = figures_of(report, metric.metric).value(metric.detectable)
    return f"with {cases}, only differences of {metric.metric} above {difference} are found with {power} power"


def floor_sentence(report: ComparisonReport, metric: MetricComparison) -> str:
    """Return the distance of two runs like the first one by chance."""
    if metric.noise_floor is None:
        return "noise floor (A/A): not measured - run with --aa"
    figures, floor = figures_of(report, metric.metric), metric.noise_floor
    sentence = (
        f"noise floor (A/A): {figures.value(floor.difference)} {metric.metric}, two standard errors of a pair of equal "
        f"runs, of which {floor.flip_rate:.1%} of {count_text(floor.case_count, 'case')} came out differently"
    )
    if metric.difference is not None and abs(metric.difference) <= floor.difference:
        return f"{sentence}; the difference is not above it"
    return sentence


def method_text(report: ComparisonReport, metric: MetricComparison) -> str:
    """Return the test of a metric."""
    settings = report.comparison.settings
    of_clusters = f" of sums by {settings.cluster}" if metric.cluster_count is not None else ""
    drawn = f" ({_draws(metric):,} draws, seed {settings.seed})" if metric.p_error else ""
    return {
        "mcnemar_exact": "exact McNemar",
        "sign_flip_exact": f"sign-flip permutation{of_clusters}",
        "sign_flip_random": f"sign-flip permutation{of_clusters}{drawn}",
        "sign_flip_normal_limit": f"sign-flip permutation{of_clusters} (normal limit)",
    }.get(metric.method, "no test")


def _draws(metric: MetricComparison) -> int:
    """Return the number of random sign assignments behind a p-value, from its standard error."""
    p, error = metric.p or 0.0, metric.p_error or 1.0
    return round(p * (1 - p) / error**2)


def matrix_heading(report: ComparisonReport, metric: str) -> str:
    """Return the heading of a matrix of differences."""
    heading = f"differences of {metric}, column - row, with raw and {adjustment_text(report)}-adjusted p"
    are_all = all(pair.metric(metric).decides for pair in report.comparison.pairs)
    return f"{heading}:" if are_all else f"{heading}; pairs with raw p alone decide nothing:"


def meaning_sentence(report: ComparisonReport) -> str:
    """Return the meaning of p-values and intervals."""
    level = level_text(report.comparison.settings.alpha)
    return (
        "null hypothesis of p: the two runs behave alike, so that each difference is as likely as its negative; "
        f"intervals are of the mean difference, {level} each, not adjusted for the number of tests"
    )


def counts_text(metric: MetricComparison, pair: PairComparison) -> str:
    """Return the numbers of cases in which either run is better, and in which they are the same."""
    return (
        f"{pair.b.label} won {metric.win_count:,}, {pair.a.label} won {metric.loss_count:,}, {metric.tie_count:,} same"
    )


def joined_text(pair: PairComparison, metric: MetricComparison) -> str:
    """Return the numbers of cases that a metric leaves out, by reason."""
    changed = f", {pair.changed_case_count:,} changed" if pair.changed_case_count else ""
    alone = f"{pair.a_only_case_count:,} only {pair.a.label}, {pair.b_only_case_count:,} only {pair.b.label}"
    return f"{alone}, {metric.dropped_case_count:,} dropped{changed}"


def adjustment_text(report: ComparisonReport) -> str:
    """Return the adjustment of the p-values."""
    return _ADJUSTMENTS[report.comparison.settings.adjust.value]


def classical_texts(report: ComparisonReport, pair: PairComparison) -> list[str]:
    """Return the unpaired test of the primary metric and of each further metric of the specs."""
    left_out = {PASS_RATE, *report.implied} - {report.comparison.primary}
    return [
        f"{_CLASSICAL.get(item.classical.test, item.classical.test)} {p_phrase(item.classical.p)} ({item.metric})"
        for item in pair.metrics
        if item.classical is not None and item.classical.p is not None and item.metric not in left_out
    ]


def omnibus_sentence(report: ComparisonReport, metric: str) -> str:
    """Return the test of a metric over all runs; empty for two runs."""
    test = report.comparison.omnibus.get(metric)
    if test is None:
        return ""
    statistic = "" if test.statistic is None else f"{test.statistic:.2f}, "
    sentence = f"omnibus test of {metric} ({_OMNIBUS.get(test.test, test.test)}): {statistic}{p_phrase(test.p)}"
    return f"{sentence}, {count_text(test.case_count, 'case')} in every run"


def ranking_texts(report: ComparisonReport) -> list[str]:
    """Return the runs in their ranking, with scores and, for three or more, the share of resamples each one wins."""
    sentences: list[str] = []
    for entry in report.comparison.ranking:
        best = report.comparison.variant(entry.label).best_share if len(report.comparison.variants) > 2 else None
        score = "" if entry.score is None else f" {entry.score:.2f}"
        share = "" if best is None else f" ({best:.1%})" if sentences else f" (highest mean in {best:.1%} of resamples)"
        sentences.append(f"{entry.label}{score}{share}")
    return sentences


def judge_sentence(report: ComparisonReport) -> str:
    """Return the judges and their cost."""
    variants = report.comparison.variants
    if not any(variant.verdict_count for variant in variants):
        return "judge: none"
    judges = dict.fromkeys(model for facts in report.facts for model in _judge_models(facts.config))
    prints = dict.fromkeys(
        _NO_LETTERS.sub("", digest)[:4] + "…" for variant in variants for digest in variant.fingerprints
    )
    costs = [variant.judge_cost_usd for variant in variants if variant.judge_cost_usd is not None]
    invalid, total = (
        sum(variant.invalid_verdict_count for variant in variants),
        sum(variant.verdict_count for variant in variants),
    )
    cost = f"{sum(costs):.2f}" if costs else "n/a"
    return (
        f"judge: {', '.join(judges) or 'not named'}, fingerprint {', '.join(list(prints)[:3]) or 'n/a'}, invalid "
        f"{invalid}/{total}, position flips n/a, cost {cost} (batch {_batch_cost(report)})"
    )


def _judge_models(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the models of the judges of a run."""
    yield from (str(member["model"]) for judge in config.get("judges") or () for member in judge["members"])


def _batch_cost(report: ComparisonReport) -> str:
    """Return the cost of verdicts through batch APIs; "n/a" if a run has other verdicts too, as runs store one sum."""
    judgings = [head["summary"].get("judging") or {} for head in report.heads]
    if not judgings or any("batched_count" not in judging for judging in judgings if judging):
        return "n/a"
    batched = [judging for judging in judgings if judging.get("batched_count")]
    if any(judging["batched_count"] < judging["asked_count"] or judging.get("cost_usd") is None for judging in batched):
        return "n/a"
    return f"{sum(judging['cost_usd'] for judging in batched):.2f}"


def decision_sentence(report: ComparisonReport) -> str:
    """Return the consequence for a pipeline: the exit status, or the part in the verdict of a run."""
    decision = report.decision
    if report.comparison.mismatches:  # a banner says why
        decision = replace(decision, reasons=tuple(text for text in decision.reasons if text not in _banned(report)))
    if not report.of_run:
        return f"decision: {decision.sentence}"
    summary = report.heads[1]["summary"]
    return f"comparison: {decision.part_of_run(summary['overall_status'], summary['exit_status'])}"


def _banned(report: ComparisonReport) -> set[str]:
    return {mismatch.message for mismatch in report.comparison.mismatches}


def effort_texts(report: ComparisonReport) -> list[str]:
    """Return cost, latency and tokens of the runs; from the second on, with the difference from the first."""
    variants = report.comparison.variants
    kinds = (
        ("cost (USD)", [variant.cost_usd for variant in variants], 4),
        ("mean latency (s)", [_seconds(variant.mean_latency_ms) for variant in variants], 2),
        ("p95 latency (s)", [_seconds(variant.p95_latency_ms) for variant in variants], 2),
        ("mean tokens", [variant.mean_tokens for variant in variants], 0),
    )
    return [
        f"{name}: "
        + ", ".join(_effort(label, value, values[0], decimals) for label, value in _labelled(report, values))
        for name, values, decimals in kinds
        if any(value is not None for value in values)
    ]


def _seconds(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000


def _labelled(report: ComparisonReport, values: Sequence[float | None]) -> list[tuple[str, float | None]]:
    return [(variant.label, value) for variant, value in zip(report.comparison.variants, values, strict=True)]


def _effort(label: str, value: float | None, first: float | None, decimals: int) -> str:
    if value is None:
        return f"{label} n/a"
    effort = f"{label} {value:,.{decimals}f}"
    return effort if first is None or label == "A" else f"{effort} ({value - first:+z,.{decimals}f})"
