"""Converters derived from fields: names and forms that differ, what is absent, and fields without a counterpart."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent.v1 import agent_pb2
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentResponse, MalformedAnswerError
from assay.model.run import AgentSpec, CaseSelection, PauseCause, RunCounts, RunState
from assay.v1 import case_pb2, run_pb2, spec_pb2, summary_pb2
from assay.wire.agent import response_to_wire, split_by_size
from assay.wire.case import case_from_wire, case_to_wire
from assay.wire.converter import Converter, EnumConverter, WordConverter
from assay.wire.hosted import AGENT
from assay.wire.run import RUN, SETTINGS
from assay.wire.summary import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_a_name_may_say_more_about_its_form() -> None:
    """Seconds travel as milliseconds, mappings as JSON texts, counts with a suffix."""
    message = AGENT.to_wire(AgentSpec("http", timeout_s=1.5, options={"url": "http://x"}))
    assert (message.timeout_ms, message.options_json) == (1500, '{"url": "http://x"}')
    assert AGENT.from_wire(message) == AgentSpec("http", timeout_s=1.5, options={"url": "http://x"})


def test_what_is_absent_is_the_default() -> None:
    """0 is a value where the message can tell it from nothing."""
    assert AGENT.from_wire(spec_pb2.AgentSpec(adapter="a")) == AgentSpec("a")
    assert AGENT.from_wire(spec_pb2.AgentSpec(adapter="a", retries=0)).retries == 0
    assert SETTINGS.from_wire(spec_pb2.RunSpec(name="n")).agent == AgentSpec("")
    assert Converter(CaseSelection, spec_pb2.CaseSelection).from_wire(
        spec_pb2.CaseSelection(total_count=0)
    ) == CaseSelection(total_count=0)
    assert (RUN.from_wire(run_pb2.Run(run_id="r")).summary, RUN.from_wire(run_pb2.Run(run_id="r")).created_at) == (
        None,
        "",
    )


def test_members_of_enums_that_this_version_does_not_know() -> None:
    """They stand for what their converter says."""
    unknown: Any = 99
    assert RUN.from_wire(run_pb2.Run(run_id="r", state=unknown, pause_cause=unknown)).pause_cause is None
    assert RUN.from_wire(run_pb2.Run(run_id="r", pause_cause=run_pb2.PAUSE_CAUSE_JUDGE)).pause_cause is PauseCause.JUDGE
    with pytest.raises(ValueError, match="no value defined for name"):
        EnumConverter(RunState, run_pb2.PauseCause, unknown=None)


def test_a_field_without_a_counterpart_is_found_at_import() -> None:
    """Whoever adds a field on one side cannot forget the other."""

    @dataclass(frozen=True)
    class More(RunCounts):
        skipped: int = 0

    @dataclass(frozen=True)
    class Fewer:
        total: int = 0

    with pytest.raises(TypeError, match=r"More\.skipped has no counterpart in assay\.v1\.RunCounts"):
        Converter(More, run_pb2.RunCounts)
    with pytest.raises(
        TypeError, match=r"RunCounts has more than Fewer: \['agent_error_count', 'answered_count', 'failed_count', "
    ):
        Converter(Fewer, run_pb2.RunCounts)


def test_stored_json_of_other_versions_is_read() -> None:
    """Keys that are missing are defaults; keys of a later version are left alone."""

    @dataclass(frozen=True)
    class Agent:
        adapter: str
        target: str = ""
        timeout_s: float = 30.0
        concurrency: int = 16
        retries: int = 2
        options: Mapping[str, Any] = field(default_factory=dict)
        hosted_by: str = ""

    agents = Converter(Agent, spec_pb2.AgentSpec)
    assert agents.from_json({"adapter": "a", "later": 1}) == Agent("a")
    found = SUMMARY.from_wire(summary_pb2.RunSummary(metrics=[summary_pb2.MetricSummary(metric="m")]))
    again = SUMMARY.from_json(dataclasses.asdict(found))
    assert again == found
    assert again.metrics[0].rule == "at_least"


@pytest.mark.parametrize("output", [float("nan"), {"a": [float("inf")]}, {"a": object()}])
def test_what_json_cannot_hold_is_refused(output: object) -> None:
    """NaN, infinity and foreign objects in an answer's output are an error that names the field."""
    with pytest.raises(MalformedAnswerError, match="output"):
        response_to_wire(AgentResponse(output=output))


def test_half_a_character_in_json_does_not_break_the_next_message() -> None:
    r"""An escape such as \ud800 is valid JSON but not valid text: it is replaced when it is read."""
    case = case_from_wire(case_pb2.Case(case_id="c", variables_json=r'{"a": "x\ud800y", "b": "\ud83d\ude00"}'))
    assert case.variables == {"a": "x\ufffdy", "b": "\U0001f600"}
    assert case_from_wire(case_to_wire(case)) == case


def test_batches_keep_order_and_size() -> None:
    """Messages are split so that each list fits; an item that is too large travels alone."""
    messages = [agent_pb2.AgentResponse(text="x" * size) for size in (40, 40, 40, 500, 10)]
    batches = [[len(message.text) for message in batch] for batch in split_by_size(messages, 100)]
    assert batches == [[40, 40], [40], [500], [10]]


def test_an_unknown_word_is_refused_with_those_that_there_are() -> None:
    """It would otherwise be sent as not set, and mean the default."""
    words = WordConverter(spec_pb2.StoppingRule, ("always-valid", "five-looks"))
    assert words.from_wire(words.to_wire("five-looks")) == "five-looks"
    with pytest.raises(InvalidInputError, match="must be one of always-valid, five-looks, not 'often'"):
        words.to_wire("often")
