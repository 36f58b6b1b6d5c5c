"""Replayed answers, cancelled questions, and which adapter a run gets."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, error_response
from assay.model.run import AgentSpec
from assay_orchestrator.agents import build_agent
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.hosted import HostedAgent
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.case import Case

    Question = Callable[..., AgentRequest]


class Cancelled:
    """An agent whose every question is cancelled."""

    def __init__(self) -> None:
        self.asked = 0

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Raise."""
        self.asked += 1
        raise asyncio.CancelledError

    async def aclose(self) -> None:
        """Nothing to let go of."""


async def test_a_cancelled_question_is_not_tried_again(case: Case, question: Question) -> None:
    """A cancelled question is not retried."""
    cancelled = Cancelled()
    with pytest.raises(asyncio.CancelledError):
        await RetryingAgent(cancelled, 3).answer(question(), case)
    assert cancelled.asked == 1


class Answering:
    """An agent that fails as often as it is to, and then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Answer."""
        self.failures -= 1
        if self.failures >= 0:
            return error_response(AgentErrorKind.TIMEOUT, "late", retryable=True)
        return AgentResponse(text="a", cold=request.input == "cold")

    async def aclose(self) -> None:
        """Nothing to let go of."""


@pytest.mark.parametrize(
    ("failures", "marks_cold", "marks"),
    [(0, True, [True, False]), (1, True, [False, False]), (0, False, [False, False])],
)
async def test_the_first_attempt_is_cold(
    case: Case, question: Question, failures: int, marks_cold: bool, marks: list[bool]
) -> None:
    """The first answer of a run is marked cold; hosts mark their own, and an agent's own mark stays."""

    async def wait(seconds: float) -> None:
        """Wait no time."""

    agent = RetryingAgent(Answering(failures), 2, marks_cold=marks_cold, sleep=wait)
    assert [(await agent.answer(question(), case)).cold for _ in range(2)] == marks
    assert (await agent.answer(question(input="cold"), case)).cold


async def test_a_recorded_answer_is_replayed_as_it_is(case: Case, question: Question) -> None:
    """Replay keeps every field, latency included; a case without a recorded answer is an error."""
    recorded = AgentResponse(text="a", latency_ms=12.5, retrieved=())
    agent = ReplayAgent()
    assert await agent.answer(question(), dataclasses.replace(case, recordings=((recorded,),))) is recorded
    missing = await agent.answer(question(), case)
    assert missing.error is not None
    assert (missing.error.kind, missing.error.retryable) == (AgentErrorKind.NOT_RECORDED, False)
    assert case.case_id in missing.error.message


async def test_each_repeat_replays_its_own_answer(case: Case, question: Question) -> None:
    """Each repeat replays its own recorded answer; a single answer serves all repeats; too few answers are an error."""
    first, second = AgentResponse(text="a"), AgentResponse(text="b")
    agent = ReplayAgent()
    several = dataclasses.replace(case, recordings=((first,), (second,)))
    asked = [dataclasses.replace(question(), repeat=repeat) for repeat in range(1, 4)]
    assert [await agent.answer(one, several) for one in asked[:2]] == [first, second]
    missing = await agent.answer(asked[2], several)
    assert missing.error is not None
    assert "repeat 3" in missing.error.message
    single = dataclasses.replace(case, recordings=((first,),))
    assert [await agent.answer(one, single) for one in asked] == [first] * 3


async def test_each_adapter_is_built(case: Case, question: Question) -> None:
    """`python` asks clients, `replay` reads the dataset, others call an allowed host; other hosts are refused."""

    def build(adapter: str, target: str = "", hosted: HostedAgent | None = None) -> RetryingAgent:
        options = {"app_name": "a"} if adapter == "adk" else {}
        settings = AgentSpec(adapter, target, options=options)
        return build_agent(settings, AgentAccess(["*.example"], ()), hosted=hosted)

    recorded = AgentResponse(text="a")
    assert await build("replay").answer(question(), dataclasses.replace(case, recordings=((recorded,),))) == recorded
    hosted = HostedAgent()
    hosted.hold()
    with pytest.raises(NotAskedError):
        await build("python", "m:f", hosted).answer(question(), case)
    for adapter in ("http", "a2a", "adk"):
        await build(adapter, "https://a.example/ask").aclose()
        with pytest.raises(InvalidInputError, match=r"other\.test"):
            build(adapter, "http://other.test/ask")
