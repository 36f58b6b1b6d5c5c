"""Asking agents of frameworks in a test: a module with the agent, opened as a run opens it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from assay.agent_host.answers.answer_message import answer_to_wire
from assay.agent_host.user_code import open_caller
from assay.model.answers.agent_response import AgentRequest, AgentResponse
from assay.model.run import AgentSpec
from assay.wire.agent import response_from_wire

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.protocol import Caller


def opened(folder: Path, adapter: str, source: str, **options: Any) -> Caller:
    """Return what asks the object `agent` of a module.

    Args:
        folder: Where the module is written.
        adapter: The adapter.
        source: The module.
        options: Of the adapter.
    """
    (folder / "agent.py").write_text(textwrap.dedent(source), encoding="utf-8")
    caller = open_caller(AgentSpec(adapter, "agent.py:agent", options=options), folder)
    assert caller is not None
    return caller


async def ask(caller: Caller, text: str, session: str = "run/0/0", **fields: Any) -> AgentResponse:
    """Return the answer to a question, as the orchestrator receives it."""
    request = AgentRequest(f"{session}/{text}", "run", "case", text, session_id=session, **fields)
    return response_from_wire(answer_to_wire(await caller.call(request)))
