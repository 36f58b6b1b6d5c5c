"""The entry point `python -m assay_judge`, which runs one judge process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, SetupError, StorageError
from assay.judge.v1 import judge_pb2_grpc
from assay.local_stack.lease import watch_lease
from assay.process.early_stop import exit_on_early_sigterm
from assay.process.logs import configure_logging, redacted
from assay.process.telemetry import observed
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer, exit_now, serve_until_signal
from assay_judge.resources import open_service
from assay_judge.service import SERVICE_NAME
from assay_judge.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import grpc.aio

logger = logging.getLogger("assay_judge")

_LOUD = ("openai", "anthropic", "httpx2", "httpcore2", "alembic")


async def serve(settings: Settings, environment: Mapping[str, str]) -> None:
    """Serve until a signal, or until the lease of `exit_with_lock` is released.

    Raises:
        InvalidInputError: A file that the settings name is invalid.
        SetupError: The judge cannot be called from here, or an address or the state folder is unusable.
    """
    async with observed(settings):
        await _serve(settings, environment)


async def _serve(settings: Settings, environment: Mapping[str, str]) -> None:
    server = RpcServer(
        ServerOptions(
            reflection=settings.reflection,
            tls=settings.server_tls,
            health_address=settings.health_listen,
            redact=redacted,
        )
    )
    async with open_service(settings, environment, server.stopping) as service:

        def register(grpc_server: grpc.aio.Server) -> None:
            judge_pb2_grpc.add_JudgeServiceServicer_to_server(service, grpc_server)

        async def announce(address: str) -> None:
            judge = settings.judge
            logger.info("ready: address=%s judge=%s", address, judge.identity if judge.provider != "none" else "none")

        unneeded = asyncio.Event()
        if settings.exit_with_lock is not None:
            watch_lease(settings.exit_with_lock, asyncio.get_running_loop(), unneeded.set, idle_s=settings.exit_idle_s)
        server.add(SERVICE_NAME, register)
        await serve_until_signal(
            server, settings.listen, on_ready=announce, grace_s=settings.grace_s, also_stop_on=unneeded
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; return its exit code: 0 stopped, 2 wrong settings, 3 cannot serve here."""
    exit_on_early_sigterm()
    configure_logging()
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        settings = Settings.read(sys.argv[1:] if arguments is None else arguments, os.environ)
        configure_logging(settings.log)
        asyncio.run(serve(settings, os.environ))
    except InvalidInputError as error:
        for problem in error.problems:
            print(f"assay judge: {problem}", file=sys.stderr)  # noqa: T201  # the user's terminal
        return 2
    except (SetupError, StorageError) as error:
        print(f"assay judge: {error.message}", file=sys.stderr)  # noqa: T201
        return 3
    return 0


if __name__ == "__main__":
    exit_now(main())
