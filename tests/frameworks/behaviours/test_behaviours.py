"""Every behaviour of agents in every framework, each read with the one result that is expected of it."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.asking import ask, opened
from tests.frameworks.behaviours.behaviour import Agent, Lacks, expected, read
from tests.frameworks.behaviours.behaviours import BEHAVIOURS

from assay.model.agent_request import Message

if TYPE_CHECKING:
    from pathlib import Path

    from tests.frameworks.behaviours.behaviour import Behaviour

    from assay.agent_host.protocol import Caller

pytestmark = pytest.mark.frameworks

FRAMEWORKS = {
    name: importlib.import_module(f"tests.frameworks.behaviours.{name}")
    for name in ("adk", "langgraph", "openai_agents", "pydantic_ai")
}


def agent_of(framework: str, behaviour: str) -> Agent:
    """Return the agent of a behaviour; a framework that lacks the behaviour skips the test and says why."""
    found: Agent | Lacks | None = FRAMEWORKS[framework].AGENTS.get(behaviour)
    assert found is not None, f"{framework} has no {behaviour}: add an Agent, or Lacks with the reason"
    if isinstance(found, Lacks):
        pytest.skip(f"{framework} lacks {behaviour}: {found.reason}")
    return found


async def conversation(caller: Caller, behaviour: Behaviour, agent: Agent, session: str) -> list[dict[str, Any]]:
    """Return what is read of the answers to all turns of a behaviour."""
    answers: list[dict[str, Any]] = []
    history: tuple[Message, ...] = ()
    approved = {"approvals": behaviour.approvals} if behaviour.approvals else {}
    for index, turn in enumerate(behaviour.turns):
        answer = await ask(
            caller,
            turn.question,
            session,
            turn_index=index,
            turn_count=len(behaviour.turns),
            history=history,
            timeout_s=turn.timeout_s,
            variables=dict(turn.variables),
            **approved,
        )
        answers.append(read(answer, turn, agent.names))
        history += (Message("user", turn.question), Message("assistant", answer.text))
    return answers


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_a_behaviour_is_read_alike_in_every_framework(tmp_path: Path, framework: str, name: str) -> None:
    """Two conversations at once, which must not meet, each with the expected answers; then the agent is closed."""
    agent, behaviour = agent_of(framework, name), BEHAVIOURS[name]
    source = f"{FRAMEWORKS[framework].PRELUDE}\n{agent.source}"
    caller = opened(tmp_path, framework, source, **agent.options)
    wanted = [expected(turn) for turn in behaviour.turns]
    try:
        for answers in await asyncio.gather(
            *(conversation(caller, behaviour, agent, f"run/{case}/0") for case in range(2))
        ):
            assert answers == wanted
    finally:
        await caller.aclose()
    log = tmp_path / "log"
    assert (log.read_text().split() if log.exists() else []) == list(behaviour.logged)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_has_known_behaviours_alone(framework: str) -> None:
    """An agent for a behaviour that nothing expects would never run."""
    assert not set(FRAMEWORKS[framework].AGENTS) - set(BEHAVIOURS)
