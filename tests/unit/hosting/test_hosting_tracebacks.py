"""The traceback of an agent's exception: the agent's own frames, its causes and groups, and no secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import assay
from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import (
    AgentError,
    AgentRequest,
    AgentResponse,
    ToolCall,
    response_from_json,
    response_to_json,
)
from assay.model.answers.response_limits import MAX_TRACEBACK_CHARS
from assay.wire.agent import response_from_wire, response_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

OWN = str(Path(assay.__file__).parent)


async def error_of(agent: Callable[..., Any]) -> AgentError:
    """Return the error of one call, as it arrives at the orchestrator."""
    caller = AgentCaller(agent)
    try:
        response = await caller.call(AgentRequest(request_id="r", run_id="run", case_id="c", input="q"))
    finally:
        await caller.aclose()
    received = response_from_json(response_to_json(response_from_wire(response_to_wire(response))))
    assert received.error is not None
    return received.error


def look_up(key: str) -> str:
    return {"a": "b"}[key]


def raises(question: str) -> str:
    return look_up(question)


async def raises_later(question: str) -> str:
    await asyncio.sleep(0)
    return look_up(question)


async def raises_in_a_stream(question: str) -> AsyncIterator[str]:
    yield "a"
    yield look_up(question)


async def raises_in_a_coroutine_of_a_function(question: str) -> str:
    return await raises_later(question)


@pytest.mark.parametrize(
    "agent",
    [raises, raises_later, raises_in_a_stream, lambda question: raises_in_a_coroutine_of_a_function(question)],
    ids=["sync", "async", "stream", "awaitable"],
)
async def test_a_traceback_has_the_agents_frames_alone(agent: Callable[..., Any]) -> None:
    """The traceback runs from the agent to the raising line, with source lines and no frames of Assay."""
    traceback = (await error_of(agent)).traceback
    assert traceback.startswith("Traceback (most recent call last):\n  File ")
    assert 'in look_up\n    return {"a": "b"}[key]' in traceback
    assert traceback.endswith("KeyError: 'q'")
    assert __file__ in traceback
    assert f"{OWN}/" not in traceback


async def test_causes_and_groups_are_told() -> None:
    """The cause precedes the exception; a group lists its exceptions, and its message names the first."""

    async def agent(question: str) -> str:
        try:
            return look_up(question)
        except KeyError as problem:
            raise ExceptionGroup("two things", [ValueError("first"), OSError("second")]) from problem

    error = await error_of(agent)
    assert error.message == "ExceptionGroup: two things (2 sub-exceptions): ValueError: first"
    parts = ["KeyError: 'q'", "direct cause of the following", "ExceptionGroup: two things", "ValueError: first"]
    places = [error.traceback.index(part) for part in [*parts, "OSError: second"]]
    assert places == sorted(places)


async def test_keys_of_the_environment_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of variables named like keys are removed from message and traceback; other values stay."""
    monkeypatch.setenv("SOME_API_KEY", "sk-abcdef123456")
    monkeypatch.setenv("SOME_MODE", "production-mode")

    def agent(question: str) -> str:
        raise RuntimeError("sk-abcdef123456 is refused in production-mode")

    error = await error_of(agent)
    assert error.message == "RuntimeError: [redacted] is refused in production-mode"
    assert "sk-abcdef" not in error.traceback
    assert error.traceback.endswith("RuntimeError: [redacted] is refused in production-mode")


async def test_a_traceback_is_bounded() -> None:
    """Endless recursion and endless messages keep their beginning and their end, where the error is."""

    def agent(question: str) -> str:
        if len(question) > 300:
            raise ValueError("\n".join(["x" * 5_000] * 100 + ["the end"]))
        return agent(question + "q")

    traceback = (await error_of(agent)).traceback
    assert len(traceback) <= MAX_TRACEBACK_CHARS
    assert traceback.startswith("Traceback")
    assert traceback.endswith("the end")
    received = response_from_json({"error": {"message": "m", "traceback": "y" * 20_000}}).error
    assert received is not None
    assert len(received.traceback) == MAX_TRACEBACK_CHARS


async def test_an_exception_that_cannot_be_shown_is_still_an_answer() -> None:
    """A call has an outcome even if reading its exception raises."""

    class HostileError(Exception):
        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]  # whatever an agent's author does
            raise SystemExit

        def __str__(self) -> str:
            raise RuntimeError("no text")

    async def agent(question: str) -> str:
        raise HostileError

    error = await error_of(agent)
    assert (error.message, error.traceback) == ("HostileError: (its message cannot be shown)", "")


async def test_what_assay_raises_has_no_traceback() -> None:
    """An answer that cannot be read has a message and no traceback."""
    error = await error_of(lambda question: 3)
    assert (error.kind.value, error.traceback) == ("malformed", "")


async def test_keys_in_errors_of_tools_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are removed from errors of tools, which are stored; results of successful calls stay."""
    monkeypatch.setenv("SERVICE_API_KEY", "sk-verysecret-0123456789")
    text = '"401 for key=sk-verysecret-0123456789"'

    def answer(question: str) -> AgentResponse:
        calls = tuple(ToolCall("search", "1", "{}", text, is_error) for is_error in (True, False))
        return AgentResponse(text="a", tool_calls=calls)

    response = await AgentCaller(answer).call(AgentRequest("r", "run", "c", "q"))
    failed, succeeded = response.tool_calls or ()
    assert (failed.result_json, succeeded.result_json) == ('"401 for key=[redacted]"', text)
