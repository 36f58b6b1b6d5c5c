"""Addresses that calls leave for, and the patterns of them that an installation allows."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from assay.records import dataclass

_PORTS = {"http": 80, "https": 443}
_NAME = r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_PATTERN = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<host>(?:\*\.(?=[^.:]+\.))?{_NAME}|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where something is called.

    Args:
        scheme: "https" over TLS, else "http"; also for gRPC.
        host: In lower case, without the brackets of an address of IPv6.
        port: The port; None where it is no number yet.
    """

    scheme: str
    host: str
    port: int | None


NOWHERE = Address("", "", None)
"""The address of what is no URL."""


def url_address(url: str) -> Address:
    """Return the address of a URL; `NOWHERE` where it is none."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError:
        return NOWHERE
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    return Address(parts.scheme, host, port)


def covers(pattern: str, called: Address) -> bool:
    """Return whether an address is one of a pattern's: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`.

    HOST is a whole name, or `*.` and the end of one. Without a port it is every port, after a scheme the scheme's own.
    """
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        return False
    scheme, host = found["scheme"], found["host"].strip("[]")
    port = int(found["port"]) if found["port"] else _PORTS.get(scheme)
    is_host = called.host.endswith(host[1:]) if host.startswith("*.") else called.host == host
    return is_host and scheme in (None, called.scheme) and port in (None, called.port)


def pattern_problem(pattern: str) -> str:
    """Return why a text is no such pattern; empty where it is one."""
    found = _PATTERN.fullmatch(pattern)
    if found is not None and (not found["port"] or 0 < int(found["port"]) < 65_536):
        return ""
    return (
        "must be HOST, HOST:PORT or https://HOST[:PORT] in lower case and without a path, where HOST may be "
        f"*.example.org, not {pattern[:80]!r}"
    )
