"""The jobs of scorer processes and their wire form: jobs are pickled, results are JSON and nothing else.

A scorer processes text from agents and specs, so it is the one process whose answers are not trusted: they are JSON,
limited in size, and read field by field. Its jobs come from the orchestrator's own memory.
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
"""Maximum size of a scorer's message."""
READY = b"ready"
"""The message of a scorer that has imported its modules."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Score one row.

    Args:
        metrics: The run's metric settings, pickled once for all rows of the run.
        row: The row.
    """

    metrics: bytes
    row: Row


@dataclass(frozen=True, slots=True)
class ReplyEvents:
    """A reply that arrived as a stream of events.

    Args:
        events: The JSON of each event, in order.
        arrived_ms: When each event was complete, in milliseconds since the question.
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
    """Return a scorer's reply: a result, or the stable word for why there is none.

    Args:
        result: A JSON value.
        failure: The word; empty with a result.
        is_last: Whether the scorer ends after this reply.
    """
    return json.dumps({"result": result, "failure": failure, "last": is_last}, separators=(",", ":")).encode()


def result_of(reply: bytes) -> tuple[Any, str, bool]:
    """Return the result, the failure, and whether the scorer ends.

    Raises:
        ValueError: It is not such a reply.
    """
    data = json.loads(reply)
    if not isinstance(data, dict) or not isinstance(data.get("failure"), str):
        raise ValueError("not a scorer's reply")
    return data.get("result"), data["failure"], data.get("last") is True
