"""Every behaviour of agents in every framework, each read with the one result that is expected of it."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.asking import opened
from tests.frameworks.behaviours.behaviour import Agent, Lacks, expected, seen
from tests.frameworks.behaviours.behaviours import BEHAVIOURS
from tests.frameworks.ways import ways_to

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_request import AgentRequest, Message
from assay.model.answers.approvals import read_approvals, remaining_approvals

if TYPE_CHECKING:
    from pathlib import Path

    from tests.frameworks.behaviours.behaviour import Behaviour
    from tests.frameworks.ways import Ask

    from assay.model.answers.agent_response import AgentResponse

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),  # of ADK's AgentTool itself
]

FRAMEWORKS = {
    name: importlib.import_module(f"tests.frameworks.behaviours.{name}")
    for name in ("adk", "langgraph", "openai_agents", "pydantic_ai")
}

ALL = ("status", "text", "calls", "tokens", "output", "waits", "failure", "says")
KNOWN = {"in process": ALL, "grpc": ALL, "a2a": ("status", "calls", "tokens", "waits")}
"""What each way to an agent tells of a failed answer: a task of A2A that failed says why in words alone."""


def agent_of(framework: str, behaviour: str) -> Agent:
    """Return the agent of a behaviour; a framework that lacks the behaviour skips the test and says why."""
    found: Agent | Lacks | None = FRAMEWORKS[framework].AGENTS.get(behaviour)
    assert found is not None, f"{framework} has no {behaviour}: add an Agent, or Lacks with the reason"
    if isinstance(found, Lacks):
        pytest.skip(f"{framework} lacks {behaviour}: {found.reason}")
    return found


async def conversation(ask: Ask, behaviour: Behaviour, agent: Agent, session: str) -> list[AgentResponse]:
    """Return the answers to all turns of a behaviour."""
    answers: list[AgentResponse] = []
    history: tuple[Message, ...] = ()
    for index, turn in enumerate(behaviour.turns):
        name = f"{session}/{index}"
        fields: dict[str, Any] = {
            "turn_index": index,
            "turn_count": len(behaviour.turns),
            "history": history,
            "timeout_s": turn.timeout_s,
            "variables": dict(turn.variables),
        }
        if behaviour.approvals:
            approvals, problems = read_approvals(behaviour.approvals, times=1)
            assert not problems
            fields["approvals"] = remaining_approvals(approvals, [each for one in answers for each in one.interrupts])
        answers.append(
            await ask(
                AgentRequest(
                    f"{name}#0", "run", "case", turn.question, session_id=session, idempotency_key=name, **fields
                )
            )
        )
        history += (Message("user", turn.question), Message("assistant", answers[-1].text))
    return answers


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_a_behaviour_is_read_alike_in_every_framework(tmp_path: Path, framework: str, name: str) -> None:
    """In process, over gRPC and over A2A, in conversations at once, which must not meet; then the agent is closed."""
    agent, behaviour = agent_of(framework, name), BEHAVIOURS[name]
    source = f"{FRAMEWORKS[framework].PRELUDE}\n{agent.source}"
    caller = opened(tmp_path, framework, source, **agent.options)
    assert isinstance(caller, AgentCaller)
    try:
        async with ways_to(caller, behaviour.turns[0].timeout_s) as ways:
            conversations = (conversation(ask, behaviour, agent, f"run/{way}/0") for way, ask in ways.items())
            found = dict(zip(ways, await asyncio.gather(*conversations), strict=True))
            count = len(ways)
    finally:
        await caller.aclose()
    for way, answers in found.items():
        for turn, answer in zip(behaviour.turns, answers, strict=True):
            known = KNOWN[way] if answer.is_failed else ALL
            wanted, read = expected(turn), seen(answer, turn, agent.names)
            assert {name: read[name] for name in known} == {name: wanted[name] for name in known}, way
    times = {"": 0, "run": 1, "case": count}[behaviour.opened]
    log = tmp_path / "log"
    assert sorted(log.read_text().split() if log.exists() else []) == ["closed"] * times + ["opened"] * times


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_has_known_behaviours_alone(framework: str) -> None:
    """An agent for a behaviour that nothing expects would never run."""
    assert not set(FRAMEWORKS[framework].AGENTS) - set(BEHAVIOURS)
