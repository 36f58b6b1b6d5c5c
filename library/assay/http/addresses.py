"""Destinations of calls, and the patterns that an installation allows."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_NAME = r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_PATTERN = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<host>(?:\*\.(?=[^.:]+\.))?{_NAME}|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?",
    re.ASCII,
)
_DOTTED = re.compile(r"[0-9]+(?:\.[0-9]+){3}", re.ASCII)
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.ASCII | re.IGNORECASE)
_NOT_INTERNATIONAL = re.compile(r"[^a-z0-9.\u0080-\U0010ffff-]|(?:^|\.)-|-(?:\.|$)", re.IGNORECASE)
_SERVICE_FORMS = ("dns:///", "ipv4:", "ipv6:")
_SERVICE_PLACE = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@]+):(\d{1,5})")
_MAX_LABEL_CHARS = 63
_MAX_NAME_CHARS = 253


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of a call.

    Args:
        scheme: "https" over TLS, else "http"; also for gRPC.
        host: In lower case, without the brackets of an IPv6 address.
        port: The port; None if it is not a number yet.
    """

    scheme: str
    host: str
    port: int | None


NOWHERE = Address("", "", None)
"""The address of what is no URL."""


def url_address(url: str) -> Address:
    """Return the address of a URL; `NOWHERE` if it has none."""
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


def dial_problem(url: str) -> str:
    """Return why no client can connect to a URL's host and port; empty if one can.

    Refuses what the HTTP client's URL class refuses, so a valid address can only fail as unreachable. The client's
    package need not be installed where specs are validated, so symbols in an international name (emoji, for example)
    are detected only when the client connects.

    Args:
        url: A URL with a scheme, in any spelling.
    """
    if not url.isprintable():
        return "holds a character that is not displayed"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        return f"has no usable host and port ({error})"
    if port == 0:
        return "has the port 0, which no service can listen on"
    if parts.netloc.rpartition("@")[2].startswith("["):
        return _ipv6_problem(host)
    return host_problem(host)


def service_address_problem(address: str) -> str:
    """Return why no client can dial the address of a gRPC service; empty if one can.

    Args:
        address: host:port, unix:PATH, or another of gRPC's forms (dns:///, ipv4:, ipv6:) with an optional port.
    """
    if address.startswith("unix:"):
        return ""
    form = next((form for form in _SERVICE_FORMS if address.startswith(form)), "")
    if not form and "://" in address:
        place = urlsplit(address).netloc.rpartition("@")[2]  # without a password
        example = place if _SERVICE_PLACE.fullmatch(place) else f"{place or '127.0.0.1'}:7070"
        return f"is a URL: write host:port, such as {example}"
    place = address.removeprefix(form)
    for server in place.split(",") if form else [place]:
        match = _SERVICE_PLACE.fullmatch(server if ":" in server.rpartition("]")[2] or not form else f"{server}:443")
        if match is None or not 0 < int(match[2]) < 65536:
            shown = f", not {address!r:.80}" if "@" not in address else ""
            return f"must be host:port, such as 127.0.0.1:7070{shown}"
        if problem := host_problem(match[1].strip("[]")):
            return problem
    return ""


def read_service_address(text: str) -> str:
    """Return the address of a gRPC service from a setting; empty for none.

    Raises:
        ValueError: No client can dial it.
    """
    if text and (problem := service_address_problem(text)):
        raise ValueError(problem)
    return text


def host_problem(host: str) -> str:
    """Return why a host without a port is neither a name nor an address; empty if it is valid.

    A host whose last label is a number is an IPv4 address: four decimals without leading zeros.
    """
    if ":" in host:
        return _ipv6_problem(host)
    if _ENDS_IN_NUMBER.fullmatch(host):
        return (
            "" if _is_ipv4(host) else f"names the host {host!r}, which is no IPv4 address (four numbers from 0 to 255)"
        )
    try:
        if not host.isascii() and _NOT_INTERNATIONAL.search(host):
            raise UnicodeError
        name = host.removesuffix(".").encode("ascii" if host.isascii() else "idna")
    except UnicodeError:
        return f"names the host {host[:80]!r}, which is no name of a host"
    if len(name) > _MAX_NAME_CHARS or not all(0 < len(part) <= _MAX_LABEL_CHARS for part in name.split(b".")):
        return f"names the host {host[:80]!r}, which is no name: its parts have 1 to {_MAX_LABEL_CHARS} characters"
    return ""


def _is_ipv4(host: str) -> bool:
    try:
        if _DOTTED.fullmatch(host):
            ipaddress.IPv4Address(host)
        else:
            socket.inet_aton(host)  # shorter forms and hexadecimal ones, as the system's resolver reads them
    except (ValueError, OSError):
        return False
    return True


def _ipv6_problem(host: str) -> str:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return f"names the host [{host}], which is no IPv6 address"
    return ""


def covers(pattern: str, called: Address) -> bool:
    """Return whether an address matches a pattern: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`.

    HOST is a whole name, or `*.` and the end of a name. Without a port, the pattern covers every port, or the scheme's
    own after a scheme.
    """
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        return False
    scheme, host = match["scheme"], match["host"].strip("[]")
    port = int(match["port"]) if match["port"] else _PORTS.get(scheme)
    is_host = called.host.endswith(host[1:]) if host.startswith("*.") else called.host == host
    return is_host and scheme in (None, called.scheme) and port in (None, called.port)


def pattern_problem(pattern: str) -> str:
    """Return why a text is not such a pattern; empty if it is."""
    match = _PATTERN.fullmatch(pattern)
    if match is not None and (not match["port"] or 0 < int(match["port"]) < 65_536):
        return ""
    return (
        "must be HOST, HOST:PORT or https://HOST[:PORT] in lower case and without a path, where HOST may be "
        f"*.example.org, not {pattern[:80]!r}"
    )
