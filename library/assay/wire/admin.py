"""Teams, tokens, destinations and quotas on the wire."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from assay.admin.v1 import admin_pb2 as pb
from assay.identity.quotas import Quota
from assay.identity.team_state import TeamState
from assay.wire.converter import EnumConverter
from assay.wire.roles import role_from_wire, role_to_wire
from assay.wire.times import timestamp_from_wire, timestamp_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M", bound=Message)
R = TypeVar("R")

TEAM_STATES = EnumConverter(TeamState, pb.TeamState, unknown=None)
QUOTA_FIELDS = {quota: quota.name.lower() + ("_nano_usd" if quota is Quota.MONEY_PER_MONTH else "") for quota in Quota}
"""The fields of `Quotas`, by quota."""

_TIMES = {
    "created_at": "create_time",
    "disabled_at": "disable_time",
    "deleted_at": "delete_time",
    "erased_at": "erase_time",
    "expires_at": "expire_time",
    "revoked_at": "revoke_time",
    "last_used_at": "last_use_time",
}


def record_to_wire(message: type[M], record: Any) -> M:
    """Return the message with the fields of a data class that it knows, by name; None is an absent field."""
    parts = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), _TIMES.get(field.name, field.name)
        if value is None or name not in message.DESCRIPTOR.fields_by_name:
            continue
        if field.name in _TIMES:
            value = timestamp_to_wire(value)
        elif field.name == "role":
            value = role_to_wire(value)
        parts[name] = value
    return message(**parts)


def record_from_wire(kind: type[R], message: Any) -> R:
    """Return the data class with the fields of a message that it knows, by name.

    An absent time, role or state is an empty text, another absent field is None.
    """
    known = message.DESCRIPTOR.fields_by_name
    names = {field.name: _TIMES.get(field.name, field.name) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # a data class
    return kind(**{field: _plain(field, name, message) for field, name in names.items() if name in known})


def _plain(field: str, name: str, message: Any) -> Any:
    """Return the plain value of a message's field."""
    value, descriptor = getattr(message, name), message.DESCRIPTOR.fields_by_name[name]
    if field == "role":
        return role_from_wire(value)
    if field == "state":
        state = TEAM_STATES.from_wire(value)
        return "" if state is None else state.value
    if descriptor.is_repeated:
        return tuple(value)
    if descriptor.has_presence and not message.HasField(name):
        return "" if field in _TIMES else None
    return timestamp_from_wire(value) if field in _TIMES else value


def quotas_to_wire(amounts: Mapping[Quota, int]) -> pb.Quotas:
    """Return the message with these amounts; other quotas are absent."""
    return pb.Quotas(**{QUOTA_FIELDS[quota]: amount for quota, amount in amounts.items()})


def quotas_from_wire(message: pb.Quotas) -> dict[Quota, int]:
    """Return the amounts in a message, in the order of the quotas' declaration."""
    present = {field.name for field, _ in message.ListFields()}
    return {quota: getattr(message, field) for quota, field in QUOTA_FIELDS.items() if field in present}
