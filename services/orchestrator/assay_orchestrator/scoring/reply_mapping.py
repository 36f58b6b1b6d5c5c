"""An http agent's reply read as an answer: JSON, then one JMESPath expression per field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jmespath
from jmespath.exceptions import JMESPathError

from assay.model.agent_response import AgentResponse, AgentStatus, MalformedAnswerError, response_from_json
from assay.model.response_fields import excerpt
from assay.model.response_limits import check_bounds
from assay.model.response_text import find_text_key, missing_text
from assay.parsing.strict_json import REPLY_DECODER, DuplicateKeyError
from assay.spec.response_expressions import growth_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORK_PER_VALUE = 100
_CONTENT_FIELDS = ("text", "output", "sql", "tool_calls", "retrieved", "events")


class ReplyMapping:
    """How replies of one agent are read.

    Args:
        expressions: JMESPath expressions by answer field; `error` turns a reply into a failure. Without any, the
            text is found by the usual names.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._texts = expressions
        growths = [growth_of(text) for text in expressions.values()]
        self._size, self._visits = sum(size for size, _ in growths), sum(visits for _, visits in growths)
        self._expressions = {name: jmespath.compile(text) for name, text in expressions.items()}

    def work(self, body: bytes) -> int:
        """Return how much work reading a reply is at most, in units of `assay.metrics.core.row_work`."""
        values = 1 + sum(body.count(mark) for mark in (b",", b":", b"[", b"{"))
        return (2 + self._visits) * len(body) + _WORK_PER_VALUE * (1 + self._size) * values

    def read(self, body: bytes) -> AgentResponse:
        """Return the answer that a reply holds.

        Raises:
            MalformedAnswerError: The reply is not JSON, or an expression does not fit it.
            AnswerTooLargeError: What was found is too large.
        """
        try:
            data = REPLY_DECODER.decode(body.decode("utf-8-sig"))
        except DuplicateKeyError as error:
            raise MalformedAnswerError(f"in the reply {error}: {excerpt(body)}") from None
        except (ValueError, RecursionError):
            data = None if self._expressions else _plain_text(body)
            if data is None:
                raise MalformedAnswerError(f"the reply is not JSON: {excerpt(body)}") from None
        found = {name: self._find(name, data) for name in self._expressions} or _usual_text(data)
        try:
            check_bounds(found)
            # The text is where the expression says, or nowhere.
            response = response_from_json(found if found.get("text") is not None else {**found, "text": ""})
        except MalformedAnswerError as problem:
            raise MalformedAnswerError(f"the reply does not fit agent.response: {problem}") from None
        if response.status is AgentStatus.SUCCESS and all(found.get(name) is None for name in _CONTENT_FIELDS):
            where = f"agent.response.text ({self._texts.get('text', '')})"
            raise MalformedAnswerError(f"{where} finds nothing in {excerpt(body)}{_fields_of(data)}")
        return response

    def _find(self, name: str, data: Any) -> Any:
        try:
            return self._expressions[name].search(data)
        # The library lets some errors of its functions through as they are.
        except (JMESPathError, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as problem:
            raise MalformedAnswerError(
                f"agent.response.{name} ({self._texts[name]}) does not fit the reply: {problem}"
            ) from None


def _plain_text(body: bytes) -> str | None:
    """Return a reply that is a text as it stands; None for broken JSON, a page, or nothing."""
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
    return text if text and text[0] not in "{[<" else None


def _usual_text(data: Any) -> dict[str, Any]:
    """Return the text of a reply that no expression is given for."""
    if isinstance(data, str):
        return {"text": data}
    if not isinstance(data, dict):
        raise MalformedAnswerError("the reply is no JSON object: say in agent.response where its text is")
    key = find_text_key(data)
    if key is None:
        raise MalformedAnswerError(f"in the reply {missing_text(data)}; or say in agent.response where it is")
    return {"text": data[key]}


def _fields_of(data: Any) -> str:
    return f"; fields found: {', '.join(map(repr, list(data)[:8]))}" if isinstance(data, dict) and data else ""
