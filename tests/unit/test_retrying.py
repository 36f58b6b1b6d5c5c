"""What is asked again: of the exceptions of every package, those that may pass, decided in one place."""

from __future__ import annotations

import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from assay.agent_host.failures import Failures
from assay.model.answers.agent_response import AgentErrorKind
from assay.model.answers.retrying import http_status_of, may_pass


def raised(name: str, *bases: type[Exception], **fields: Any) -> Exception:
    """Return an exception of a class such as `agents.exceptions.MaxTurnsExceeded`, with fields."""
    module, _, called = name.rpartition(".")
    kind = type(called, bases or (Exception,), {"__module__": module})
    found: Exception = kind("it said no")
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def http_error(status: int) -> Exception:
    """Return an exception as httpx and requests raise it for a status."""
    return raised("httpx.HTTPStatusError", response=SimpleNamespace(status_code=status))


def caused(problem: Exception, cause: BaseException) -> Exception:
    """Return an exception that was raised from another one."""
    problem.__cause__ = cause
    return problem


NEVER = [
    raised("agents.exceptions.MaxTurnsExceeded"),
    raised("agents.exceptions.InputGuardrailTripwireTriggered"),
    raised("agents.exceptions.ModelRefusalError"),
    raised("pydantic_ai.exceptions.UsageLimitExceeded"),
    raised("pydantic_ai.exceptions.UnexpectedModelBehavior"),
    raised("google.adk.agents.invocation_context.LlmCallsLimitExceededError"),
    raised("langgraph.errors.GraphRecursionError", RecursionError),
    raised("a.team.TooManyTurns", type(raised("agents.exceptions.MaxTurnsExceeded"))),
    KeyError("rows"),
    TypeError("agent() takes 1 argument"),
    raised("openai.RateLimitError", status_code=429, code="insufficient_quota"),
    *(raised("openai.APIStatusError", status_code=status) for status in (400, 401, 403, 404, 413, 422)),
    raised("google.genai.errors.ClientError", code=400, status="INVALID_ARGUMENT"),
    raised("aiohttp.ClientResponseError", status=401),
    *map(http_error, (400, 401, 403, 404, 422)),
    urllib.error.HTTPError("http://127.0.0.1/", 404, "not found", Message(), None),
    caused(RuntimeError("the model failed"), http_error(401)),
    caused(RuntimeError("gave up"), caused(ValueError("so did I"), raised("agents.exceptions.MaxTurnsExceeded"))),
    ExceptionGroup("both", [http_error(401), http_error(422)]),
]
MAYBE = [
    RuntimeError("the index is busy"),
    ConnectionError("reset"),
    TimeoutError("late"),
    caused(TimeoutError("late"), BaseException()),  # asyncio.timeout raises it from a CancelledError
    caused(ValueError("no JSON in the reply"), KeyError("rows")),
    raised("agents.exceptions.ModelBehaviorError"),
    *(raised("openai.APIStatusError", status_code=status) for status in (408, 409, 429, 500, 503, 529)),
    http_error(502),
    raised("a.tool.Failed", code=7, status="done"),
    ExceptionGroup("one may pass", [http_error(401), http_error(503)]),
]


@pytest.mark.parametrize("problem", NEVER, ids=repr)
def test_what_comes_back_is_not_asked_again(problem: Exception) -> None:
    """Limits, guardrails, refusals, the agent's own errors and statuses that say no, wrapped or not."""
    assert not may_pass(problem)
    error = Failures().of(problem).error
    assert error is not None
    assert not error.retryable


@pytest.mark.parametrize("problem", MAYBE, ids=repr)
def test_what_may_pass_is_asked_again(problem: Exception) -> None:
    """Outages, throttling and odd replies."""
    assert may_pass(problem)
    error = Failures().of(problem).error
    assert error is not None
    assert error.retryable


def test_exceptions_that_caused_each_other_are_seen_once() -> None:
    """A chain that leads back to itself ends."""
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert may_pass(first)


def test_a_status_is_that_of_the_service() -> None:
    """Kind and status stand in the error, for each package's way of keeping it; other numbers are none."""
    error = Failures().of(http_error(422)).error
    assert error is not None
    assert (error.kind, error.http_status, error.type) == (AgentErrorKind.HTTP_STATUS, 422, "HTTPStatusError")
    assert http_status_of(raised("a.tool.Failed", code=7)) is None
    assert http_status_of(raised("a.tool.Failed", status=True, status_code="404")) is None
