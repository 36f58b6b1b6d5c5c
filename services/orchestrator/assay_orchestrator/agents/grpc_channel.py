"""The channel to an AgentService, restricted to checked addresses."""

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
    """A channel that opens with the first call.

    If every address is allowed, or a proxy resolves names, gRPC resolves the target. Otherwise the channel gets checked
    addresses, because gRPC's resolver would connect to whatever the name resolves to later.

    Args:
        target: HOST:PORT.
        options: The client's options.
        egress: Which addresses the host may have, and the proxy for connections.
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
        """Resolve the name again with the next call: the servers behind it may have new addresses."""
        self._resolved = self._egress.networks is None

    async def aclose(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _open(self) -> grpc.aio.Channel:
        address, options = await self._address()
        channel = self._channels.get(address)
        if channel is None:
            # Calls on a channel to earlier addresses end in their own time; there are few such channels.
            channel = self._channels[address] = open_channel(address, options)
        return channel

    async def _address(self) -> tuple[str, ChannelOptions]:
        if self._egress.networks is None or self._egress.proxy:
            # Named as a host, so that a name like another resolver's is not taken for one.
            return f"dns:///{self._target}", dataclasses.replace(self._options, proxy=self._egress.proxy)
        host, _, port = self._target.rpartition(":")
        timeout_s = self._options.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                resolved = await self._egress.resolve(host.strip("[]"), int(port))
        except TimeoutError:
            raise OSError(f"its name was not resolved within {timeout_s:g} s") from None
        return _checked(resolved), dataclasses.replace(self._options, authority=self._target)


def _checked(resolved: list[AddressInfo]) -> str:
    """Return the target for these addresses: those of one family, because gRPC accepts one family at a time."""
    family = resolved[0][0]
    addresses = dict.fromkeys(str(entry[4][0]) for entry in resolved if entry[0] == family)
    port = resolved[0][4][1]
    if family == socket.AF_INET6:
        return "ipv6:" + ",".join(f"[{address}]:{port}" for address in addresses)
    return "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)
