"""What a comparison says in sentences, which its console text, Markdown, plots and page share; names are untrusted."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE, Verdict
from assay.reports.comparison.figures import figures_of, level_text, p_phrase, p_text
from assay.reports.metric_text import count_text
from assay.reports.selected_cases import selection_sentence
from assay.statistics.sequential import LOOK_BOUNDS
from assay.verdict.stopping_text import saved_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import MetricComparison, PairComparison, StoppingOutcome
    from assay.reports.comparison.comparison_report import ComparisonReport

_ADJUSTMENTS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_CLASSICAL = {"chi_square": "chi-square", "fisher_exact": "Fisher's exact", "t_test": "t-test"}
_OMNIBUS = {"cochran_q": "Cochran's Q", "friedman": "Friedman"}
_MOST_LISTED = 8
_MOST_ASSUMED = 5
_NO_LETTERS = re.compile("[^0-9A-Za-z]")


class Naming(Enum):
    """How sentences call a run."""

    BOTH = "B (candidate)"
    LETTER = "B"
    NAME = "candidate"


def named(report: ComparisonReport, label: str, naming: Naming = Naming.BOTH) -> str:
    """Return a run as sentences call it."""
    name = report.names[label]
    if naming is Naming.NAME:
        return name
    return label if naming is Naming.LETTER or name == label else f"{label} ({name})"


def verdict_sentence(report: ComparisonReport, naming: Naming = Naming.BOTH) -> str:
    """Return what the comparison comes to by its primary metric, in one sentence."""
    if len(report.comparison.variants) == 2:
        return pair_sentence(report, report.comparison.pairs[0], naming)
    comparison = report.comparison
    primaries = [pair.metric(comparison.primary) for pair in comparison.pairs]
    for verdict in (Verdict.WITHHELD, Verdict.NO_DATA):
        if found := [one for one in primaries if one.verdict is verdict]:
            return f"No verdict on {comparison.primary}: {found[0].message}."
    best = leader(report)
    if best is None:
        return f"No verdict on {comparison.primary}: no run has a value."
    first = _listed(report, [best], naming)
    others = [one for one in comparison.not_worse_than_best if one != best]
    worse = [one.label for one in comparison.variants if one.label not in comparison.not_worse_than_best]
    if not others:
        return f"{first} is better than all other runs on {comparison.primary}."
    said = f"{first} has the best {comparison.primary}; not significantly worse: {_listed(report, others, naming)}"
    return f"{said}; significantly worse: {_listed(report, worse, naming)}." if worse else f"{said}."


def _listed(report: ComparisonReport, labels: Sequence[str], naming: Naming) -> str:
    more = len(labels) - _MOST_LISTED
    shown = ", ".join(named(report, label, naming) for label in labels[:_MOST_LISTED])
    return shown + (f" and {more} more" if more > 0 else "")


def leader(report: ComparisonReport) -> str | None:
    """Return the label of the run with the best value of the primary metric; None where none has a value."""
    comparison = report.comparison
    better = comparison.pairs[0].metric(comparison.primary).higher_is_better
    known = [
        (value if better else -value, one.label)
        for one in comparison.variants
        if (value := one.metrics[comparison.primary].value) is not None
    ]
    return max(known, key=lambda each: each[0])[1] if known else None


def pair_sentence(report: ComparisonReport, pair: PairComparison, naming: Naming = Naming.BOTH) -> str:
    """Return what the primary metric says of two runs, in one sentence."""
    one = pair.metric(report.comparison.primary)
    a, b = (named(report, label, naming) for label in (pair.a, pair.b))
    figures = figures_of(report, one.metric)
    seen = f"{figures.change(one)} over {count_text(one.n_pairs, 'case')}, {p_phrase(one.p_adjusted)}"
    if (stopping := report.comparison.stopping) is not None:
        seen += f" (not adjusted for looking early); {_decided_by(stopping)}"
    match one.verdict:
        case Verdict.B_BETTER:
            return f"{b} is better than {a} on {one.metric}: {seen}."
        case Verdict.A_BETTER:
            return f"{b} is worse than {a} on {one.metric}: {seen}."
        case Verdict.EQUIVALENT:
            margin = report.comparison.settings.margin
            level = level_text(2 * report.comparison.settings.alpha)
            inner = figures.interval(one.equivalence_interval, signed=True)
            return (
                f"{a} and {b} are equivalent on {one.metric}: the {level} interval {inner} of the difference lies "
                f"within the margin of ±{margin:g}, over {count_text(one.n_pairs, 'case')}."
            )
        case Verdict.INCONCLUSIVE:
            return f"Inconclusive: no clear difference between {a} and {b} on {one.metric}: {seen}."
    return f"No verdict on {one.metric}: {one.message}."


def _decided_by(stopping: StoppingOutcome) -> str:
    """Return when a rule that stops early decided, and by what."""
    if not stopping.has_decided:
        return f"{stopping.rule} decided nothing in {count_text(stopping.planned, 'planned case')}"
    of = f"after {stopping.cases:,} of {count_text(stopping.planned, 'case')}"
    if stopping.look is not None and stopping.z is not None and stopping.bound is not None:
        said = f"at look {stopping.look} of {len(LOOK_BOUNDS)}, {of}, where |z| {abs(stopping.z):.4f}"
        return f"{stopping.rule} decided {said} reached {stopping.bound:.4f}"
    return f"{stopping.rule} decided {of}, where its p-value was {p_text(stopping.p)}"


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
    figures = figures_of(report, stopping.metric)
    said = [f"p-values and intervals of all metrics are not adjusted for looking early: {stopping.rule} decides"]
    if stopping.interval is not None:
        level = level_text(stopping.alpha)
        interval = figures.interval(stopping.interval, signed=True)
        said.append(f"always-valid {level} interval of the difference of {stopping.metric}: {interval}")
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
    prefixes = {id(pair): f"{pair.b} - {pair.a}: " if len(pairs) > 1 else "" for pair in pairs}
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


def _agent_errors(report: ComparisonReport) -> Iterator[str]:
    """Yield how many agent calls failed, where any did: what made a run worse may not be the agent."""
    variants = report.comparison.variants
    if any(one.agent_errors for one in variants):
        counts = ", ".join(f"{report.names[one.label]} {one.agent_errors:,}" for one in variants)
        yield f"rows whose agent failed: {counts}"


def _cautions(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    one = pair.metric(report.comparison.primary)
    figures = figures_of(report, one.metric)
    if one.verdict is Verdict.INCONCLUSIVE and one.n_needed is not None and one.n_needed > one.n_pairs:
        power = f"{report.comparison.settings.power:.4g}"
        yield (
            f"few cases: {count_text(one.n_pairs, 'paired case')}, where about {one.n_needed:,} are needed to detect a "
            f"difference of {figures.value(abs(one.difference or 0.0))} with power {power}"
        )
    if "few_disagreeing" in one.notes and one.table is not None:
        count = one.table.a_only + one.table.b_only
        yield (
            f"{count_text(count, 'case')} came out differently: with so few, no p-value below "
            f"{p_text(one.min_attainable_p)} is possible"
        )
    if "few_clusters" in one.notes and one.clusters is not None:
        yield f"{count_text(one.clusters, 'cluster')}: with fewer than 10, intervals are too narrow"
    if one.borderline:
        yield "borderline: p-value and interval disagree; the p-value decides"
    if one.without_errors is not None:
        yield (
            f"without the cases that have agent errors: {figures.difference(one.without_errors)}, "
            f"{p_phrase(one.without_errors_p)}"
        )


def detectable_sentence(report: ComparisonReport, one: MetricComparison) -> str:
    """Return the smallest difference of a metric that the cases of two runs could show."""
    power = f"{100 * report.comparison.settings.power:.4g}%"
    cases = count_text(one.n_pairs, "case")
    if one.detectable is None:
        return f"{cases} are too few to find any difference of {one.metric} with {power} power"
    found = figures_of(report, one.metric).value(one.detectable)
    return f"with {cases}, only differences of {one.metric} above {found} are found with {power} power"


def floor_sentence(report: ComparisonReport, one: MetricComparison) -> str:
    """Return how far the first run is from itself."""
    if one.noise_floor is None:
        return "noise floor (A/A): not measured - run with --aa"
    figures = figures_of(report, one.metric)
    said = f"noise floor (A/A): {figures.value(one.noise_floor)} {one.metric}"
    if one.difference is not None and abs(one.difference) <= one.noise_floor:
        return f"{said}; the difference is not above it"
    return said


def method_text(report: ComparisonReport, one: MetricComparison) -> str:
    """Return which test a metric had."""
    settings = report.comparison.settings
    draws = report.comparison.random_draws.get("sign_assignments")
    of_clusters = f" of sums by {settings.cluster}" if one.clusters is not None else ""
    drawn = f" ({draws:,} draws, seed {settings.seed})" if draws else ""
    return {
        "mcnemar_exact": "exact McNemar",
        "sign_flip_exact": f"sign-flip permutation{of_clusters}",
        "sign_flip_random": f"sign-flip permutation{of_clusters}{drawn}",
        "sign_flip_normal_limit": f"sign-flip permutation{of_clusters} (normal limit)",
        "clustered_t": f"t-test clustered by {settings.cluster}",
    }.get(one.method, "no test")


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
    """Return the runs by their ranking, each with its score and, of three or more, its chance of being the best."""
    found = []
    for one in report.comparison.ranking:
        best = report.comparison.variant(one.label).best_probability if len(report.comparison.variants) > 2 else None
        score = "" if one.score is None else f" {one.score:.2f}"
        found.append(f"{one.label}{score}" + ("" if best is None else f" (best in {best:.1%})"))
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
