"""The argument of an agent function: the request, or only its text."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_request import AgentRequest

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_PARAMETERS = ("question", "query", "prompt", "input", "text")
"""Names of unannotated parameters that receive the text."""

_TEXT_TYPES = (str, "str", str | None, "str | None", "Optional[str]")
_NO_TYPES = (inspect.Parameter.empty, Any, "Any", object, "object")
_FIELDS = frozenset(AgentRequest.__slots__)


def receives_text(agent: Callable[..., Any]) -> bool:
    """Return whether an agent is called with the request's text instead of the request.

    That is the case if its first parameter is annotated `str`, or has no annotation and a name in `TEXT_PARAMETERS`.
    """
    try:
        parameters = list(inspect.signature(agent).parameters.values())
    except (TypeError, ValueError):
        return False  # a builtin without a signature
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return False
    first = parameters[0]
    kind = _plain(first.annotation)
    return kind in _TEXT_TYPES or (kind in _NO_TYPES and first.name in TEXT_PARAMETERS)


def is_text_type(annotation: object) -> bool:
    """Return whether a parameter with this annotation receives the text."""
    return _plain(annotation) in _TEXT_TYPES


def _plain(annotation: object) -> object:
    return annotation.strip("'\"") if isinstance(annotation, str) else annotation


def argument_hint(problem: BaseException, text: str) -> str:
    """Return advice for an agent that expected a different argument; empty for any other exception.

    Args:
        problem: The agent's exception.
        text: The exception's message.
    """
    if isinstance(problem, AttributeError) and problem.name in _FIELDS and isinstance(problem.obj, str):
        return (
            "the agent's parameter receives the text of the question: name it `request` to receive the request, "
            f"which has `{problem.name}`"
        )
    if isinstance(problem, TypeError | AttributeError) and AgentRequest.__name__ in text:
        return (
            "the agent receives a request, whose text is `request.input`: use that, or name the parameter "
            "`question` to receive the text"
        )
    return ""
