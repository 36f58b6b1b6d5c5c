"""Plain objects to messages and back: nothing is lost, and absent, 0 and empty stay apart."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agent.v1 import agent_pb2
from assay.errors import DatasetError, SetupError
from assay.metrics.core.explanations import score_message
from assay.metrics.core.score import score_from_json, score_to_json
from assay.model import run as results
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Attempt,
    Interrupt,
    InterruptKind,
    Message,
    Source,
    ToolCall,
    Usage,
)
from assay.model.answers.approvals import Approval, Decision, UnusedApproval
from assay.model.answers.interrupts import DecisionKind
from assay.model.case import Assertion, Case, ExpectedTool, RecordedVerdict, Turn, case_from_json, case_to_json
from assay.model.judgement import Judgement, JudgementCall, JudgementStatus
from assay.model.judging_summary import JudgingSummary
from assay.model.stored_dataset import StoredDataset
from assay.v1 import case_pb2, comparison_pb2, row_pb2, run_pb2, spec_pb2
from assay.wire import run as wire
from assay.wire import summary as summary_wire
from assay.wire.agent import (
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)
from assay.wire.case import case_from_wire, case_to_wire
from assay.wire.run import event_from_wire, event_to_wire, result_from_wire, result_to_wire

# Lone surrogates and NUL are replaced on purpose, see test_answers.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FLAG = st.booleans()
COUNT = st.integers(0, 2**53 - 1)
SMALL = st.integers(0, 2**31 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SECONDS = st.integers(0, 10**6).map(lambda eighths: eighths / 8)
"""Durations that are exact in milliseconds, too."""
VALUE = st.recursive(
    st.none() | FLAG | st.integers(-(2**63), 2**63) | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, VALUE, max_size=3)
MOMENT = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
)


def tuples_of(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=3).map(tuple)


def or_none(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | item


MESSAGE = st.builds(Message, TEXT, TEXT, TEXT, TEXT)
ERROR = st.builds(AgentError, st.sampled_from(AgentErrorKind), TEXT, TEXT, or_none(SMALL), FLAG)
SOURCE = st.builds(Source, id=TEXT, title=TEXT, uri=TEXT, content=TEXT, score=or_none(NUMBER), metadata=OBJECT)
USAGE = st.builds(Usage, *[or_none(COUNT)] * 7, or_none(NUMBER))
TOOL_CALL = st.builds(ToolCall, TEXT, TEXT, TEXT, TEXT, FLAG, or_none(NUMBER))
INTERRUPT = st.builds(
    Interrupt, TEXT, st.sampled_from(InterruptKind), TEXT, TEXT, TEXT, st.sampled_from(["", "approve", "answer"])
)
RESPONSE = st.builds(
    AgentResponse,
    status=st.sampled_from(AgentStatus),
    interrupts=tuples_of(INTERRUPT),
    text=TEXT,
    error=or_none(ERROR),
    output=VALUE,
    sql=or_none(TEXT),
    data_rows=or_none(COUNT),
    tool_calls=or_none(tuples_of(TOOL_CALL)),
    sources=tuples_of(SOURCE),
    retrieved=or_none(tuples_of(SOURCE)),
    usage=or_none(USAGE),
    latency_ms=or_none(NUMBER),
    reported_latency_ms=or_none(NUMBER),
    time_to_first_token_ms=or_none(NUMBER),
    cold=st.booleans(),
    finish_reason=TEXT,
    model=TEXT,
    attempts=tuples_of(st.builds(Attempt, NUMBER, ERROR)),
    metadata=OBJECT,
)
DECISION = st.one_of(
    st.just(Decision(DecisionKind.APPROVE)),
    st.builds(lambda reason: Decision(DecisionKind.DENY, reason=f"no {reason}"), TEXT),
    st.builds(lambda arguments: Decision(DecisionKind.EDIT, arguments=arguments), OBJECT),
    st.builds(lambda value: Decision(DecisionKind.ANSWER, value=value), VALUE),
)
APPROVAL = st.builds(Approval, DECISION, st.sampled_from(["", "refund"]), or_none(st.integers(1, 10_000)))
REQUEST = st.builds(
    AgentRequest,
    request_id=TEXT,
    run_id=TEXT,
    case_id=TEXT,
    input=TEXT,
    repeat=SMALL,
    turn_index=SMALL,
    session_id=TEXT,
    idempotency_key=TEXT,
    history=tuples_of(MESSAGE),
    variables=OBJECT,
    parameters=OBJECT,
    metadata=st.dictionaries(TEXT, TEXT, max_size=3),
    timeout_s=st.integers(1, 3_600_000).map(lambda ms: ms / 1000),
    turn_count=st.integers(0, 100),
    approvals=tuples_of(APPROVAL),
)
TOOL = st.builds(ExpectedTool, TEXT, or_none(OBJECT), st.sampled_from(["name", "subset", "exact"]))
ASSERTION = st.builds(Assertion, TEXT, VALUE, or_none(NUMBER), TEXT, NUMBER, FLAG)
TURN = st.builds(Turn, TEXT, tuples_of(MESSAGE), tuples_of(TEXT), tuples_of(TEXT), tuples_of(TOOL))
VERDICT = st.builds(RecordedVerdict, TEXT, TEXT, TEXT, OBJECT, or_none(SMALL), TEXT, SMALL)
CASE = st.builds(
    Case,
    case_id=TEXT,
    turns=st.lists(TURN, min_size=1, max_size=2).map(tuple),
    variables=OBJECT,
    parameters=OBJECT,
    contexts=tuples_of(TEXT),
    category=TEXT,
    tags=tuples_of(TEXT),
    choices=tuples_of(TEXT),
    expected=OBJECT,
    assertions=tuples_of(ASSERTION),
    thresholds=st.dictionaries(TEXT, NUMBER, max_size=3),
    weight=NUMBER,
    human_labels=OBJECT,
    metadata=OBJECT,
    recordings=tuples_of(tuples_of(RESPONSE)),
    verdicts=tuples_of(VERDICT),
    approvals=tuples_of(APPROVAL),
    place=or_none(COUNT),
)


def with_answers(case: Case, texts: list[list[str]]) -> Case:
    """Return a case whose recorded answers are those of texts: others are completed where they are read."""
    recordings = tuple(tuple(AgentResponse(text=text) for text in each) for each in texts)
    return dataclasses.replace(case, recordings=recordings)


SETTINGS = st.builds(
    results.RunSpec,
    name=TEXT,
    agent=st.builds(
        results.AgentSpec,
        adapter=TEXT,
        target=TEXT,
        timeout_s=st.integers(1, 3_600_000).map(lambda ms: ms / 1000),
        concurrency=st.integers(1, 1000),
        retries=st.integers(0, 10),
        options=OBJECT,
    ),
    # "hosted" is the word of the wire for the kind "python".
    metrics=tuples_of(st.builds(results.MetricSpec, TEXT, OBJECT, TEXT).filter(lambda metric: metric.kind != "hosted")),
    gates=tuples_of(TEXT),
    max_agent_errors=NUMBER,
    max_metric_errors=NUMBER,
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    note=TEXT,
    spec_name=TEXT,
    source_run_id=TEXT,
    selection=or_none(
        st.builds(
            results.CaseSelection,
            *[tuples_of(TEXT)] * 3,
            failed_of=TEXT,
            limit=or_none(st.integers(1, 2**63 - 1)),
            matched_count=or_none(COUNT),
            total_count=or_none(COUNT),
        )
    ),
    dataset=or_none(
        st.builds(
            results.DatasetReading,
            *[TEXT] * 3,
            mapping=st.dictionaries(TEXT, TEXT, max_size=3),
            skipped_count=SMALL,
            left_out_count=SMALL,
            warnings=tuples_of(TEXT),
            approvals_count=SMALL,
        )
    ),
    repeats=st.integers(1, 100),
    approvals=tuples_of(APPROVAL),
    preset=TEXT,
    judges=tuples_of(
        st.builds(
            results.JudgeSpec,
            TEXT.filter(bool),
            tuples_of(
                st.builds(
                    results.JudgeModel,
                    *[TEXT] * 4,
                    temperature=or_none(NUMBER),
                    max_tokens=st.integers(1, 100_000),
                )
            ),
            timeout_s=st.integers(1, 3_600_000).map(lambda ms: ms / 1000),
            concurrency=st.integers(1, 200),
        )
    ),
    spend_cap_nano_usd=or_none(st.integers(0, 10**15)),
)
SCORE = st.one_of(
    st.builds(results.Score, TEXT, st.just(results.ScoreStatus.SCORED), NUMBER, or_none(FLAG), TEXT, OBJECT),
    st.builds(
        results.Score,
        TEXT,
        st.sampled_from([results.ScoreStatus.SKIPPED, results.ScoreStatus.ERROR]),
        st.none(),
        or_none(FLAG),
        TEXT,
        OBJECT,
    ),
).map(lambda score: dataclasses.replace(score, message=score_message(score)))
RESULT = st.builds(
    results.RowResult,
    case_id=TEXT,
    case_index=SMALL,
    repeat=SMALL,
    category=TEXT,
    status=st.sampled_from(AgentStatus),
    passed=or_none(FLAG),
    scores=tuples_of(SCORE),
    latency_ms=or_none(NUMBER),
    message=TEXT,
    sequence=SMALL,
    response=or_none(RESPONSE),
    input=TEXT,
    references=tuples_of(TEXT),
    tags=tuples_of(TEXT),
    weight=NUMBER,
    expected=OBJECT,
)
METRIC_SUMMARY = st.builds(
    results.MetricSummary,
    TEXT,
    or_none(NUMBER),
    *[SMALL] * 6,
    or_none(NUMBER),
    or_none(FLAG),
    or_none(NUMBER),
    or_none(FLAG),
    st.sampled_from(results.ThresholdRule),
    OBJECT,
    SMALL,
    unit=TEXT,
    higher_is_better=FLAG,
    minimum=or_none(NUMBER),
    maximum=or_none(NUMBER),
)
GROUP = st.builds(
    results.GroupSummary, TEXT, SMALL, SMALL, SMALL, or_none(NUMBER), st.dictionaries(TEXT, or_none(NUMBER), max_size=3)
)
INTERVAL = or_none(st.tuples(NUMBER, NUMBER))
REPEATS = st.builds(
    results.RepeatSummary,
    SMALL,
    SMALL,
    SMALL,
    tuples_of(st.builds(results.RepeatRate, SMALL, or_none(NUMBER), INTERVAL, or_none(NUMBER), INTERVAL)),
    or_none(st.builds(results.RepeatVariance, NUMBER, NUMBER, NUMBER, or_none(NUMBER), TEXT)),
)
SUMMARY = st.builds(
    results.RunSummary,
    verdict=st.sampled_from(results.RunVerdict),
    exit_status=SMALL,
    reasons=tuples_of(TEXT),
    notes=tuples_of(TEXT),
    failed_criteria=tuples_of(TEXT),
    skipped_criteria=tuples_of(TEXT),
    pass_rate=or_none(NUMBER),
    passed_count=SMALL,
    decided_count=SMALL,
    metrics=tuples_of(METRIC_SUMMARY),
    latency=st.builds(results.LatencySummary, SMALL, *[or_none(NUMBER)] * 4, timeout_count=SMALL),
    gates=tuples_of(
        st.builds(
            results.GateResult,
            TEXT,
            st.sampled_from(results.GateOutcome),
            or_none(NUMBER),
            TEXT,
            or_none(FLAG),
            TEXT,
            source=st.sampled_from(results.GateSource),
        )
    ),
    categories=tuples_of(GROUP),
    tags=tuples_of(GROUP),
    repeats=or_none(REPEATS),
    weighted=or_none(st.builds(results.WeightedSummary, or_none(NUMBER), st.dictionaries(TEXT, NUMBER, max_size=3))),
    judging=or_none(
        st.builds(
            JudgingSummary,
            *[SMALL] * 7,
            cost_usd=or_none(NUMBER),
            saved_usd=or_none(NUMBER),
            unpriced_count=SMALL,
            fingerprints=tuples_of(TEXT),
        )
    ),
    agent_error_count=SMALL,
    max_agent_errors=NUMBER,
    max_metric_errors=NUMBER,
    left_out_count=SMALL,
    unused_approvals=tuples_of(st.builds(UnusedApproval, TEXT, SMALL, TEXT)),
)
DATASET = st.builds(results.DatasetRef, TEXT, TEXT, SMALL)
STORED_DATASET = st.builds(StoredDataset, TEXT, TEXT, SMALL, SMALL, MOMENT, MOMENT, tuples_of(TEXT), TEXT, SMALL)
RUN = st.builds(
    results.Run,
    run_id=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True),
    spec=SETTINGS,
    dataset=DATASET,
    state=st.sampled_from(results.RunState),
    state_message=TEXT,
    counts=st.builds(results.RunCounts, *[SMALL] * 5),
    created_at=MOMENT,
    started_at=st.just("") | MOMENT,
    ended_at=st.just("") | MOMENT,
    last_sequence=SMALL,
    summary=or_none(SUMMARY),
    assay_version=TEXT,
)
STATE_CHANGE = st.builds(results.StateChanged, SMALL, st.sampled_from(results.RunState), TEXT, MOMENT)


@given(REQUEST)
def test_questions_travel_whole(request: AgentRequest) -> None:
    """A question is the same after the wire; time limits are kept to the millisecond."""
    message = agent_pb2.AgentRequest.FromString(request_to_wire(request).SerializeToString())
    assert request_from_wire(message) == request


@given(RESPONSE)
def test_answers_travel_whole(response: AgentResponse) -> None:
    """An answer is the same after the wire, whatever is absent, 0 or empty in it."""
    message = agent_pb2.AgentResponse.FromString(response_to_wire(response).SerializeToString())
    assert response_from_wire(message) == response


@given(CASE)
def test_cases_travel_whole(case: Case) -> None:
    """A case is the same after the wire, its recorded answer included."""
    assert case_from_wire(case_pb2.Case.FromString(case_to_wire(case).SerializeToString())) == case


@given(st.builds(with_answers, CASE, st.lists(st.lists(TEXT, max_size=2), max_size=2)))
def test_cases_are_stored_whole(case: Case) -> None:
    """A case is the same after the store."""
    assert case_from_json(case_to_json(case)) == case


@given(SETTINGS)
def test_settings_travel_whole(expected: results.RunSpec) -> None:
    """What a run does is the same after the wire; no retries stay no retries."""
    assert (
        wire.SETTINGS.from_wire(spec_pb2.RunSpec.FromString(wire.SETTINGS.to_wire(expected).SerializeToString()))
        == expected
    )


@given(SETTINGS)
def test_settings_are_stored_whole(expected: results.RunSpec) -> None:
    """What a run does is the same after the store."""
    stored = json.loads(json.dumps(dataclasses.asdict(expected)))
    assert wire.SETTINGS.from_json(stored) == expected


@given(SUMMARY)
def test_summaries_are_stored_whole(summary: results.RunSummary) -> None:
    """A summary is the same after the store."""
    stored = json.loads(json.dumps(dataclasses.asdict(summary)))
    back = summary_wire.SUMMARY.from_json(stored)
    assert json.loads(json.dumps(dataclasses.asdict(back))) == stored
    assert back.judging == summary.judging


@given(RUN)
def test_runs_travel_whole(run: results.Run) -> None:
    """A run with its summary and gates is the same after the wire."""
    assert wire.RUN.from_wire(run_pb2.Run.FromString(wire.RUN.to_wire(run).SerializeToString())) == run


@given(RESULT)
def test_rows_travel_whole(result: results.RowResult) -> None:
    """A row is the same after the wire; its number travels with the event."""
    message = row_pb2.RowResult.FromString(result_to_wire(result).SerializeToString())
    assert result_from_wire(message, result.sequence) == result


@given(STATE_CHANGE | RESULT)
def test_events_travel_whole(event: results.StateChanged | results.RowResult) -> None:
    """An event is the same after the wire, whichever kind it is."""
    assert event_from_wire(run_pb2.RunEvent.FromString(event_to_wire(event).SerializeToString())) == event


@given(STORED_DATASET)
def test_datasets_travel_whole(dataset: StoredDataset) -> None:
    """A stored dataset is the same after the wire."""
    assert wire.DATASET.from_wire(wire.DATASET.to_wire(dataset)) == dataset


@pytest.mark.parametrize("value", [None, 0, 0.0, False, "", [], {}, [None], {"a": None}])
def test_absent_zero_and_empty_outputs_stay_apart(value: object) -> None:
    """Only None means that there is no output."""
    back = response_from_wire(response_to_wire(AgentResponse(output=value))).output
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("field", ["sql", "data_rows", "retrieved", "usage", "latency_ms", "reported_latency_ms",
                                   "time_to_first_token_ms"])  # fmt: skip
def test_absent_and_zero_fields_stay_apart(field: str) -> None:
    """None stays None, and the emptiest value that is not None stays as it is."""
    empty = {"sql": "", "retrieved": (), "usage": Usage()}.get(field, 0)
    for value in (None, empty):
        fields: dict[str, Any] = {field: value}
        response = AgentResponse(**fields)
        assert response_from_wire(response_to_wire(response)) == response


def test_an_empty_spec_gets_the_defaults_of_the_contract() -> None:
    """What a client leaves out is filled in as the contract says."""
    wanted = wire.SETTINGS.from_wire(spec_pb2.RunSpec(name="n"))
    assert (wanted.agent.timeout_s, wanted.agent.concurrency, wanted.agent.retries, wanted.repeats) == (30.0, 16, 2, 1)


def test_a_time_limit_below_a_millisecond_is_not_none_at_all() -> None:
    """The shortest limit on the wire is 1 ms: 0 would mean something else."""
    request = AgentRequest("r", "run", "c", "q", timeout_s=0.0001)
    assert request_to_wire(request).timeout_ms == 1


@pytest.mark.parametrize("text", ["[1]", "3", "null", "{", '{"a": NaN}', '{"a": 1e999}', '{"a":' + "[" * 100_000])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    """A foreign client's JSON text that is not an object is a problem of its field, which the caller reports."""
    with pytest.raises(DatasetError, match=r"variables_json: cannot be read: .*(JSON|Expecting|a number)"):
        case_from_wire(case_pb2.Case(case_id="c", turns=[case_pb2.Turn(input="q")], variables_json=text))


def test_zeros_of_a_case_are_not_what_is_absent() -> None:
    """A weight, a place and a threshold of 0 are the same after the wire and after the store."""
    case = Case("c", (Turn("q"),), weight=0.0, place=0, thresholds={"m": 0.0})
    assert case_from_wire(case_pb2.Case.FromString(case_to_wire(case).SerializeToString())) == case
    assert case_from_json(json.loads(json.dumps(case_to_json(case)))) == case


def test_each_text_of_a_case_that_cannot_be_read_is_named_by_its_field() -> None:
    """All of them at once, in whatever it lies; a field of a newer version is not read, and breaks nothing."""
    wrong = agent_pb2.AgentResponse(metadata_json="{")
    mappings = ["variables_json", "parameters_json", "expected_json", "human_labels_json", "metadata_json"]
    message = case_pb2.Case(
        case_id="c",
        turns=[
            case_pb2.Turn(),
            case_pb2.Turn(expected_tools=[case_pb2.ExpectedTool(), case_pb2.ExpectedTool(arguments_json="{")]),
        ],
        contexts=["x"],
        category="x",
        tags=["x"],
        choices=["x"],
        assertions=[case_pb2.Assertion(), case_pb2.Assertion(value_json="{")],
        thresholds={"m": 0.0},
        weight=0.0,
        verdicts=[case_pb2.RecordedVerdict(), case_pb2.RecordedVerdict(verdict_json="{")],
        place=0,
        recordings=[case_pb2.Recording(), case_pb2.Recording(turns=[agent_pb2.AgentResponse(), wrong])],
        approvals=[agent_pb2.Approval(approve=True), agent_pb2.Approval(), agent_pb2.Approval(edit_json="{")],
        **dict.fromkeys(mappings, "{"),
    )
    assert [field.name for field, _ in message.ListFields()] == [
        field.name for field in case_pb2.Case.DESCRIPTOR.fields
    ]
    of_a_newer_version = b"\xfa\x01\x01x"  # field 31, a text
    with pytest.raises(DatasetError) as caught:
        case_from_wire(case_pb2.Case.FromString(message.SerializeToString() + of_a_newer_version))
    assert {problem.field for problem in caught.value.problems} == {
        *mappings, "turns[1].expected_tools[1].arguments_json", "assertions[1].value_json", "verdicts[1].verdict_json",
        "recordings[1].turns[1]", "approvals[1]", "approvals[2]",
    }  # fmt: skip


def test_a_state_of_a_newer_version_does_not_break_reading() -> None:
    """Numbers that this version does not know are read as something, not refused."""
    message = agent_pb2.AgentResponse(status=99, text="t")  # type: ignore[arg-type]  # wrong on purpose
    assert response_from_wire(message).text == "t"
    assert wire.RUN.from_wire(run_pb2.Run(run_id="r", state=99)).state is results.RunState.PENDING  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("run_id", ["", "/tmp/x", "../x", "a/b", "a\\b", ".x", "-x", "a\nb", "a\n", "x" * 129, "é"])
def test_an_id_of_a_run_that_is_none_is_refused(run_id: str) -> None:
    """A client makes names of folders of ids: those of a server's runs and baselines have the form of ids."""
    for read in (
        lambda: wire.RUN.from_wire(run_pb2.Run(run_id=run_id)),
        lambda: wire.BASELINE.from_wire(comparison_pb2.Baseline(run_id=run_id)),
    ):
        with pytest.raises(SetupError, match="a run's id has 1 to 128 letters, digits") as caught:
            read()
        assert "\n" not in caught.value.message


def test_judgements_are_typed_on_the_wire() -> None:
    """Of a jury one judgement each, of turns with their index; the detail does not repeat them."""
    calls = (JudgementCall("http_429"), JudgementCall("replied", 10, 2, 0.5, 12.5, is_estimated=True))
    first = Judgement(
        "openai:m", "quality", JudgementStatus.VALID, "m-1", "f", reasoning="Right.", scores={"score": 4.0}, value=4.0,
        turn_index=0, check_index=1, is_cached=True, is_by_rule=True, is_batched=True, is_recorded=True,
        flags=("empty",), key="k", temperature=0.0, call_count=2, input_tokens=10, output_tokens=0, cost_usd=0.0,
        is_estimated=True, saved_tokens=7, saved_usd=0.1, refused_parameters=("schema",), calls=calls,
    )  # fmt: skip
    second = Judgement("openai:n", "quality", JudgementStatus.INVALID, reason="invalid_verdict", message="None.")
    judgements = (first, second, Judgement("", "", JudgementStatus.UNAVAILABLE))
    score = results.Score("quality", results.ScoreStatus.SCORED, 4.0, True, judgements=judgements)
    assert score_from_json(json.loads(json.dumps(score_to_json(score)))) == score
    row = results.RowResult("c", 0, 1, "", AgentStatus.SUCCESS, True, [score], 1.0, "")
    message = result_to_wire(row)
    assert message.scores[0].detail_json == ""
    assert (second.message, message.scores[0].judgements[1].HasField("value")) == ("None.", False)
    assert result_from_wire(message).scores[0].judgements == judgements


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (results.Score("m", results.ScoreStatus.SKIPPED, reason="no_reference"), "the case has no reference"),
        (results.Score("m", results.ScoreStatus.ERROR, reason="e", message="Own."), "Own."),
        (results.Score("m", results.ScoreStatus.SCORED, 0.5, False, detail={"threshold": 0.75}),
         "0.5 is below the threshold of 0.75"),
        (results.Score("m", results.ScoreStatus.SCORED, 0.9, True, detail={"threshold": 0.75}), ""),
    ],
)  # fmt: skip
def test_the_sentence_on_a_score_is_on_the_wire(score: results.Score, message: str) -> None:
    """A client in any language shows it as it is, and needs no table of reasons."""
    row = results.RowResult("c", 0, 1, "", AgentStatus.SUCCESS, True, [score], 1.0, "")
    assert result_to_wire(row).scores[0].message == message
