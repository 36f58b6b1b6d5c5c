"""`python -m assay_embedder`: one embedder process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import InvalidInputError, SetupError
from assay.local_stack.lease import watch_lease
from assay.process.early_stop import exit_on_early_sigterm
from assay.process.logs import configure_logging
from assay.process.telemetry import observed
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer, exit_now, serve_until_signal
from assay_embedder.models.torch_parts import defer_unused_parts
from assay_embedder.registry import Registry
from assay_embedder.service import SERVICE_NAME, EmbedderService
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc.aio

logger = logging.getLogger("assay_embedder")


async def serve(settings: Settings) -> None:
    """Serve until a signal, or until the lease of `exit_with_lock` is released.

    Raises:
        SetupError: A model cannot be loaded or an address cannot be used.
    """
    async with observed(settings):
        await _serve(settings)


async def _serve(settings: Settings) -> None:
    server = RpcServer(
        ServerOptions(reflection=settings.reflection, tls=settings.server_tls, health_address=settings.health_listen)
    )
    registry = Registry(settings)
    service = EmbedderService(registry, stream_in_flight=settings.stream_in_flight, stopping=server.stopping)

    def register(grpc_server: grpc.aio.Server) -> None:
        embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(service, grpc_server)

    async def warm_up(address: str) -> None:
        logger.info("loading models: address=%s models=%s", address, ",".join(settings.models))
        await registry.load_listed()
        # A model that was only compared may lie in reference cycles of this library; without it, a collection frees
        # nothing and takes a tenth of a second.
        if "sentence_transformers" in sys.modules:
            gc.collect()
        # What is loaded stays: looking through it again and again would take a quarter of the time of short texts.
        gc.freeze()
        gc.enable()
        logger.info("ready")

    unneeded = asyncio.Event()
    if settings.exit_with_lock is not None:
        watch_lease(settings.exit_with_lock, asyncio.get_running_loop(), unneeded.set, idle_s=settings.exit_idle_s)
    server.add(SERVICE_NAME, register)
    try:
        await serve_until_signal(
            server, settings.listen, on_ready=warm_up, grace_s=settings.grace_s, also_stop_on=unneeded
        )
    finally:
        await registry.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; return its exit code: 0 stopped, 2 wrong settings, 3 cannot serve here."""
    exit_on_early_sigterm()
    configure_logging()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    # It warns twice of each attempt at a hub that cannot be reached; the outcome is logged here.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        settings = Settings.read(sys.argv[1:] if arguments is None else arguments, os.environ)
        configure_logging(settings.log)
        if settings.threads:
            # Read when the arithmetic libraries are loaded, which happens with the first model.
            os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        defer_unused_parts()
        gc.disable()  # nothing that imports make is garbage; collecting meanwhile is a tenth of the start
        asyncio.run(serve(settings))
    except InvalidInputError as error:
        for problem in error.problems:
            print(f"assay embedder: {problem}", file=sys.stderr)  # noqa: T201  # the user's terminal
        return 2
    except SetupError as error:
        print(f"assay embedder: {error.message}", file=sys.stderr)  # noqa: T201
        return 3
    return 0


if __name__ == "__main__":
    exit_now(main())
