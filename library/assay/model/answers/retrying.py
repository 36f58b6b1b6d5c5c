"""Which failures a retry may cure: the same rules for agents of every kind and for judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_HOPELESS_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_FINAL_EXCEPTIONS = frozenset(
    {
        # Limits of turns, requests and tokens.
        "agents.exceptions.MaxTurnsExceeded",
        "google.adk.agents.invocation_context.LlmCallsLimitExceededError",
        "langchain.agents.middleware.model_call_limit.ModelCallLimitExceededError",
        "langchain.agents.middleware.tool_call_limit.ToolCallLimitExceededError",
        "openai.LengthFinishReasonError",
        "pydantic_ai.exceptions.ModelContextWindowExceededError",
        "pydantic_ai.exceptions.ModelQuotaExceededError",
        "pydantic_ai.exceptions.UnexpectedModelBehavior",  # after pydantic-ai's own retries; refusals are of this type
        "pydantic_ai.exceptions.UsageLimitExceeded",
        # Guardrails.
        "agents.exceptions.InputGuardrailTripwireTriggered",
        "agents.exceptions.OutputGuardrailTripwireTriggered",
        "agents.exceptions.ToolInputGuardrailTripwireTriggered",
        "agents.exceptions.ToolOutputGuardrailTripwireTriggered",
        "langchain.agents.middleware._redaction.PIIDetectionError",
        # Refusals.
        "agents.exceptions.ModelRefusalError",
        "openai.ContentFilterFinishReasonError",
        # Mistakes in the agent's code.
        "agents.exceptions.UserError",
        "langgraph.errors.EmptyInputError",
        "langgraph.errors.InvalidUpdateError",
        "pydantic_ai.exceptions.UserError",
        "pydantic_core._pydantic_core.PydanticSerializationError",
    }
)
"""Exceptions that frameworks and providers' packages raise again for the same question, by module and name."""
_DETERMINISTIC = (TypeError, LookupError, AttributeError, NameError, ImportError, SyntaxError, NotImplementedError,
                  AssertionError, ArithmeticError, RecursionError)  # fmt: skip
"""Errors of the agent's code, which the same question raises again."""


def is_retryable_status(status: int) -> bool:
    """Whether a retry may help after an HTTP status."""
    return status in _RETRYABLE_STATUSES or status >= 500


def is_hopeless_code(code: object) -> bool:
    """Whether a provider's code means that no retry helps until a bill is paid."""
    return isinstance(code, str) and code in _HOPELESS_CODES


def http_status_of(problem: BaseException) -> int | None:
    """Return the HTTP status, 400 to 599, with which a service refused; None for other exceptions.

    Packages of providers and HTTP clients store it as `status_code`, `code` or `status`, or on their `response`.
    """
    response = getattr(problem, "response", None)
    for holder, name in ((problem, "status_code"), (problem, "code"), (problem, "status"), (response, "status_code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return int(status)
    return None


def may_pass(problem: BaseException) -> bool:
    """Return whether a retry may succeed after this exception of the agent.

    Limits, guardrails, refusals, errors in the agent's code and statuses such as 400, 401, 403, 404 and 422 come back,
    at full price. If an agent replaces such an exception by its own, `raise … from` preserves the cause.
    """
    if not isinstance(problem, Exception) or isinstance(problem, _DETERMINISTIC):
        return False
    if isinstance(problem, ExceptionGroup):
        return any(map(may_pass, problem.exceptions))
    for link in _chain(problem):
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(link).__mro__}
        if names & _FINAL_EXCEPTIONS or is_hopeless_code(getattr(link, "code", None)):
            return False
        if (status := http_status_of(link)) is not None:
            return is_retryable_status(status)
    return True


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes without repeats."""
    seen: list[BaseException] = []
    link: BaseException | None = problem
    while link is not None and all(link is not earlier for earlier in seen):
        seen.append(link)
        yield link
        link = link.__cause__
