"""Reads an http agent's reply as an answer: JSON, then one JMESPath expression per field."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, AgentStatus, MalformedAnswerError, response_from_json
from assay.model.answers.response_expressions import DELTA, ResponseExpressions, growth_of
from assay.model.answers.response_fields import UnmappedReplyError, excerpt, shown
from assay.model.answers.response_limits import check_bounds
from assay.parsing.names import kind_of
from assay.parsing.strict_json import REPLY_DECODER, DuplicateKeyError
from assay_orchestrator.scorers.jobs import ReplyEvents

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORK_PER_VALUE = 100
_STATUSES = frozenset(status.value for status in AgentStatus)
_SHOWN_FIELDS = 8


class ReplyMapping:
    """How replies of one agent are read.

    Args:
        expressions: JMESPath expressions by answer field; `error` turns a reply into a failure. `delta` finds the text
            in one event of a stream; the others apply to a reply or to the list of a stream's events. Without any, a
            reply has the field names of an answer.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        growths = [growth_of(text) for text in expressions.values()]
        self._size, self._visits = sum(size for size, _ in growths), sum(visits for _, visits in growths)
        self._has_delta = DELTA in expressions
        self._expressions = (
            ResponseExpressions(expressions, "agent.response", "the reply", _fields_of) if expressions else None
        )

    def work(self, reply: bytes | ReplyEvents) -> int:
        """Return the maximum work of reading a reply, in units of `assay.metrics.core.row_work`."""
        parts = reply.events if isinstance(reply, ReplyEvents) else (reply,)
        size = sum(map(len, parts))
        values = len(parts) + sum(part.count(mark) for part in parts for mark in (b",", b":", b"[", b"{"))
        return (2 + self._visits) * size + _WORK_PER_VALUE * (1 + self._size) * values

    def read(self, reply: bytes | ReplyEvents) -> AgentResponse:
        """Return the answer in a reply.

        Raises:
            MalformedAnswerError: The reply is not JSON.
            UnmappedReplyError: An expression does not fit it, or finds no text.
            AnswerTooLargeError: The extracted answer is too large.
        """
        if isinstance(reply, ReplyEvents):
            data: Any = [_event(body, number) for number, body in enumerate(reply.events, 1)]
            beginning = b"[%s" % b", ".join(reply.events[:_SHOWN_FIELDS])
        else:
            data, beginning = self._decoded(reply), reply
        if self._expressions is None:
            response = _usual_answer(data)
        else:
            fields = self._expressions.find(data)
            if isinstance(reply, ReplyEvents) and not fields.get("error"):
                fields = self._read_pieces(self._expressions, data, reply.arrived_ms) | fields
            response = self._expressions.answer(fields, lambda: f"{excerpt(beginning)}{_fields_of(data)}")
        return dataclasses.replace(response, attempts=())

    def _decoded(self, body: bytes) -> Any:
        try:
            return REPLY_DECODER.decode(body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise MalformedAnswerError(f"the reply is not UTF-8: {excerpt(body)}") from None
        except DuplicateKeyError as error:
            raise MalformedAnswerError(f"in the reply {error}: {excerpt(body)}") from None
        except (ValueError, RecursionError):
            data = None if self._expressions else _plain_text(body)
            if data is None:
                raise MalformedAnswerError(f"the reply is not JSON: {excerpt(body)}") from None
            return data

    def _read_pieces(
        self, expressions: ResponseExpressions, events: list[Any], arrived_ms: tuple[float, ...]
    ) -> dict[str, Any]:
        """Return the text formed by the pieces in a stream's events, and when the first arrived."""
        pieces: list[str] = []
        first_ms = None
        for index, event in enumerate(events) if self._has_delta else ():
            piece = _piece(expressions, event, index)
            if piece and first_ms is None:
                first_ms = arrived_ms[index]
            pieces.append(piece)
        return {"text": "".join(pieces) if first_ms is not None else None, "time_to_first_token_ms": first_ms}


def _piece(expressions: ResponseExpressions, event: Any, index: int) -> str:
    text = expressions.find_field(DELTA, event)
    if text is None or text is False:
        return ""
    parts = text if isinstance(text, list) else [text]
    if any(not isinstance(part, str) for part in parts):
        raise UnmappedReplyError(
            f"{expressions.shown(DELTA)} must find a text, a list of texts or nothing, not {kind_of(text)}: "
            f"in event {index + 1} of the stream it finds {shown(text)}"
        )
    return "".join(parts)


def _event(body: bytes, number: int) -> Any:
    try:
        return REPLY_DECODER.decode(body.decode())
    except DuplicateKeyError as error:
        raise MalformedAnswerError(f"in event {number} of the stream {error}: {excerpt(body)}") from None
    except (ValueError, RecursionError):
        raise MalformedAnswerError(f"event {number} of the stream is not JSON: {excerpt(body)}") from None


def _plain_text(body: bytes) -> str | None:
    """Return a reply that is a text, unchanged; None for broken JSON, a web page, or nothing."""
    text = body.decode("utf-8-sig").strip()
    return text if text and text[0] not in "{[<" else None


def _usual_answer(data: Any) -> AgentResponse:
    fields = _usual_fields(data)
    try:
        check_bounds(fields)
        return response_from_json(fields)
    except MalformedAnswerError as problem:
        refusal = f"the reply does not fit the names of an answer: {problem}; or map them in agent.response"
        raise UnmappedReplyError(refusal) from None


def _usual_fields(data: Any) -> dict[str, Any]:
    """Return the answer in a reply without expressions; it has the field names that a Python agent returns.

    An unknown status is the agent's own word, such as "ok", and moves to the metadata.
    """
    if isinstance(data, str):
        return {"text": data}
    if not isinstance(data, dict):
        raise UnmappedReplyError("the reply is not a JSON object: map its text in agent.response")
    status, metadata = data.get("status"), data.get("metadata")
    if status is None or (isinstance(status, str) and status.strip().lower() in _STATUSES):
        return data
    extra = {"status": status, **metadata} if isinstance(metadata, dict) else metadata or {"status": status}
    return data | {"status": None, "metadata": extra}


def _fields_of(data: Any) -> str:
    heading = "fields found"
    if isinstance(data, list) and data:
        data, heading = data[-1], f"fields of the last of {len(data)} entries"
    if not isinstance(data, dict) or not data:
        return f"; it is {kind_of(data)}" if not isinstance(data, dict) else ""
    more = ", …" if len(data) > _SHOWN_FIELDS else ""
    return f"; {heading}: {', '.join(map(shown, list(data)[:_SHOWN_FIELDS]))}{more}"
