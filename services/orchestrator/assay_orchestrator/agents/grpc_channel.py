"""The channel of one AgentService, to addresses that were checked."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from typing import TYPE_CHECKING

from assay.rpc.channel import open_channel

if TYPE_CHECKING:
    import grpc.aio

    from assay.http.egress import AddressInfo, Egress
    from assay.rpc.options import ChannelOptions


class AgentChannel:
    """A channel that is opened with the first call.

    Where every address is allowed, or a proxy resolves names, gRPC resolves the target. Otherwise it is given addresses
    that were checked, because its own resolver would connect to whatever a name has become since.

    Args:
        target: HOST:PORT.
        options: How the client behaves.
        egress: Which addresses the host may have, and the proxy that connections are made through.
    """

    def __init__(self, target: str, options: ChannelOptions, egress: Egress) -> None:
        self._target = target
        self._options = options
        self._egress = egress
        self._opening = asyncio.Lock()
        self._resolved = False
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current: grpc.aio.Channel | None = None

    async def connected(self) -> grpc.aio.Channel:
        """Return the channel.

        Raises:
            ForbiddenAddressError: The host has an address that may not be connected to.
            OSError: The host has no address.
        """
        if self._current is not None and self._resolved:
            return self._current
        async with self._opening:
            if self._current is None or not self._resolved:
                self._current = await self._open()
                self._resolved = True
            return self._current

    def resolve_again(self) -> None:
        """Have the next call resolve the name again: the servers behind it may have other addresses by now."""
        self._resolved = self._egress.networks is None

    async def aclose(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _open(self) -> grpc.aio.Channel:
        address, options = await self._address()
        channel = self._channels.get(address)
        if channel is None:
            # Calls on a channel to earlier addresses end as they do; there are few such channels.
            channel = self._channels[address] = open_channel(address, options)
        return channel

    async def _address(self) -> tuple[str, ChannelOptions]:
        if self._egress.networks is None or self._egress.proxy:
            # Named as a host: what looks like the name of another resolver is none.
            return f"dns:///{self._target}", dataclasses.replace(self._options, proxy=self._egress.proxy)
        host, _, port = self._target.rpartition(":")
        timeout_s = self._options.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._egress.resolve(host.strip("[]"), int(port))
        except TimeoutError:
            raise OSError(f"its name was not resolved within {timeout_s:g} s") from None
        return _checked(found), dataclasses.replace(self._options, authority=self._target)


def _checked(found: list[AddressInfo]) -> str:
    """Return the target that names these addresses: those of one family, as gRPC takes one at a time."""
    family = found[0][0]
    addresses = dict.fromkeys(str(one[4][0]) for one in found if one[0] == family)
    port = found[0][4][1]
    if family == socket.AF_INET6:
        return "ipv6:" + ",".join(f"[{address}]:{port}" for address in addresses)
    return "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)
