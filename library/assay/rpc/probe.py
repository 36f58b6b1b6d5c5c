"""`python -m assay.rpc.probe HOST:PORT [SERVICE]`: checks whether a service is ready, for container health checks."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_S = 4.0


def main(arguments: Sequence[str]) -> int:
    """Return 0 if the service, or the process as a whole, is ready; 1 if not; 2 for a wrong command line."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m assay.rpc.probe HOST:PORT [SERVICE]\n")
        return 2
    try:
        asyncio.run(_probe(*arguments))
    except AssayError as problem:
        sys.stderr.write(f"{problem.message}\n")
        return 1
    return 0


async def _probe(address: str, service: str = "") -> None:
    async with open_channel(address) as channel:
        await wait_for_ready(channel, service, _TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
