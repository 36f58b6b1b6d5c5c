from __future__ import annotations

import asyncio
import fcntl
import sys
import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.processes.waiting import until

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import InvalidInputError, OverloadedError, UnavailableError
from assay.rpc.channel import open_channel, read_stream, wait_for_ready
from assay.rpc.status import from_status, translated
from assay_embedder.models import loading
from assay_embedder.models.encoder import Tokens
from assay_embedder.queues.batcher import BatchReport
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SERVICE = "assay.embedder.v1.EmbedderService"
Status = health_pb2.HealthCheckResponse


class Gate:
    """Observes what goes into each run of the model, and can hold the runs up."""

    def __init__(self) -> None:
        self.reports: list[BatchReport] = []
        self.reached, self.open = threading.Event(), threading.Event()
        self.open.set()

    def __call__(self, report: BatchReport) -> None:
        self.reports.append(report)
        self.reached.set()
        self.open.wait()

    async def hold(self, stub: Any) -> asyncio.Task[Any]:
        """Keep the model busy with one text until the gate is opened."""
        self.reached.clear()
        self.open.clear()
        task = asyncio.create_task(embed(stub, ["busy"]))
        await asyncio.to_thread(self.reached.wait)
        return task


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
async def gated(start: Callable[..., Any], default_model: loading.Model, gate: Gate) -> Any:
    settings = Settings(queue_limit=512, threads=1)  # one worker, which the gate can hold
    return await start(settings, load=lambda name, **options: default_model, on_batch=gate)


async def embed(stub: Any, texts: Sequence[str], model: str = "") -> Any:
    with translated():
        return await stub.Embed(pb.EmbedRequest(texts=texts, model=model), timeout=100)


async def accepted(embedder: Any, count: int) -> None:
    """Wait until so many requests have been accepted or refused."""
    statistics = (await embedder.registry.get("")).statistics
    await until(lambda: statistics.requests + statistics.refused, lambda seen: seen >= count)


async def test_concurrent_callers_share_a_run(gated: Any, gate: Gate) -> None:
    """Single texts of many callers are computed in one run of the model."""
    busy = await gate.hold(gated.stub)
    calls = [asyncio.create_task(embed(gated.stub, [f"text {number % 10}"])) for number in range(20)]
    await accepted(gated, 21)
    gate.open.set()
    await asyncio.gather(busy, *calls)
    assert gate.reports[-1].requests == 20
    assert gate.reports[-1].texts == 10


async def test_caller_that_left_costs_no_compute(gated: Any, gate: Gate) -> None:
    """A call that is cancelled, or whose deadline passes, while it waits is never computed."""
    busy = await gate.hold(gated.stub)
    call = asyncio.create_task(embed(gated.stub, ["nobody wants this"] * 3 + ["nor this"]))
    await accepted(gated, 2)
    call.cancel()
    with pytest.raises(UnavailableError, match="deadline"), translated():
        await gated.stub.Embed(pb.EmbedRequest(texts=["too late"]), timeout=0.2)
    await asyncio.gather(call, return_exceptions=True)
    gate.open.set()
    await busy
    await embed(gated.stub, ["wanted"])
    statistics = (await gated.registry.get("")).statistics
    assert (statistics.dropped, statistics.computed) == (2, 2)  # busy, wanted


async def test_full_queue_is_refused_at_the_door(gated: Any, gate: Gate) -> None:
    """RESOURCE_EXHAUSTED with reason and delay; nothing that was accepted is lost."""
    busy = await gate.hold(gated.stub)
    waiting = asyncio.create_task(embed(gated.stub, [f"{number}" for number in range(512)]))
    await accepted(gated, 2)
    with pytest.raises(OverloadedError) as caught:
        await embed(gated.stub, ["one too many"])
    assert caught.value.reason == "QUEUE_FULL"
    assert caught.value.retry_after_s > 0
    gate.open.set()
    await busy
    assert len((await waiting).vectors) == 512 * 384 * 4


async def test_stream_answers_each_request(embedder: Any) -> None:
    """Answers carry their request's id; a request that fails is an answer too, and the stream goes on."""
    sent = [
        pb.EmbedStreamRequest(request_id="one", embed=pb.EmbedRequest(texts=["a", "b"])),
        pb.EmbedStreamRequest(request_id="none", embed=pb.EmbedRequest()),
        pb.EmbedStreamRequest(request_id="other", embed=pb.EmbedRequest(texts=["a"], model="other")),
        pb.EmbedStreamRequest(request_id="two", embed=pb.EmbedRequest(texts=["a"])),
    ]
    async with read_stream(embedder.stub.EmbedStream(iter(sent), timeout=100)) as messages:
        answers = {message.request_id: message async for message in messages}
    assert answers.keys() == {"one", "none", "other", "two"}
    vectors = [np.frombuffer(answers[name].embed.vectors, "<f4", count=384) for name in ("one", "two")]
    assert vectors[0].tobytes() == vectors[1].tobytes()
    assert answers["none"].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert from_status(answers["other"].error).reason == "MODEL_NOT_FOUND"


async def test_similarity_stream_answers_each_request(embedder: Any) -> None:
    """The stream of cosines gives what single calls give."""
    pair = pb.TextPair(first="Press the red button.", second="Select the blue icon.")
    sent = [
        pb.SimilarityStreamRequest(request_id="pair", similarity=pb.SimilarityRequest(pairs=[pair])),
        pb.SimilarityStreamRequest(request_id="none", similarity=pb.SimilarityRequest()),
    ]
    async with read_stream(embedder.stub.SimilarityStream(iter(sent), timeout=100)) as messages:
        answers = {message.request_id: message async for message in messages}
    assert answers["pair"].similarity.similarities[0].cosine == pytest.approx(0.6946, abs=2e-3)
    assert "pairs: 0 are given" in answers["none"].error.message


async def test_open_stream_ends_when_the_server_stops(embedder: Any) -> None:
    """A client that keeps its stream open does not hold up the stop, and knows to ask again."""
    call = embedder.stub.EmbedStream(timeout=100)
    await call.write(pb.EmbedStreamRequest(request_id="x", embed=pb.EmbedRequest(texts=["a"])))
    assert (await call.read()).request_id == "x"
    await embedder.server.stop(3600)
    with pytest.raises(UnavailableError) as caught, translated():
        await call.read()
    assert caught.value.reason == "STOPPING"


@pytest.mark.parametrize(
    ("texts", "field", "message"),
    [
        ([], "texts", "0 are given; give 1 to 512"),
        (["a"] * 513, "texts", "513 are given; give 1 to 512"),
        (["a", "b" * 100_001], "texts[1]", "has 100001 characters; at most 100000 are taken"),
    ],
)
async def test_wrong_requests_name_their_field(embedder: Any, texts: list[str], field: str, message: str) -> None:
    """The client learns which field is wrong and what would be right."""
    with pytest.raises(InvalidInputError) as caught:
        await embed(embedder.stub, texts)
    (problem,) = caught.value.problems
    assert (problem.field, problem.message) == (field, message)


async def test_unknown_model_is_refused_with_the_list(embedder: Any) -> None:
    """A request cannot make the server fetch whatever it names."""
    with pytest.raises(InvalidInputError, match="use one of: all-MiniLM-L6-v2") as caught:
        await embed(embedder.stub, ["a"], model="evil/model")
    assert caught.value.reason == "MODEL_NOT_FOUND"


async def test_allowed_model_is_loaded_on_request(
    start: Callable[..., Any], make_tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Patterns of the operator open further models, up to the number that memory takes."""
    first, second, third = (str(make_tiny_model("tiny")) for _ in range(3))
    settings = Settings(models=(first,), allow_models=(second, third, str(tmp_path)), max_models=2)
    embedder = await start(settings)
    with pytest.raises(InvalidInputError, match="could not be loaded") as caught:
        await embed(embedder.stub, ["a"], model=str(tmp_path))
    assert caught.value.reason == "MODEL_NOT_FOUND"
    responses = await asyncio.gather(*(embed(embedder.stub, ["the agent"], model=second) for _ in range(3)))
    assert {response.model.name for response in responses} == {second}
    assert (await embed(embedder.stub, ["a"], model=third)).model.name == third
    listed = (await embedder.stub.ListModels(pb.ListModelsRequest())).models
    assert [(model.name, model.loaded) for model in listed] == [(first, True), (third, True)]


class BlindModel:
    """A model whose vectors of single letters are zero."""

    description = loading.Description("blind", "0", 2, 8, "cpu", "exact", "", False)
    packed = True

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens([len(text)], [0], False) for text in texts]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        return np.array([(each.ids[0] - 1, 0) for each in batch], dtype=np.float32)


async def test_cosine_of_a_zero_vector_is_absent(start: Callable[..., Any]) -> None:
    """Undefined is told apart from 0."""
    embedder = await start(load=lambda name, **options: BlindModel())
    request = pb.SimilarityRequest(pairs=[pb.TextPair(first="a", second="b")])
    (result,) = (await embedder.stub.Similarity(request)).similarities
    assert not result.HasField("cosine")


async def test_not_serving_before_the_model_is_loaded(start: Callable[..., Any], default_model: loading.Model) -> None:
    """While the model is loaded health says so, and a call is told to ask again."""
    embedder = await start(ready=False, load=lambda name, **options: default_model)
    health: Any = health_pb2_grpc.HealthStub(embedder.channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    assert (await health.Check(request)).status == Status.NOT_SERVING
    with pytest.raises(UnavailableError) as caught:
        await embed(embedder.stub, ["a"])
    assert caught.value.reason == "NOT_READY"
    listed = (await embedder.stub.ListModels(pb.ListModelsRequest())).models
    assert [(model.name, model.loaded) for model in listed] == [(DEFAULT_MODEL, False)]


async def test_process_serves_and_ends_with_its_users(tmp_path: Path) -> None:
    """The process gets ready, answers, and ends by itself when the last holder of its lease is gone.

    The model that comes with the installation is run without sentence-transformers, which takes seconds to import.
    """
    lease, address = tmp_path / "lease", f"unix:{tmp_path / 'embedder.sock'}"
    with lease.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        command = [sys.executable, "-m", "assay_embedder", "--listen", address, "--exit-with-lock", str(lease)]
        process = await asyncio.create_subprocess_exec(*command, "--threads", "2", stderr=asyncio.subprocess.PIPE)
        async with open_channel(address) as channel:
            await wait_for_ready(channel, SERVICE, 100)
            stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
            assert (await embed(stub, ["a"])).dimension == 384
        mapped = {file.path for file in psutil.Process(process.pid).memory_maps()}
    log = (await process.communicate())[1].decode()
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert "Loading weights" not in log
    assert any("/torch/" in file for file in mapped)
    assert not [file for file in mapped if "/sklearn/" in file]  # which sentence-transformers imports
