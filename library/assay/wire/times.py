"""Times on the wire: ISO 8601 texts in UTC with milliseconds to timestamps, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp

from assay.errors import InvalidInputError, Problem
from assay.wire.converter import Functions

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_to_wire(text: str) -> Timestamp | None:
    """Return the message for an ISO 8601 text; None for an empty text."""
    if not text:
        return None
    since = datetime.fromisoformat(text) - _EPOCH  # every stored time has a time zone
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def timestamp_from_wire(stamp: Timestamp) -> str:
    """Return the ISO 8601 text of a message, in UTC with milliseconds."""
    moment = stamp.ToDatetime(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


TIMES = Functions(timestamp_to_wire, timestamp_from_wire)


def conditions_from_wire(request: Any, names: Sequence[str]) -> list[str]:
    """Return the texts of the times in a request's fields; empty for absent ones.

    Raises:
        InvalidInputError: A time is invalid; contains every problem.
    """
    moments, problems = [], []
    for name in names:
        try:
            moments.append(timestamp_from_wire(getattr(request, name)) if request.HasField(name) else "")
        except (ValueError, OverflowError):
            problems.append(Problem("must be a time from year 1 to 9999", name))
    if problems:
        raise InvalidInputError(problems)
    return moments
