"""Which failures may pass when the same question is asked again: one answer for agents of every kind and for judges."""

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
        "pydantic_ai.exceptions.UnexpectedModelBehavior",  # after pydantic-ai's own retries; refusals are of this kind
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
        # Mistakes in the code of an agent.
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
"""Errors of the agent's code: the same question raises them again."""


def is_retryable_status(status: int) -> bool:
    """Whether another attempt may help after a status of HTTP."""
    return status in _RETRYABLE_STATUSES or status >= 500


def is_hopeless_code(code: object) -> bool:
    """Whether a provider's code says that no attempt helps before a bill is paid."""
    return isinstance(code, str) and code in _HOPELESS_CODES


def http_status_of(problem: BaseException) -> int | None:
    """Return the status of HTTP, 400 to 599, with which a service refused; None for other exceptions.

    Packages of providers and of HTTP keep it as `status_code`, `code` or `status`, or at their `response`.
    """
    response = getattr(problem, "response", None)
    for holder, name in ((problem, "status_code"), (problem, "code"), (problem, "status"), (response, "status_code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return int(status)
    return None


def may_pass(problem: BaseException) -> bool:
    """Whether the same question may be answered when it is asked again, by what its agent raised.

    Limits, guardrails, refusals, errors of the agent's code and statuses such as 400, 401, 403, 404 and 422 come back,
    at full price. Where an agent raises an error of its own in place of such an exception, `raise … from` shows it.
    """
    if not isinstance(problem, Exception) or isinstance(problem, _DETERMINISTIC):
        return False
    if isinstance(problem, ExceptionGroup):
        return any(map(may_pass, problem.exceptions))
    for one in _chain(problem):
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(one).__mro__}
        if names & _FINAL_EXCEPTIONS or is_hopeless_code(getattr(one, "code", None)):
            return False
        if (status := http_status_of(one)) is not None:
            return is_retryable_status(status)
    return True


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what caused it, each once."""
    seen: list[BaseException] = []
    one: BaseException | None = problem
    while one is not None and all(one is not other for other in seen):
        seen.append(one)
        yield one
        one = one.__cause__
