"""Addresses of servers: lists, and whether an address is local."""

from __future__ import annotations

import ipaddress


def first_of_list(address: str) -> str:
    """Return the first host and port of a list of addresses, "ipv4:10.0.0.1:7070,10.0.0.2:7070"; empty for no list."""
    scheme, _, rest = address.partition(":")
    first, comma, _ = rest.partition(",")
    return first if comma and scheme in ("ipv4", "ipv6") else ""


def is_local(address: str) -> bool:
    """Return whether an address to dial or to serve at is a unix socket or loopback, which no other machine reads.

    Args:
        address: "unix:/path", "host:port", or "dns:///host:port" and the like; an empty host means every interface.
    """
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    for scheme in ("dns:///", "ipv4:", "ipv6:"):
        address = address.removeprefix(scheme)
    host = address.rpartition(":")[0].strip("[]").partition("%")[0].rstrip(".").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
