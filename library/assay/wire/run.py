"""Conversion of runs and rows to protobuf messages and back.

`assay.wire.summary` converts summaries, `assay.wire.agent` answers, and `assay.wire.case` cases.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from assay.errors import Problem, SetupError
from assay.model.answers.approvals import Approval, Decision
from assay.model.answers.interrupts import DecisionKind
from assay.model.baseline import Baseline
from assay.model.by_metric import ByMetric
from assay.model.code_identity import CodeIdentity
from assay.model.judge_calibration import AgreementMeasure, JudgeCalibration, JudgeTrust, LabelDrawing
from assay.model.run import (
    AttemptOutcome,
    CaseSelection,
    DatasetReading,
    DatasetRef,
    Deletion,
    PauseCause,
    RowAttempt,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    StateChanged,
    ThresholdRule,
    TurnResult,
)
from assay.model.run_spec import HOSTED, TURN_SCORES
from assay.model.stopping import StoppingRule, StoppingSettings
from assay.model.stored_dataset import StoredDataset
from assay.model.views import RowView, RunView
from assay.parsing.names import run_id_problem
from assay.v1 import calibration_pb2, comparison_pb2, dataset_pb2, row_pb2, run_pb2, spec_pb2, summary_pb2
from assay.wire.agent import (
    STATUSES,
    approval_from_wire,
    approval_to_wire,
    response_from_wire,
    response_to_wire,
)
from assay.wire.converter import Converter, EnumConverter, Functions, Spread, WordConverter
from assay.wire.hosted import AGENT, METRIC, agent_problems, metric_problem
from assay.wire.interval import INTERVAL
from assay.wire.json_text import mapping_from_text, mapping_to_text
from assay.wire.judging import JUDGE
from assay.wire.score import score_from_wire, score_to_wire
from assay.wire.summary import SUMMARY
from assay.wire.times import TIMES, timestamp_from_wire, timestamp_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAUSE_CAUSES = EnumConverter(PauseCause, run_pb2.PauseCause, unknown=None)
_COUNTS = Converter(RunCounts, run_pb2.RunCounts)
STATES = EnumConverter(RunState, run_pb2.RunState, unknown=RunState.PENDING)
RUN_VIEWS = EnumConverter(RunView, run_pb2.RunView, unknown=None)
ROW_VIEWS = EnumConverter(RowView, row_pb2.RowView, unknown=RowView.BASIC)
_ATTEMPT_OUTCOMES = EnumConverter(
    AttemptOutcome, row_pb2.AttemptOutcome, unknown=AttemptOutcome.CURRENT, CURRENT="STANDS"
)


def _fields_to_wire(mapping: Mapping[str, str]) -> dict[str, Any]:
    return {"fields": [spec_pb2.FieldSource(field=name, source=source) for name, source in mapping.items()]}


def _fields_from_wire(reading: spec_pb2.DatasetReading) -> dict[str, str]:
    return {entry.field: entry.source for entry in reading.fields}


class _Approvals:
    """Converts the items of a list of approvals."""

    to_wire = staticmethod(approval_to_wire)
    from_wire = staticmethod(approval_from_wire)

    def from_json(self, value: Any) -> Approval:
        """Return the item from the result of `dataclasses.asdict`."""
        decision = Decision(**{**value["decision"], "kind": DecisionKind(value["decision"]["kind"])})
        return Approval(**{**value, "decision": decision})


DATASET = Converter(
    StoredDataset,
    dataset_pb2.Dataset,
    renamed={"created_at": "create_time", "uploaded_at": "upload_time"},
    parts={"created_at": TIMES, "uploaded_at": TIMES},
)
DATASET_REFERENCE = Converter(DatasetRef, dataset_pb2.DatasetReference)
SETTINGS = Converter(
    RunSpec,
    spec_pb2.RunSpec,
    parts={
        "agent": AGENT,
        "metrics": METRIC,
        "dataset": Converter(
            DatasetReading,
            spec_pb2.DatasetReading,
            spread={"mapping": Spread(("fields",), _fields_to_wire, _fields_from_wire)},
        ),
        "judges": JUDGE,
        "turns": WordConverter(spec_pb2.TurnScore, TURN_SCORES),
        "selection": Converter(CaseSelection, spec_pb2.CaseSelection),
        "stopping": Converter(
            StoppingSettings,
            spec_pb2.StoppingSettings,
            renamed={"cases": "case_count"},
            parts={"rule": WordConverter(spec_pb2.StoppingRule, StoppingRule)},
        ),
        "code": Converter(CodeIdentity, spec_pb2.CodeIdentity),
        "approvals": _Approvals(),
    },
)


def settings_from_wire(spec: spec_pb2.RunSpec) -> tuple[RunSpec, list[Problem]]:
    """Return the settings in a spec, and the problems of its parts that cannot be read, which the settings lack."""
    readable, problems = spec_pb2.RunSpec(), list[Problem]()
    readable.CopyFrom(spec)
    texts: list[tuple[Message, str, str]] = []
    if spec.HasField("agent"):
        texts.append((readable.agent, "options_json", "agent"))
    texts += [(metric, "parameters_json", f"metrics[{index}]") for index, metric in enumerate(readable.metrics)]
    for message, field, place in texts:
        try:
            mapping_from_text(getattr(message, field))
        except ValueError as problem:
            problems.append(Problem(f"cannot be read: {problem}", f"{place}.{field}"))
            message.ClearField(field)
    if unusable := agent_problems(spec.agent):
        problems += unusable
        readable.agent.adapter, readable.agent.hosted_by = HOSTED, ""  # its other fields are checked all the same
    for index, metric in enumerate(readable.metrics):
        metric.kind = metric.kind or metric.name
        if reserved := metric_problem(metric.kind):
            problems.append(Problem(reserved, f"metrics[{index}].kind"))
    del readable.approvals[:]
    for index, approval in enumerate(spec.approvals):
        try:
            approval_from_wire(approval)
        except ValueError as problem:
            problems.append(Problem(f"cannot be read: {problem}", f"approvals[{index}]"))
        else:
            readable.approvals.append(approval)
    return SETTINGS.from_wire(readable), problems


def _run_id_from_wire(run_id: str) -> str:
    """Return a run's id, which clients use as a folder name.

    Raises:
        SetupError: It does not have the form of an id.
    """
    if problem := run_id_problem(run_id):
        raise SetupError(f"the server's answer is not used: {problem}", reason="INVALID_RUN_ID")
    return run_id


def _words(words: type[StrEnum], wire: Any) -> Functions:
    """Return the converter of a text that is a member of an enum, or empty for UNSPECIFIED."""
    members = EnumConverter(words, wire, unknown="")
    return Functions(lambda word: members.to_wire(words(word)) if word else 0, members.from_wire)


_RUN_ID = Functions(str, _run_id_from_wire)
CALIBRATION = Converter(
    JudgeCalibration,
    calibration_pb2.JudgeCalibration,
    renamed={"calibrated_at": "create_time"},
    parts={
        "calibrated_at": TIMES,
        "measure": _words(AgreementMeasure, calibration_pb2.AgreementMeasure),
        "trust": _words(JudgeTrust, calibration_pb2.JudgeTrust),
        "rule": _words(ThresholdRule, summary_pb2.ThresholdRule),
        "drawing": _words(LabelDrawing, calibration_pb2.LabelDrawing),
        "interval": INTERVAL,
    },
)
RUN = Converter(
    Run,
    run_pb2.Run,
    renamed={
        "created_at": "create_time",
        "started_at": "start_time",
        "ended_at": "end_time",
    },
    parts={
        "run_id": _RUN_ID,
        "spec": SETTINGS,
        "dataset": DATASET_REFERENCE,
        "state": STATES,
        "counts": _COUNTS,
        "created_at": TIMES,
        "started_at": TIMES,
        "ended_at": TIMES,
        "summary": SUMMARY,
        "pause_cause": _PAUSE_CAUSES,
        "calibrations": CALIBRATION,
    },
)


def result_to_wire(result: RowResult) -> row_pb2.RowResult:
    """Return the message for a row, with its answer, input and references if present."""
    return row_pb2.RowResult(
        case_id=result.case_id,
        case_index=result.case_index,
        repeat=result.repeat,
        category=result.category,
        status=STATUSES.to_wire(result.status),
        passed=result.passed,
        scores=map(score_to_wire, result.scores),
        latency_ms=result.latency_ms,
        message=result.message,
        tags=result.tags,
        weight=None if result.weight == 1.0 else result.weight,
        start_time=timestamp_to_wire(result.started_at),
        duration_ms=result.duration_ms,
        response=response_to_wire(result.response) if result.response is not None else None,
        input=result.input,
        references=result.references,
        turns=map(turn_to_wire, result.turns),
        place=result.place,
        expected_json=mapping_to_text(result.expected),
    )


def without_answer(event: run_pb2.RunEvent) -> run_pb2.RunEvent:
    """Return an event's message without the row's answer, input and references."""
    if not event.HasField("row_finished"):
        return event
    stripped = run_pb2.RunEvent()
    stripped.CopyFrom(event)
    for name in ("response", "input", "references", "turns", "place", "expected_json"):
        stripped.row_finished.ClearField(name)
    return stripped


def turn_to_wire(turn: TurnResult) -> row_pb2.TurnResult:
    """Return the message for a turn."""
    return row_pb2.TurnResult(
        input=turn.input,
        references=turn.references,
        response=response_to_wire(turn.response) if turn.response is not None else None,
        left_out=turn.left_out,
        expected_json=mapping_to_text(turn.expected),
    )


def _turn_from_wire(turn: row_pb2.TurnResult) -> TurnResult:
    response = response_from_wire(turn.response) if turn.HasField("response") else None
    return TurnResult(
        turn.input, tuple(turn.references), response, turn.left_out, mapping_from_text(turn.expected_json)
    )


def result_from_wire(result: row_pb2.RowResult, sequence: int = 0) -> RowResult:
    """Return the row in a message."""
    return RowResult(
        case_id=result.case_id,
        case_index=result.case_index,
        repeat=result.repeat,
        category=result.category,
        status=STATUSES.from_wire(result.status),
        passed=result.passed if result.HasField("passed") else None,
        scores=ByMetric(map(score_from_wire, result.scores)),
        latency_ms=result.latency_ms if result.HasField("latency_ms") else None,
        message=result.message,
        sequence=sequence,
        response=response_from_wire(result.response) if result.HasField("response") else None,
        input=result.input,
        references=tuple(result.references),
        tags=tuple(result.tags),
        weight=result.weight if result.HasField("weight") else 1.0,
        turns=tuple(map(_turn_from_wire, result.turns)),
        started_at=timestamp_from_wire(result.start_time) if result.HasField("start_time") else "",
        duration_ms=result.duration_ms if result.HasField("duration_ms") else None,
        place=result.place if result.HasField("place") else None,
        expected=mapping_from_text(result.expected_json),
    )


DELETION = Converter(Deletion, run_pb2.DeleteRunResponse)
BASELINE = Converter(
    Baseline, comparison_pb2.Baseline, renamed={"set_at": "set_time"}, parts={"run_id": _RUN_ID, "set_at": TIMES}
)
ATTEMPT = Converter(
    RowAttempt,
    row_pb2.RowAttempt,
    renamed={"at": "outcome_time"},
    parts={"outcome": _ATTEMPT_OUTCOMES, "at": TIMES, "result": Functions(result_to_wire, result_from_wire)},
)


def event_to_wire(event: StateChanged | RowResult) -> run_pb2.RunEvent:
    """Return the message for an event."""
    if isinstance(event, RowResult):
        return run_pb2.RunEvent(sequence=event.sequence, row_finished=result_to_wire(event))
    change = run_pb2.StateChanged(
        state=STATES.to_wire(event.state),
        message=event.message,
        change_time=timestamp_to_wire(event.at),
        counts=_COUNTS.to_wire(event.counts),
    )
    if event.pause_cause is not None:
        change.pause_cause = _PAUSE_CAUSES.to_wire(event.pause_cause)
    return run_pb2.RunEvent(sequence=event.sequence, state_changed=change)


def event_from_wire(event: run_pb2.RunEvent) -> StateChanged | RowResult:
    """Return the event in a message."""
    if event.HasField("row_finished"):
        return result_from_wire(event.row_finished, event.sequence)
    change = event.state_changed
    return StateChanged(
        sequence=event.sequence,
        state=STATES.from_wire(change.state),
        message=change.message,
        at=timestamp_from_wire(change.change_time),
        pause_cause=_PAUSE_CAUSES.from_wire(change.pause_cause),
        counts=_COUNTS.from_wire(change.counts),
    )
