"""`python -m tests.fuzz.embedder_process ADDRESS`: the embedder, whose model gives a text its length."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.embedder.v1 import embedder_pb2_grpc
from assay.rpc.server import RpcServer, serve_until_signal
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.loading import Description
from assay_embedder.registry import Registry
from assay_embedder.service import SERVICE_NAME, EmbedderService
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Lengths:
    """A model of one number."""

    packed = True

    def __init__(self, name: str, **_options: Any) -> None:
        self.description = Description(name, "r1", 1, 8, "cpu", "exact", "", True)

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens([0] * min(len(text), 8), [0] * min(len(text), 8), len(text) > 8) for text in texts]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        return np.array([[1.0 + len(tokens.ids)] for tokens in batch], dtype=np.float32)


async def _serve(address: str) -> None:
    settings = Settings(listen=address, models=(DEFAULT_MODEL,))
    server, registry = RpcServer(), Registry(settings, load=Lengths)
    service = EmbedderService(registry, stream_in_flight=8, stopping=server.stopping)
    server.add(SERVICE_NAME, lambda to: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(service, to))
    await serve_until_signal(server, address, on_ready=lambda _: registry.load_listed(), grace_s=1.0)
    await registry.aclose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(_serve(sys.argv[1]))
