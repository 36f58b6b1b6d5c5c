"""Recommendations of a summary, each supported by its figures; names are untrusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.gates.gates import actual_text, may_be_chance
from assay.gates.run_verdict import agent_error_gap, threshold_expression
from assay.metrics import METRICS
from assay.metrics.core.similarity import LANGUAGE_MISMATCH
from assay.model.dependent_cases import COPIES
from assay.model.run import GateOutcome, GateSource
from assay.model.run_spec import FUNCTION_METRIC
from assay.model.run_summary import Recommendation, Remedy
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.model.run import GroupSummary, MetricSummary, RunSpec, RunSummary

_REPORTED = ("cost", "latency")
_SIGNS = {"at_least": "at least", "more_than": "more than", "at_most": "at most"}


def recommendations(summary: RunSummary, spec: RunSpec) -> tuple[Recommendation, ...]:
    """Return the recommendations for a run, the most urgent first.

    Args:
        summary: The summary, with its gates.
        spec: The run's settings.
    """
    advice = [
        *map(Recommendation, _of_agent(summary)),
        *_of_own_errors(summary, spec),
        *(Recommendation(_of_missed(metric, summary)) for metric in summary.metrics if metric.meets_threshold is False),
        *map(Recommendation, _of_missing(summary, spec)),
        *map(Recommendation, _of_certainty(summary)),
        *map(Recommendation, _of_details(summary)),
    ]
    return tuple(dict.fromkeys(advice))


def _rows(count: int) -> str:
    return count_text(count, "row")


def _is_judged(spec: RunSpec, name: str) -> bool:
    kinds = [metric.kind for metric in spec.metrics if metric.name == name]
    return any(kind in METRICS and METRICS[kind].info.needs_judge for kind in kinds)


def _of_agent(summary: RunSummary) -> Iterator[str]:
    if errors := summary.agent_error_count:
        yield (
            f"The agent failed on {errors:,} of {_rows(summary.row_count)}: look at their reasons first, for they "
            "count as failures whatever the quality of the answers."
        )
    if waits := summary.interrupted_count:
        yield (
            f"The agent waits for a person on {_rows(waits)}: say in `approvals` of the spec or of the case what the "
            "person decides (docs/approvals.md)."
        )


def _of_own_errors(summary: RunSummary, spec: RunSpec) -> Iterator[Recommendation]:
    for metric in summary.metrics:
        invalid = metric.detail.get("invalid_answers", 0)
        if invalid:
            answers = "answer reports" if invalid == 1 else "answers report"
            kind = next((settings.kind for settings in spec.metrics if settings.name == metric.metric), "")
            yield Recommendation(
                f"{metric.metric} could not be computed on {_rows(invalid)}, whose {answers} an invalid "
                f"{kind if kind in _REPORTED else ' or '.join(_REPORTED)} (negative, or not finite): correct what the "
                "agent reports, and run these cases again."
            )
        if own := metric.own_error_count - invalid:
            failed = f"{metric.metric} could not be computed on {_rows(own)} through no fault of the agent"
            if any(judge.recorded_file for judge in spec.judges) and _is_judged(spec, metric.metric):
                yield Recommendation(f"{failed}: add the missing verdicts to the recorded file, or run with a judge.")
            else:
                yield Recommendation(f"{failed}: the rows say why.", _remedy(spec, metric.metric))


def _remedy(spec: RunSpec, name: str) -> Remedy | None:
    """Return the remedy for a failed metric; a deterministic computation is not worth a retry."""
    kind = next((metric.kind for metric in spec.metrics if metric.name == name), "")
    if kind == FUNCTION_METRIC:
        return Remedy.RESCORE
    if kind in METRICS and (METRICS[kind].info.needs_judge or METRICS[kind].info.needs_embedder):
        return Remedy.RETRY_ERRORS
    return None


def _of_missed(metric: MetricSummary, summary: RunSummary) -> str:
    actual = actual_text(threshold_expression(metric), metric.value)
    sentence = f"{metric.metric} misses its threshold: it is {actual}, not {_SIGNS[metric.rule]} {metric.threshold:g}"
    if metric.failed_count:
        sentence += f"; {_rows(metric.failed_count)} failed it"
    worst = _worst(metric, summary.categories)
    return f"{sentence}; the worst category is {worst}." if worst else f"{sentence}."


def _worst(metric: MetricSummary, groups: Sequence[GroupSummary]) -> str:
    known = [(value, group) for group in groups if (value := group.metrics.get(metric.metric)) is not None]
    if len({value for value, _ in known}) < 2:
        return ""
    choose = max if metric.rule == "at_most" else min
    value, group = choose(known, key=lambda pair: pair[0])
    return f"{group.name or '(none)'} with {value:.4g} in {_rows(group.row_count)}"


def _of_missing(summary: RunSummary, spec: RunSpec) -> Iterator[str]:
    kinds = {metric.name: metric.kind for metric in spec.metrics}
    for metric in summary.metrics:
        if (
            metric.value is not None
            or metric.is_optional
            or not metric.skipped_count
            or summary.agent_error_count == summary.row_count
        ):
            continue  # no metric reads an answer where every call failed
        if not spec.judges and _is_judged(spec, metric.metric):
            yield f"{metric.metric} was computed on no row: it needs a judge; name one under `judge` in the spec."
            continue
        if kinds.get(metric.metric) == FUNCTION_METRIC:
            yield (
                f"{metric.metric} was computed on no row: the function returned None on {_rows(metric.skipped_count)}, "
                "which skips a row."
            )
            continue
        lacking = f"{_rows(metric.skipped_count)} {'lacks' if metric.skipped_count == 1 else 'lack'}"
        yield (
            f"{metric.metric} was computed on no row: {lacking} what it reads "
            f"(`assay metrics show {kinds.get(metric.metric, metric.metric)}`); add it to the dataset or the "
            "answers, or leave the metric out."
        )
    for gate in summary.gates:
        if gate.source is GateSource.GATE and gate.outcome is GateOutcome.INCOMPLETE:
            yield f"The gate {gate.expression} is incomplete: {gate.message or 'its number was not computed'}."


def _of_certainty(summary: RunSummary) -> Iterator[str]:
    """Return advice on gates and thresholds that chance may have decided, and on repeats."""
    # Of an agent that mostly failed a rate says little, however many cases there are.
    for criterion in () if agent_error_gap(summary) else summary.gates:
        if (
            criterion.interval is not None
            and (bound := may_be_chance(criterion.expression, criterion.interval)) is not None
        ):
            outcome = "holds" if criterion.outcome is GateOutcome.PASS else "does not hold"
            low, high = criterion.interval
            yield (
                f"{criterion.expression} {outcome}, but chance may have decided it: {bound:.4g} lies within the 95 % "
                f"interval, {low:.4g} to {high:.4g}. More {_more(summary)} narrow it."
            )
    if summary.repeats is not None and summary.repeats.variance is not None and summary.repeats.variance.advice:
        yield summary.repeats.variance.advice


def _more(summary: RunSummary) -> str:
    """Return advice on narrower intervals: more cases, or, for clustered ones, cases of other clusters."""
    if summary.dependent is None:
        return "cases"
    return "cases that are no copies" if summary.dependent.key == COPIES else f"clusters by {summary.dependent.key}"


def _of_details(summary: RunSummary) -> Iterator[str]:
    for metric in summary.metrics:
        if metric.value is not None and metric.detail.get("scope") == "pooled":
            yield (
                f"{metric.metric} compares the answers to different questions with each other: run each case several "
                "times (`repeats: 3`) to see whether the agent answers one question alike."
            )
        if count := metric.detail.get("incoherent"):
            yield (
                f"{metric.metric} has {count_text(count, 'verdict')} whose overall score does not follow from the "
                "parts: read them before trusting the judge."
            )
        if count := metric.detail.get("truncated"):
            yield (
                f"{metric.metric} compared only the beginning of texts in {_rows(count)}, which are longer than its "
                "model reads. Set `windowed: true` to compare all of them, or name a model that reads more."
            )
        if count := (metric.detail.get("warnings") or {}).get(LANGUAGE_MISMATCH):
            yield (
                f"{metric.metric} compared {_rows(count)} in another script than Latin with an English-only model, to "
                "which unrelated texts of other scripts look alike: name a multilingual model as its `model`, with a "
                "threshold of its own (docs/embedding-models.md)."
            )
