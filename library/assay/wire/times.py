"""Times on the wire: ISO 8601 texts in UTC with milliseconds to timestamps, and back."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from assay.errors import InvalidInputError, Problem
from assay.wire.converter import Functions

if TYPE_CHECKING:
    from collections.abc import Sequence

M = TypeVar("M", bound=Message)
R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD_TIMES = {
    "created_at": "create_time",
    "disabled_at": "disable_time",
    "deleted_at": "delete_time",
    "erased_at": "erase_time",
    "expires_at": "expire_time",
    "revoked_at": "revoke_time",
    "last_used_at": "last_use_time",
}


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


def record_to_wire(message: type[M], record: Any) -> M:
    """Return the message with the fields of a data class that it knows, by name; None is the message's default."""
    parts = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), _RECORD_TIMES.get(field.name, field.name)
        if value is not None and name in message.DESCRIPTOR.fields_by_name:
            parts[name] = timestamp_to_wire(value) if field.name in _RECORD_TIMES else value
    return message(**parts)


def record_from_wire(kind: type[R], message: Any) -> R:
    """Return the data class with the fields of a message that it knows, by name; an absent time is empty."""
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a data class
        name = _RECORD_TIMES.get(field.name, field.name)
        if name not in message.DESCRIPTOR.fields_by_name:
            continue
        if field.name in _RECORD_TIMES:
            parts[field.name] = timestamp_from_wire(getattr(message, name)) if message.HasField(name) else ""
        else:
            value = getattr(message, name)
            parts[field.name] = tuple(value) if message.DESCRIPTOR.fields_by_name[name].is_repeated else value
    return kind(**parts)
