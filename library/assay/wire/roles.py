"""Roles on the wire."""

from __future__ import annotations

from typing import Any

from assay.identity.rights import Role
from assay.v1 import server_pb2
from assay.wire.converter import EnumConverter

ROLES = EnumConverter(Role, server_pb2.Role, unknown=None)


def role_to_wire(role: str) -> Any:
    """Return the number of a role by its name; UNSPECIFIED for an empty name."""
    return ROLES.to_wire(Role(role)) if role else server_pb2.ROLE_UNSPECIFIED


def role_from_wire(number: int) -> str:
    """Return the name of a role; empty for none, and for one that this version does not know."""
    role = ROLES.from_wire(number)
    return "" if role is None else role.value
