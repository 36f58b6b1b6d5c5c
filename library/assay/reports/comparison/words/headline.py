"""First line of a comparison: the verdict on the primary metric, with figures and reason.

Names are untrusted.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from assay.comparison.decision import short_reason
from assay.comparison.model import ComparisonVerdict, Reason, Side
from assay.comparison.stopped import ALWAYS_VALID, STAGEWISE
from assay.reports.comparison.words.figures import figures_of, level_text, p_phrase, p_text, tested_text
from assay.reports.words.metric_text import count_text
from assay.statistics.sequential import LOOK_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import ErrorComparison, MetricComparison, PairComparison
    from assay.comparison.stopping_outcome import StoppingOutcome
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_MOST_LISTED = 8
_NONE = (ComparisonVerdict.WITHHELD, ComparisonVerdict.NO_DATA)
_WORDS = {
    ComparisonVerdict.B_BETTER: "better",
    ComparisonVerdict.A_BETTER: "worse",
    ComparisonVerdict.EQUIVALENT: "equivalent",
    ComparisonVerdict.INCONCLUSIVE: "inconclusive",
    ComparisonVerdict.WITHHELD: "without a verdict",
    ComparisonVerdict.NO_DATA: "without a verdict",
}


class Naming(Enum):
    """Naming of runs in sentences."""

    BOTH = "B (candidate)"
    LETTER = "B"
    NAME = "candidate"


def named(report: ComparisonReport, label: str, naming: Naming = Naming.BOTH) -> str:
    """Return a run's name for sentences."""
    name = report.names[label]
    if naming is Naming.NAME:
        return name
    return label if naming is Naming.LETTER or name == label else f"{label} ({name})"


def verdict_sentence(report: ComparisonReport, naming: Naming = Naming.BOTH) -> str:
    """Return the verdict of the comparison's primary metric as a line."""
    comparison = report.comparison
    if len(comparison.variants) == 2:
        return pair_sentence(report, comparison.pairs[0], naming)
    primaries = [pair.metric(comparison.primary) for pair in report.baseline_pairs]
    messages = {primary.message if primary.verdict in _NONE else "" for primary in primaries}
    if len(messages) == 1 and (message := messages.pop()):
        return f"No verdict on {comparison.primary}: {message}."
    return _leader_sentence(report, naming) if comparison.settings.all_pairs else _against_first(report, naming)


def _against_first(report: ComparisonReport, naming: Naming) -> str:
    """Return the verdicts of the runs against the first, grouped by verdict and reason.

    Reasons are short here; the line of each pair gives them as a sentence.
    """
    metric = report.comparison.primary
    groups: dict[tuple[ComparisonVerdict, str], list[str]] = {}
    for pair in report.baseline_pairs:
        primary = pair.metric(metric)
        groups.setdefault((primary.verdict, short_reason(primary, report.comparison.settings.alpha)), []).append(
            pair.b.label
        )
    parts = [
        f"{_listed(report, labels, naming)} {'is' if len(labels) == 1 else 'are'} {_WORDS[verdict]}"
        + (f" ({reason})" if reason else "")
        for (verdict, reason), labels in sorted(groups.items(), key=lambda item: list(_WORDS).index(item[0][0]))
    ]
    first = named(report, report.comparison.variants[0].label, naming)
    return " ".join([f"{metric} against {first}: {'; '.join(parts)}.", *_errors_of_runs(report, naming)])


def _errors_of_runs(report: ComparisonReport, naming: Naming) -> list[str]:
    sentences = (errors_sentence(report, pair, naming) for pair in report.baseline_pairs)
    return [sentence for sentence in sentences if sentence][:_MOST_LISTED]


def _leader_sentence(report: ComparisonReport, naming: Naming) -> str:
    """Return the run with the best value, and the runs that are not significantly worse."""
    comparison = report.comparison
    leading = [run.label for run in comparison.not_worse_than_best]
    if not leading:
        return f"No verdict on {comparison.primary}: no run has a value."
    first, others = _listed(report, leading[:1], naming), leading[1:]
    worse = [variant.label for variant in comparison.variants if variant.label not in leading]
    if not others:
        return f"{first} is better than all other runs on {comparison.primary}."
    sentence = f"{first} has the best {comparison.primary}; not significantly worse: {_listed(report, others, naming)}"
    sentence = f"{sentence}; significantly worse: {_listed(report, worse, naming)}" if worse else sentence
    return " ".join([f"{sentence}.", *_errors_of_runs(report, naming)])


def _listed(report: ComparisonReport, labels: Sequence[str], naming: Naming) -> str:
    *shown, last = [named(report, label, naming) for label in labels[:_MOST_LISTED]]
    if (more := len(labels) - _MOST_LISTED) > 0:
        return f"{', '.join([*shown, last])} and {more} more"
    return f"{', '.join(shown)} and {last}" if shown else last


def pair_sentence(report: ComparisonReport, pair: PairComparison, naming: Naming = Naming.BOTH) -> str:
    """Return the verdict of the primary metric on two runs, the run with more errors, and the missing cases."""
    verdict, primary = _verdict_of_pair(report, pair, naming), pair.metric(report.comparison.primary)
    is_said = primary.reason == Reason.AGENT_ERRORS and primary.errors == pair.errors
    errors = "" if is_said else errors_sentence(report, pair, naming)
    return " ".join(filter(None, [verdict, errors, _alone_sentence(report, pair, naming)]))


def _alone_sentence(report: ComparisonReport, pair: PairComparison, naming: Naming) -> str:
    """Return the numbers of cases that only one run has; empty if there are none, or if a rule stopped the runs."""
    if report.comparison.stopping is not None:
        return ""
    counts = [(pair.a_only_case_count, pair.a.label), (pair.b_only_case_count, pair.b.label)]
    parts = [f"{count:,} only in {named(report, label, naming)}" for count, label in counts if count]
    return (
        f"Not compared: {count_text(sum(count for count, _ in counts), 'case')}, {', '.join(parts)}." if parts else ""
    )


def _verdict_of_pair(report: ComparisonReport, pair: PairComparison, naming: Naming) -> str:
    primary = pair.metric(report.comparison.primary)
    a, b = (named(report, label, naming) for label in (pair.a.label, pair.b.label))
    match primary.verdict:
        case ComparisonVerdict.B_BETTER:
            return f"{b} is better than {a} on {primary.metric}: {_seen(report, primary, a, b)}."
        case ComparisonVerdict.A_BETTER:
            return f"{b} is worse than {a} on {primary.metric}: {_seen(report, primary, a, b)}."
        case ComparisonVerdict.EQUIVALENT:
            margin = report.comparison.settings.margin
            level = level_text(2 * report.comparison.settings.alpha)
            inner = figures_of(report, primary.metric).interval(primary.equivalence_interval, signed=True)
            return (
                f"{a} and {b} are equivalent on {primary.metric}: the {level} interval {inner} of the difference lies "
                f"within the margin of ±{margin:g}, over {_cases(primary, a, b)}."
            )
        case ComparisonVerdict.INCONCLUSIVE:
            return (
                f"Inconclusive: {primary.message}; {primary.metric} of {b} against {a}: {_seen(report, primary, a, b)}."
            )
    if primary.reason == Reason.AGENT_ERRORS:
        figures_seen = _seen(report, primary, a, b)
        return f"No verdict on {primary.metric}: {primary.message}. {figures_seen[:1].upper()}{figures_seen[1:]}."
    return f"No verdict on {primary.metric}: {primary.message}."


def _seen(report: ComparisonReport, metric: MetricComparison, a: str, b: str) -> str:
    """Return the figures of a metric: first with the worst values for missing ones, then over complete cases."""
    figures = figures_of(report, metric.metric)
    complete = (
        f"{figures.change(metric)} over {_cases(metric, a, b)}, {tested_text(metric, report.comparison.settings.alpha)}"
    )
    if (stopping := report.comparison.stopping) is not None:
        complete = f"{_after_looking(report, metric, stopping)} over {_cases(metric, a, b)}{_decided_by(stopping)}"
    if (worst := metric.worst_case) is None:
        return complete
    return f"worst case {figures.change(worst)}, {p_phrase(worst.p)}; complete cases {complete}"


def _after_looking(report: ComparisonReport, metric: MetricComparison, stopping: StoppingOutcome) -> str:
    """Return the estimate and the interval that allow for looking early, and the plain difference."""
    figures, level = figures_of(report, metric.metric), level_text(report.comparison.settings.alpha)
    plain = f"plain difference {figures.difference(metric.difference)}"
    if stopping.has_decided:
        plain += " (too large on average where a rule stopped)"
    interval = figures.interval(metric.interval, signed=True)
    if metric.interval_method == ALWAYS_VALID:
        return f"always-valid {level} interval of the difference {interval}, {plain}"
    if metric.interval_method == STAGEWISE:
        estimate = figures.difference(metric.median_unbiased)
        return f"{estimate} {interval} (median-unbiased estimate, {level} interval of the looks), {plain}"
    return f"{plain} {interval}".rstrip()


def _cases(metric: MetricComparison, a: str, b: str) -> str:
    """Return the number of cases on which a metric is compared, and of all cases if some have no value."""
    if not metric.dropped_case_count:
        return count_text(metric.pair_count, "case")
    of = f"{metric.pair_count:,} of {count_text(metric.pair_count + metric.dropped_case_count, 'case')}"
    if (errors := metric.errors) is None or metric.reason == Reason.AGENT_ERRORS:  # whose message has the counts
        return of
    return f"{of} (errors: {a} {errors.a_case_count:,}, {b} {errors.b_case_count:,})"


def errors_sentence(report: ComparisonReport, pair: PairComparison, naming: Naming) -> str:
    """Return the sentence on a run with agent errors in significantly more cases; empty if there is none."""
    errors = pair.errors
    if errors is None or errors.worse is Side.NEITHER:
        return ""
    more, fewer = _cases_with_errors(errors, pair)
    of = count_text(pair.common_case_count - pair.changed_case_count, "case")
    counts = f"{more:,} against {fewer:,} of {of}, {p_phrase(errors.p)}"
    worse = pair.a if errors.worse is Side.A else pair.b
    return f"{named(report, worse.label, naming)} has agent errors in significantly more cases: {counts}."


def _cases_with_errors(errors: ErrorComparison, pair: PairComparison) -> tuple[int, int]:
    both = errors.a_case_count, errors.b_case_count
    return both if errors.worse is Side.A else both[::-1]


def _decided_by(stopping: StoppingOutcome) -> str:
    """Return when and by what a rule of early stopping decided; empty if it decided nothing."""
    if not stopping.has_decided:
        return ""
    of = f"after {stopping.case_count:,} of {count_text(stopping.planned_case_count, 'case')}"
    if stopping.look is not None and stopping.z is not None and stopping.bound is not None:
        look = f"at look {stopping.look} of {len(LOOK_BOUNDS)}, {of}, where |z| {abs(stopping.z):.4f}"
        return f"; {stopping.rule} decided {look} reached {stopping.bound:.4f}"
    return f"; {stopping.rule} decided {of}, where its p-value was {p_text(stopping.p)}"
