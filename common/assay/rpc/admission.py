"""The slots of a server: how many calls run at once, and how many of them one client may have."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from urllib.parse import unquote

from assay.errors import OverloadedError
from assay.rpc.methods import Slots
from assay.rpc.options import ServerOptions

_IPV6_PREFIX = 64  # one machine has all addresses of such a network


class Admission:
    """Refuses calls over a limit at once.

    One client may hold at most `peer_ratio` times as many slots as are free: alone it may use most of them, and
    however many it takes, some remain for others. A client is identified by its address; clients at a unix socket
    belong to this machine and share all slots.

    Args:
        options: The limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._limits: Mapping[Slots, int] = {
            Slots.CALLS: options.max_concurrent_calls,
            Slots.STREAMS: options.max_open_streams,
            Slots.HEALTH_WATCHES: options.max_open_streams,
        }
        self._peer_ratio = options.peer_ratio
        self._taken: Counter[Slots] = Counter()
        self._taken_by: Counter[tuple[Slots, str]] = Counter()

    @contextmanager
    def slot(self, slots: Slots, peer: str) -> Iterator[None]:
        """Hold a slot inside the block.

        Args:
            slots: Which ones; NONE are never refused.
            peer: The client as gRPC names it, "ipv4:192.0.2.1:50000".

        Raises:
            OverloadedError: All are taken, or this client has its share.
        """
        if slots is Slots.NONE:
            yield
            return
        address = peer_address(peer)
        self._check(slots, address)
        self._taken[slots] += 1
        self._taken_by[slots, address] += 1
        try:
            yield
        finally:
            self._taken[slots] -= 1
            self._taken_by[slots, address] -= 1
            if not self._taken_by[slots, address]:
                del self._taken_by[slots, address]

    def _check(self, slots: Slots, address: str) -> None:
        limit = self._limits[slots]
        free = limit - self._taken[slots]
        if free <= 0:
            raise OverloadedError(f"the server takes {limit} {slots.value}: try again in 1 s")
        held = self._taken_by[slots, address]
        if address and held >= self._peer_ratio * free:
            raise OverloadedError(
                f"this client has {held} of the server's {limit} {slots.value}, which is its share: end some, or try "
                "again in 1 s"
            )


@lru_cache(maxsize=4096)
def peer_address(peer: str) -> str:
    """Return what identifies a client across its connections; empty for one at a unix socket."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return ""
    host = unquote(rest.rpartition(":")[0]).strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host or peer
    if address.version == 4:
        return str(address)
    if (mapped := address.ipv4_mapped) is not None:
        return str(mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
