"""The first question of an agent over HTTP goes alone, and others wait for its reply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus, error_response
from assay_orchestrator.agents.dry_run import MAPPING, DryRun
from assay_orchestrator.agents.protocol import NotAskedError, UnmappedAgentError
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.case import Case

    Question = Callable[..., AgentRequest]

UNMAPPED = error_response(AgentErrorKind.MALFORMED, "agent.response.text (a) finds nothing", type=MAPPING)


class Holding:
    """An agent that answers when it is released, and counts who asked."""

    def __init__(self, response: AgentResponse) -> None:
        self.asked = 0
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self._response = response

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Answer once released."""
        self.asked += 1
        self.reached.set()
        await self.released.wait()
        return self._response

    async def aclose(self) -> None:
        """Nothing to let go of."""


async def first_of(agent: Holding, asking: RetryingAgent, question: AgentRequest, case: Case) -> asyncio.Task[object]:
    """Return the task of the first question, which is with the agent."""
    first = asyncio.create_task(asking.answer(question, case))
    await agent.reached.wait()
    return first


async def test_what_waits_is_not_asked_of_a_run_that_pauses(case: Case, question: Question) -> None:
    """When the run pauses during the first question, the waiting questions are not asked."""
    agent, pausing, looked = Holding(AgentResponse(text="a")), asyncio.Event(), []

    async def look() -> None:
        looked.append(agent.released.is_set())

    asking = RetryingAgent(agent, 0, pausing=pausing, dry_run=DryRun())
    first = await first_of(agent, asking, question(), case)
    waiting = [asyncio.create_task(asking.answer(question(), case, look)) for _ in range(3)]
    await asyncio.sleep(0)
    pausing.set()
    agent.released.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in outcomes] == [NotAskedError] * 3
    assert (await first, agent.asked, looked) == (AgentResponse(text="a"), 1, [])
    pausing.clear()
    await asking.answer(question(), case, look)
    assert (agent.asked, looked) == (2, [True])


async def test_the_shard_is_looked_at_after_the_wait(case: Case, question: Question) -> None:
    """After the wait the shard's owner is checked, so that a shard of another worker is not asked twice."""
    agent = Holding(AgentResponse(text="a"))

    async def lost() -> None:
        assert agent.released.is_set(), "before the first reply came"
        raise NotAskedError

    asking = RetryingAgent(agent, 0, dry_run=DryRun())
    first = await first_of(agent, asking, question(), case)
    second = asyncio.create_task(asking.answer(question(), case, lost))
    await asyncio.sleep(0)
    agent.released.set()
    with pytest.raises(NotAskedError):
        await second
    await first
    assert agent.asked == 1


async def test_a_first_reply_that_is_not_mapped_ends_all_that_wait(case: Case, question: Question) -> None:
    """If the first reply cannot be mapped, no waiting question is asked; in a resumed run it is an error of its row."""
    agent = Holding(UNMAPPED)
    asking = RetryingAgent(agent, 0, dry_run=DryRun())
    first = await first_of(agent, asking, question(), case)
    second = asyncio.create_task(asking.answer(question(), case))
    await asyncio.sleep(0)
    agent.released.set()
    for task in (first, second):
        with pytest.raises(UnmappedAgentError, match=r"Correct agent\.response"):
            await task
    assert agent.asked == 1
    assert await RetryingAgent(agent, 0, dry_run=DryRun(is_right=True)).answer(question(), case) == UNMAPPED


@pytest.mark.parametrize("status", [AgentStatus.SUCCESS, AgentStatus.OUT_OF_SCOPE, AgentStatus.INTERRUPTED])
def test_a_reply_that_was_mapped_shows_that_the_mapping_is_right(status: AgentStatus) -> None:
    """After one mapped reply, even an interrupted one, a reply that cannot be mapped is an error of its row."""
    dry_run = DryRun()
    dry_run.check(AgentResponse(status, "a"))
    assert dry_run.check(UNMAPPED) is UNMAPPED
    with pytest.raises(UnmappedAgentError):
        DryRun().check(UNMAPPED)
