"""What scorer processes do, and how it travels: to them pickled, from them as JSON and nothing else.

A scorer reads what agents and specs say, so that it is the one process whose answers are not trusted: they are JSON,
bounded in size, and read field by field. What it is sent comes from the orchestrator's own memory.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.metrics.core.score import Row

HEADER = struct.Struct("!I")
"""The length of the message that follows."""
MAX_REPLY_BYTES = 16 * 1024 * 1024
"""Longest message that a scorer may send."""
READY = b"ready"
"""What a scorer sends when its modules are imported."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Score one row.

    Args:
        metrics: The run's metric settings, pickled once for all rows of the run.
    """

    metrics: bytes
    row: Row


@dataclass(frozen=True, slots=True)
class ReplyEvents:
    """A reply that came as a stream of events.

    Args:
        events: The JSON of each, in order.
        arrived_ms: When each was complete, in milliseconds from the question.
    """

    events: tuple[bytes, ...]
    arrived_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MapReply:
    """Read an HTTP agent's reply as an answer.

    Args:
        expressions: JMESPath expressions by answer field.
        reply: The body of the reply, or its events.
    """

    expressions: tuple[tuple[str, str], ...]
    reply: bytes | ReplyEvents


def reply_of(result: Any, *, failure: str = "", is_last: bool = False) -> bytes:
    """Return a scorer's reply: a result or the stable word for why there is none.

    Args:
        result: A JSON value.
        failure: The word; empty where there is a result.
        is_last: Whether the scorer ends after this reply.
    """
    return json.dumps({"result": result, "failure": failure, "last": is_last}, separators=(",", ":")).encode()


def result_of(reply: bytes) -> tuple[Any, str, bool]:
    """Return the result, the failure and whether the scorer ends.

    Raises:
        ValueError: It is no such reply.
    """
    data = json.loads(reply)
    if not isinstance(data, dict) or not isinstance(data.get("failure"), str):
        raise ValueError("no reply of a scorer")
    return data.get("result"), data["failure"], data.get("last") is True
