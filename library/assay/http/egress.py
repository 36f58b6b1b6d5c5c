"""Outgoing connections: the addresses they may reach, and their proxy.

A name is resolved once, all its addresses are checked, and the connection goes to a checked address, so that a name
that changes between check and connection (DNS rebinding) has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
AddressInfo = tuple[int, int, int, str, Any]
"""What `getaddrinfo` returns for one address."""

_MAX_PROXY_REPLY_BYTES = 64 * 1024

# What `is_global` of the supported versions of Python takes for public, or did before the registry changed.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "224.0.0.0/4", "fec0::/10", "ff00::/8",
                               "64:ff9b:1::/48", "2001::/23", "5f00::/16", "100::/64", "3fff::/20"))
)  # fmt: skip
_METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200",
                               "169.254.170.2", "169.254.170.23", "fd00:ec2::23", "168.63.129.16"))
)  # fmt: skip
"""Where clouds give a machine its credentials: never an agent's address, whatever network the operator allows.

Those of AWS, GCP and Alibaba, of containers in ECS and EKS, and of Azure's WireServer, which is a public address.
"""

# An IPv6 address that stands for an IPv4 address: by its network, how many bits follow the embedded address.
_EMBEDDING = {
    ipaddress.IPv6Network("::ffff:0:0/96"): 0,
    ipaddress.IPv6Network("::ffff:0:0:0/96"): 0,  # IPv4-translated: ::ffff:0:a.b.c.d
    ipaddress.IPv6Network("::/96"): 0,
    ipaddress.IPv6Network("64:ff9b::/96"): 0,
    ipaddress.IPv6Network("2002::/16"): 80,
}


class ForbiddenAddressError(OSError):
    """A host has an address to which this process may not connect."""


@dataclass(frozen=True, slots=True)
class Egress:
    """The rules for outgoing connections.

    Args:
        networks: Allowed networks besides the public internet; None for every address.
        proxy: An HTTP proxy for connections, "http://host:port"; empty for none. It resolves names, so it decides about
            their addresses.
    """

    networks: tuple[IPNetwork, ...] | None = None
    proxy: str = ""

    def allows(self, address: str) -> bool:
        """Return whether an address, in the form of `getaddrinfo`, may be connected to."""
        if self.networks is None:
            return True
        plain = _without_embedding(ipaddress.ip_address(address.partition("%")[0]))
        if plain in _METADATA:
            return False
        return _is_public(plain) or any(plain in network for network in self.networks)

    async def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """Return the addresses of a host, all of which may be connected to.

        Args:
            host: A name, or an address in any spelling that the system accepts.
            port: The port.

        Raises:
            ForbiddenAddressError: One of them may not be connected to.
            OSError: The host has no address.
        """
        infos = _numeric(host, port) or await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
        if not all(self.allows(str(info[4][0])) for info in infos):
            raise ForbiddenAddressError(forbidden(host))
        return list(infos)

    def forbids_literal(self, host: str) -> bool:
        """Return whether a host is a forbidden address, in any spelling that the system accepts."""
        return not all(self.allows(str(info[4][0])) for info in _numeric(host.strip("[]"), None))


EVERYWHERE = Egress()
"""No limits: for addresses that the operator, or the user of this machine, chose."""


def forbidden(host: str) -> str:
    """Return the message for a host whose address is not allowed; without the address, which reveals a network."""
    return (
        f"{host} has an address that may not be called from here: the operator allows networks with --egress-networks"
    )


def own_networks(hosts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Return the addresses among the hosts that an operator lists; listing an address allows it."""
    networks: list[IPNetwork] = []
    for host in hosts:
        with suppress(ValueError):  # a name, or a pattern
            networks.append(ipaddress.ip_network(host))
    return tuple(networks)


def read_networks(text: str) -> tuple[IPNetwork, ...] | None:
    """Return the networks of a comma-separated list; None if an entry is "*", which allows every address.

    Raises:
        ValueError: An entry is not a network.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if "*" in parts:
        return None
    try:
        return tuple(ipaddress.ip_network(part) for part in parts)
    except ValueError as problem:
        raise ValueError(f"must be networks such as 10.0.0.0/8, comma-separated, or *: {problem}") from None


def read_proxy(text: str) -> str:
    """Return the URL of a proxy.

    Raises:
        ValueError: The text is not such a URL.
    """
    parts = urlsplit(text)
    if text and (parts.scheme != "http" or not parts.hostname or parts.username or parts.path not in ("", "/")):
        raise ValueError("must be http://host:port of a proxy without a password")
    return text.rstrip("/")


async def connect_through(proxy: str, host: str, port: int) -> socket.socket:
    """Return a socket that a proxy has connected to a host.

    Args:
        proxy: "http://host:port".
        host: A name or an address, which the proxy resolves.
        port: Its port.

    Raises:
        OSError: The proxy cannot be reached, or refuses.
    """
    loop = asyncio.get_running_loop()
    parts = urlsplit(proxy)
    infos = await loop.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = infos[0]
    connected = socket.socket(family, kind, protocol)
    try:
        connected.setblocking(False)
        await loop.sock_connect(connected, address)
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        await loop.sock_sendall(connected, f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode("ascii"))
        status = await _reply_status(connected)
    except BaseException:
        connected.close()
        raise
    if not status.startswith("2"):
        connected.close()
        raise OSError(f"the proxy {proxy} refused the connection to {place}: HTTP {status or 'reply without a status'}")
    return connected


async def _reply_status(connected: socket.socket) -> str:
    """Return the status of a proxy's reply; reads to the end of its headers and no byte further."""
    loop = asyncio.get_running_loop()
    reply = b""
    while not reply.endswith(b"\r\n\r\n"):
        # Byte by byte: what follows belongs to the connection. There is one such reply in a connection's life.
        byte = await loop.sock_recv(connected, 1)
        reply += byte
        if not byte or len(reply) > _MAX_PROXY_REPLY_BYTES:
            raise OSError("the proxy's reply to CONNECT does not end")
    first_line = reply.partition(b"\r\n")[0].decode("latin-1")
    return " ".join(first_line.split()[1:2])


def _numeric(host: str, port: int | None) -> list[AddressInfo]:
    """Return the address that a host denotes, without resolving; None for a name."""
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        return []


def _is_public(address: IPAddress) -> bool:
    return address.is_global and not any(address in network for network in _NOT_PUBLIC)


def _without_embedding(address: IPAddress) -> IPAddress:
    """Return the IPv4 address embedded in an IPv6 address, or else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    for network, bits_after in _EMBEDDING.items():
        if address in network and int(address) > 1:  # :: and ::1 are addresses of their own
            return ipaddress.IPv4Address((int(address) >> bits_after) & 0xFFFFFFFF)
    return address
