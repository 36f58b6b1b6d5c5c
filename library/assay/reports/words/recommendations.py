"""Recommendations of a summary, each supported by its figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assay.gates.gates import actual_text, may_be_chance
from assay.gates.run_verdict import agent_error_gap, threshold_expression
from assay.metrics import METRICS
from assay.metrics.core.similarity import LANGUAGE_MISMATCH
from assay.model.dependent_cases import COPIES
from assay.model.run import GateOutcome, GateSource
from assay.model.run_spec import FUNCTION_METRIC
from assay.reports.words.metric_text import count_text
from assay.reports.words.run_commands import rescore_command, resume_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from assay.model.run import GroupSummary, MetricSummary, Run, RunSummary

_REPORTED = ("cost", "latency")
_SIGNS = {"at_least": "at least", "more_than": "more than", "at_most": "at most"}


def recommendations(run: Run, spec: Path | None = None, server: str | None = None) -> list[str]:
    """Return the recommendations for a run with a summary, the most urgent first; empty if there are none.

    Args:
        run: The run.
        spec: The file of its spec, for commands that need it; None where only the run is known.
        server: The server that stores the run, where the user named one.
    """
    summary = run.summary
    if summary is None:
        return []
    sentences = [
        *_of_agent(run),
        *_of_own_errors(run, summary, partial(_remedy, run, spec, server)),
        *(_of_missed(metric, summary) for metric in summary.metrics if metric.meets_threshold is False),
        *_of_missing(run, summary),
        *_of_certainty(summary),
        *_of_details(summary),
    ]
    return list(dict.fromkeys(sentences))


def _rows(count: int) -> str:
    return count_text(count, "row")


def _is_judged(run: Run, name: str) -> bool:
    kinds = [metric.kind for metric in run.spec.metrics if metric.name == name]
    return any(kind in METRICS and METRICS[kind].info.needs_judge for kind in kinds)


def _of_agent(run: Run) -> Iterator[str]:
    if errors := run.counts.agent_error_count:
        yield (
            f"The agent failed on {errors:,} of {_rows(run.counts.total_count)}: look at their reasons first, for they "
            "count as failures whatever the quality of the answers."
        )
    if waits := run.counts.interrupted_count:
        yield (
            f"The agent waits for a person on {_rows(waits)}: say in `approvals` of the spec or of the case what the "
            "person decides (docs/approvals.md)."
        )


def _of_own_errors(run: Run, summary: RunSummary, remedy_of: Callable[[str], str]) -> Iterator[str]:
    for metric in summary.metrics:
        invalid = metric.detail.get("invalid_answers", 0)
        if invalid:
            answers = "answer reports" if invalid == 1 else "answers report"
            kind = next((settings.kind for settings in run.spec.metrics if settings.name == metric.metric), "")
            yield (
                f"{metric.metric} could not be computed on {_rows(invalid)}, whose {answers} an invalid "
                f"{kind if kind in _REPORTED else ' or '.join(_REPORTED)} (negative, or not finite): correct what the "
                "agent reports, and run these cases again."
            )
        if own := metric.own_error_count - invalid:
            failed = f"{metric.metric} could not be computed on {_rows(own)} through no fault of the agent"
            if any(judge.recorded_file for judge in run.spec.judges) and _is_judged(run, metric.metric):
                yield f"{failed}: add the missing verdicts to the recorded file, or run with a judge."
            else:
                yield f"{failed}: the rows say why{remedy_of(metric.metric)}."


def _remedy(run: Run, spec: Path | None, server: str | None, name: str) -> str:
    """Return the remedy for a failed metric; a deterministic computation is not worth a retry."""
    kind = next((metric.kind for metric in run.spec.metrics if metric.name == name), "")
    if kind == FUNCTION_METRIC:
        command = rescore_command(run, spec=spec, server=server)
        return f"; correct the function, then score the stored answers with `{command}`"
    if kind in METRICS and (METRICS[kind].info.needs_judge or METRICS[kind].info.needs_embedder):
        return f"; once that has passed: `{resume_command(run, retry_errors=True, spec=spec, server=server)}`"
    return ""


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


def _of_missing(run: Run, summary: RunSummary) -> Iterator[str]:
    kinds = {metric.name: metric.kind for metric in run.spec.metrics}
    for metric in summary.metrics:
        if (
            metric.value is not None
            or metric.is_optional
            or not metric.skipped_count
            or run.counts.agent_error_count == run.counts.total_count
        ):
            continue  # no metric reads an answer where every call failed
        if not run.spec.judges and _is_judged(run, metric.metric):
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
