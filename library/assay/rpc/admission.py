"""The slots of a server: limits on concurrent calls, in total, per client and per team."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from urllib.parse import unquote

from assay.errors import OverloadedError
from assay.rpc.methods import Slots
from assay.rpc.options import ServerOptions

_IPV6_PREFIX = 64  # one machine has all addresses of such a network


class SlotPool:
    """The slots of one kind. A holder may hold at most `ratio` times the number of free slots.

    A single holder can use most slots, and some always remain for others. A holder is a client's address or a team.

    Args:
        slots: The kind.
        limit: Their number; None for no limit.
        ratio: The share of one holder.
    """

    def __init__(self, slots: Slots, limit: int | None, ratio: float) -> None:
        self._what = slots.value
        self._limit = limit
        self._ratio = ratio
        self._taken = 0
        self._held: dict[str, int] = {}

    def take(self, address: str) -> None:
        """Take a slot; `release` it.

        Args:
            address: The client's address; empty for a local client, which has no share.

        Raises:
            OverloadedError: No slot is free, or the client has used its share.
        """
        if self._limit is None:
            return
        free = self._limit - self._taken
        # Refused, not queued: a queue would hide the overload until its callers' deadlines.
        if free <= 0:
            raise OverloadedError(f"the server takes {self._limit} {self._what}: try again in 1 s")
        if address:
            self._hold(address, free, "client")
        self._taken += 1

    def release(self, address: str) -> None:
        """Release a slot."""
        if self._limit is None:
            return
        self._taken -= 1
        if address:
            self._let_go(address)

    def take_for(self, team: str) -> None:
        """Count a taken slot for a team as well; `release_for` it.

        Raises:
            OverloadedError: The team has used its share.
        """
        if self._limit is not None:
            self._hold(f"team {team}", self._limit - self._taken + 1, "team")

    def release_for(self, team: str) -> None:
        """Stop counting a slot for a team."""
        if self._limit is not None:
            self._let_go(f"team {team}")

    def _hold(self, holder: str, free: int, kind: str) -> None:
        held = self._held.get(holder, 0)
        if held >= self._ratio * free:
            raise OverloadedError(
                f"this {kind} has {held} of the server's {self._limit} {self._what}, which is its share: end some, or "
                "try again in 1 s"
            )
        self._held[holder] = held + 1

    def _let_go(self, holder: str) -> None:
        held = self._held[holder] - 1
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]


class Admission:
    """Refuses calls over a limit at once.

    A client is identified by its address; clients at a unix socket belong to this machine and share all slots.

    Args:
        options: The limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        limits = {
            Slots.NONE: None,
            Slots.CALLS: options.max_concurrent_calls,
            Slots.STREAMS: options.max_open_streams,
            Slots.HEALTH_WATCHES: options.max_open_streams,
        }
        self._pools = {slots: SlotPool(slots, limit, options.peer_ratio) for slots, limit in limits.items()}

    def pool(self, slots: Slots) -> SlotPool:
        """Return the slots of a kind."""
        return self._pools[slots]

    @contextmanager
    def slot(self, slots: Slots, peer: str) -> Iterator[None]:
        """Hold a slot inside the block.

        Args:
            slots: The kind; NONE is never refused.
            peer: The client as gRPC names it, "ipv4:192.0.2.1:50000".

        Raises:
            OverloadedError: No slot is free, or the client has used its share.
        """
        pool, address = self._pools[slots], peer_address(peer)
        pool.take(address)
        try:
            yield
        finally:
            pool.release(address)

    @contextmanager
    def team_slot(self, slots: Slots, team: str) -> Iterator[None]:
        """Count a held slot for a team as well, inside the block; an empty team is not counted.

        Raises:
            OverloadedError: The team has used its share.
        """
        if not team:
            yield
            return
        pool = self._pools[slots]
        pool.take_for(team)
        try:
            yield
        finally:
            pool.release_for(team)


@lru_cache(maxsize=4096)
def peer_address(peer: str) -> str:
    """Return the identity of a client across its connections; empty for a unix socket."""
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
