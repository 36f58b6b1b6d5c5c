"""Runs and rows: plain objects to protobuf messages and back.

Summaries are converted in `assay.wire.summary`, answers and cases in `assay.wire.agent`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from assay.model.by_metric import ByMetric
from assay.model.run import (
    AgentSettings,
    AttemptOutcome,
    CaseResult,
    CaseSelection,
    DatasetReading,
    DatasetRef,
    MetricSettings,
    PauseCause,
    RowAttempt,
    Run,
    RunCounts,
    RunSettings,
    RunState,
    Score,
    ScoreStatus,
    StateChange,
    TurnResult,
)
from assay.model.run_settings import MAX_ERRORS, TURN_SCORES
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.agent import (
    mapping_from_text,
    mapping_to_text,
    response_from_wire,
    response_to_wire,
    status_from_wire,
    status_to_wire,
)
from assay.wire.judging import judge_from_wire, judge_to_wire
from assay.wire.summary import summary_from_wire, summary_to_wire

if TYPE_CHECKING:
    from collections.abc import Iterable

_RUN_STATES = {
    RunState.PENDING: pb.RUN_STATE_PENDING,
    RunState.RUNNING: pb.RUN_STATE_RUNNING,
    RunState.PAUSED: pb.RUN_STATE_PAUSED,
    RunState.SUCCEEDED: pb.RUN_STATE_SUCCEEDED,
    RunState.FAILED: pb.RUN_STATE_FAILED,
    RunState.CANCELLED: pb.RUN_STATE_CANCELLED,
}
_RUN_STATES_BACK = {number: state for state, number in _RUN_STATES.items()}
_PAUSE_CAUSES = {
    PauseCause.OWNER: pb.PAUSE_CAUSE_OWNER,
    PauseCause.INTERRUPTED: pb.PAUSE_CAUSE_INTERRUPTED,
    PauseCause.STORAGE: pb.PAUSE_CAUSE_STORAGE,
    PauseCause.JUDGE: pb.PAUSE_CAUSE_JUDGE,
    PauseCause.UNATTENDED: pb.PAUSE_CAUSE_UNATTENDED,
}
_PAUSE_CAUSES_BACK = {number: cause for cause, number in _PAUSE_CAUSES.items()}
_ATTEMPT_OUTCOMES = {
    AttemptOutcome.CURRENT: pb.ATTEMPT_OUTCOME_STANDS,
    AttemptOutcome.RETRIED: pb.ATTEMPT_OUTCOME_RETRIED,
    AttemptOutcome.INTERRUPTED: pb.ATTEMPT_OUTCOME_INTERRUPTED,
}
_ATTEMPT_OUTCOMES_BACK = {number: outcome for outcome, number in _ATTEMPT_OUTCOMES.items()}
_SCORE_STATUSES = {
    ScoreStatus.SCORED: pb.SCORE_STATUS_SCORED,
    ScoreStatus.SKIPPED: pb.SCORE_STATUS_SKIPPED,
    ScoreStatus.ERROR: pb.SCORE_STATUS_ERROR,
}
_SCORE_STATUSES_BACK = {number: status for status, number in _SCORE_STATUSES.items()}


def settings_to_wire(settings: RunSettings) -> pb.RunSpec:
    """Return the message of what a run does."""
    agent = settings.agent
    return pb.RunSpec(
        name=settings.name,
        agent=pb.AgentSpec(
            adapter=agent.adapter,
            target=agent.target,
            timeout_ms=round(agent.timeout_s * 1000),
            concurrency=agent.concurrency,
            retries=agent.retries,
            options_json=mapping_to_text(agent.options),
        ),
        metrics=[
            pb.MetricSpec(name=metric.name, parameters_json=mapping_to_text(metric.parameters), metric=metric.metric)
            for metric in settings.metrics
        ],
        gates=settings.gates,
        repeats=settings.repeats,
        preset=settings.preset,
        dataset=_reading_to_wire(settings.dataset) if settings.dataset is not None else None,
        judge=judge_to_wire(settings.judge) if settings.judge is not None else None,
        team=settings.team,
        weight=settings.weight,
        max_agent_errors=settings.max_agent_errors,
        max_metric_errors=settings.max_metric_errors,
        turns=settings.turns,
        labels=settings.labels,
        note=settings.note,
        selection=_selection_to_wire(settings.selection) if settings.selection is not None else None,
    )


def settings_from_wire(spec: pb.RunSpec) -> RunSettings:
    """Return what a run does, with the defaults that the contract gives; JSON texts must be objects.

    Raises:
        ValueError: A JSON text is not a JSON object.
    """
    agent = spec.agent
    return RunSettings(
        name=spec.name,
        agent=AgentSettings(
            adapter=agent.adapter,
            target=agent.target,
            timeout_s=(agent.timeout_ms or 30_000) / 1000,
            concurrency=agent.concurrency or 16,
            retries=agent.retries if agent.HasField("retries") else 2,
            options=mapping_from_text(agent.options_json),
        ),
        metrics=tuple(
            MetricSettings(metric.name, mapping_from_text(metric.parameters_json), metric.metric)
            for metric in spec.metrics
        ),
        gates=tuple(spec.gates),
        repeats=spec.repeats or 1,
        preset=spec.preset,
        dataset=_reading_from_wire(spec.dataset) if spec.HasField("dataset") else None,
        judge=judge_from_wire(spec.judge) if spec.HasField("judge") else None,
        team=spec.team,
        weight=spec.weight if spec.HasField("weight") else 1.0,
        max_agent_errors=spec.max_agent_errors if spec.HasField("max_agent_errors") else MAX_ERRORS,
        max_metric_errors=spec.max_metric_errors if spec.HasField("max_metric_errors") else MAX_ERRORS,
        turns=spec.turns or TURN_SCORES[0],
        labels=dict(sorted(spec.labels.items())),
        note=spec.note,
        selection=_selection_from_wire(spec.selection) if spec.HasField("selection") else None,
    )


def _reading_to_wire(reading: DatasetReading) -> pb.DatasetReading:
    return pb.DatasetReading(
        file=reading.file,
        format=reading.format,
        sha256=reading.sha256,
        fields=[pb.FieldSource(field=name, source=source) for name, source in reading.mapping.items()],
        skipped_count=reading.skipped_count,
        left_out_count=reading.left_out_count,
        warnings=reading.warnings,
        checks=reading.checks,
    )


def _reading_from_wire(reading: pb.DatasetReading) -> DatasetReading:
    return DatasetReading(
        file=reading.file,
        format=reading.format,
        sha256=reading.sha256,
        mapping={found.field: found.source for found in reading.fields},
        skipped_count=reading.skipped_count,
        left_out_count=reading.left_out_count,
        warnings=tuple(reading.warnings),
        checks=dict(sorted(reading.checks.items())),
    )


def _selection_to_wire(selection: CaseSelection) -> pb.CaseSelection:
    return pb.CaseSelection(
        cases=selection.cases,
        tags=selection.tags,
        categories=selection.categories,
        failed_of=selection.failed_of,
        limit=selection.limit or 0,
        matched_count=selection.matched_count,
        total_count=selection.total_count,
    )


def _selection_from_wire(selection: pb.CaseSelection) -> CaseSelection:
    return CaseSelection(
        cases=tuple(selection.cases),
        tags=tuple(selection.tags),
        categories=tuple(selection.categories),
        failed_of=selection.failed_of,
        limit=selection.limit or None,
        matched_count=selection.matched_count if selection.HasField("matched_count") else None,
        total_count=selection.total_count if selection.HasField("total_count") else None,
    )


def dataset_to_wire(dataset: DatasetRef) -> pb.Dataset:
    """Return the message of a stored dataset."""
    return pb.Dataset(
        dataset_id=dataset.dataset_id,
        name=dataset.name,
        format=dataset.format,
        case_count=dataset.case_count,
    )


def dataset_from_wire(dataset: pb.Dataset) -> DatasetRef:
    """Return a stored dataset."""
    return DatasetRef(dataset.dataset_id, dataset.name, dataset.format, dataset.case_count)


def state_to_wire(state: RunState) -> pb.RunState.ValueType:
    """Return the message's state of a run."""
    return _RUN_STATES[state]


def states_from_wire(states: Iterable[pb.RunState.ValueType]) -> frozenset[RunState]:
    """Return the states that a request names; those that this version does not know are left out."""
    return frozenset(_RUN_STATES_BACK[state] for state in states if state in _RUN_STATES_BACK)


def run_to_wire(run: Run) -> pb.Run:
    """Return the message of a run."""
    counts = run.counts
    return pb.Run(
        run_id=run.run_id,
        spec=settings_to_wire(run.settings),
        dataset=dataset_to_wire(run.dataset),
        state=_RUN_STATES[run.state],
        state_reason=run.state_reason,
        counts=pb.RunCounts(
            total=counts.total,
            finished=counts.finished,
            passed=counts.passed,
            failed=counts.failed,
            agent_errors=counts.agent_errors,
        ),
        create_time=_to_timestamp(run.created_at),
        start_time=_to_timestamp(run.started_at),
        end_time=_to_timestamp(run.ended_at),
        last_sequence=run.last_sequence,
        summary=summary_to_wire(run.summary) if run.summary is not None else None,
        assay_version=run.assay_version,
        pause_cause=_PAUSE_CAUSES[run.pause_cause] if run.pause_cause is not None else pb.PAUSE_CAUSE_UNSPECIFIED,
    )


def run_from_wire(run: pb.Run) -> Run:
    """Return a run."""
    counts = run.counts
    return Run(
        run_id=run.run_id,
        settings=settings_from_wire(run.spec),
        dataset=dataset_from_wire(run.dataset),
        state=_RUN_STATES_BACK.get(run.state, RunState.PENDING),
        state_reason=run.state_reason,
        counts=RunCounts(counts.total, counts.finished, counts.passed, counts.failed, counts.agent_errors),
        created_at=_from_timestamp(run.create_time) if run.HasField("create_time") else "",
        started_at=_from_timestamp(run.start_time) if run.HasField("start_time") else "",
        ended_at=_from_timestamp(run.end_time) if run.HasField("end_time") else "",
        last_sequence=run.last_sequence,
        summary=summary_from_wire(run.summary) if run.HasField("summary") else None,
        assay_version=run.assay_version,
        pause_cause=_PAUSE_CAUSES_BACK.get(run.pause_cause),
    )


def result_to_wire(result: CaseResult) -> pb.CaseResult:
    """Return the message of a row."""
    return pb.CaseResult(
        case_id=result.case_id,
        case_index=result.case_index,
        repeat_index=result.repeat_index,
        category=result.category,
        status=status_to_wire(result.status),
        passed=result.passed,
        scores=[
            pb.Score(
                metric=score.metric,
                value=score.value,
                status=_SCORE_STATUSES[score.status],
                passed=score.passed,
                reason=score.reason,
                detail_json=mapping_to_text(score.detail),
            )
            for score in result.scores
        ],
        latency_ms=result.latency_ms,
        reason=result.reason,
        response=response_to_wire(result.response) if result.response is not None else None,
        input=result.input,
        references=result.references,
        tags=result.tags,
        weight=None if result.weight == 1.0 else result.weight,
        turns=map(turn_to_wire, result.turns),
        start_time=_to_timestamp(result.started_at),
        duration_ms=result.duration_ms,
    )


def turn_to_wire(turn: TurnResult) -> pb.TurnResult:
    """Return the message of a turn."""
    return pb.TurnResult(
        input=turn.input,
        references=turn.references,
        response=response_to_wire(turn.response) if turn.response is not None else None,
        left_out=turn.left_out,
    )


def _turn_from_wire(turn: pb.TurnResult) -> TurnResult:
    response = response_from_wire(turn.response) if turn.HasField("response") else None
    return TurnResult(turn.input, tuple(turn.references), response, turn.left_out)


def attempt_to_wire(attempt: RowAttempt) -> pb.RowAttempt:
    """Return the message of an attempt at a row."""
    return pb.RowAttempt(
        repeat_index=attempt.repeat_index,
        attempt_index=attempt.attempt_index,
        outcome=_ATTEMPT_OUTCOMES[attempt.outcome],
        time=_to_timestamp(attempt.at),
        result=result_to_wire(attempt.result) if attempt.result is not None else None,
    )


def attempt_from_wire(attempt: pb.RowAttempt) -> RowAttempt:
    """Return an attempt at a row."""
    return RowAttempt(
        repeat_index=attempt.repeat_index,
        attempt_index=attempt.attempt_index,
        outcome=_ATTEMPT_OUTCOMES_BACK.get(attempt.outcome, AttemptOutcome.CURRENT),
        at=_from_timestamp(attempt.time),
        result=result_from_wire(attempt.result) if attempt.HasField("result") else None,
    )


def result_from_wire(result: pb.CaseResult, sequence: int = 0) -> CaseResult:
    """Return a row."""
    return CaseResult(
        case_id=result.case_id,
        case_index=result.case_index,
        repeat_index=result.repeat_index,
        category=result.category,
        status=status_from_wire(result.status),
        passed=result.passed if result.HasField("passed") else None,
        scores=ByMetric(_score_from_wire(score) for score in result.scores),
        latency_ms=result.latency_ms if result.HasField("latency_ms") else None,
        reason=result.reason,
        sequence=sequence,
        response=response_from_wire(result.response) if result.HasField("response") else None,
        input=result.input,
        references=tuple(result.references),
        tags=tuple(result.tags),
        weight=result.weight if result.HasField("weight") else 1.0,
        turns=tuple(map(_turn_from_wire, result.turns)),
        started_at=_from_timestamp(result.start_time) if result.HasField("start_time") else "",
        duration_ms=result.duration_ms if result.HasField("duration_ms") else None,
    )


def event_to_wire(event: StateChange | CaseResult) -> pb.RunEvent:
    """Return the message of an event."""
    if isinstance(event, CaseResult):
        return pb.RunEvent(sequence=event.sequence, case_finished=result_to_wire(event))
    return pb.RunEvent(
        sequence=event.sequence,
        state_changed=pb.StateChanged(
            state=_RUN_STATES[event.state], reason=event.reason, time=_to_timestamp(event.at)
        ),
    )


def event_from_wire(event: pb.RunEvent) -> StateChange | CaseResult:
    """Return an event."""
    if event.HasField("case_finished"):
        return result_from_wire(event.case_finished, event.sequence)
    change = event.state_changed
    return StateChange(
        sequence=event.sequence,
        state=_RUN_STATES_BACK.get(change.state, RunState.PENDING),
        reason=change.reason,
        at=_from_timestamp(change.time),
    )


def _score_from_wire(score: pb.Score) -> Score:
    return Score(
        metric=score.metric,
        status=_SCORE_STATUSES_BACK.get(score.status, ScoreStatus.ERROR),
        value=score.value if score.HasField("value") else None,
        passed=score.passed if score.HasField("passed") else None,
        reason=score.reason,
        detail=mapping_from_text(score.detail_json),
    )


def _to_timestamp(text: str) -> Timestamp | None:
    if not text:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromisoformat(text))
    return stamp


def _from_timestamp(stamp: Timestamp) -> str:
    moment = stamp.ToDatetime(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
