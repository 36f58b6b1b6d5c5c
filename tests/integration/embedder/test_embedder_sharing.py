"""What requests of many callers share over the wire, and what they do not."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
import sqlite3
import sys
import threading
import weakref
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.embedder.word_counter import WordCounter
from tests.support.processes.waiting import until

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import InvalidInputError, SetupError, UnavailableError
from assay.rpc.channel import open_channel, read_stream, wait_for_ready
from assay.rpc.status import translated
from assay_embedder.models.loading import Found
from assay_embedder.registry import Registry
from assay_embedder.service import SERVICE_NAME
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay_embedder.models.loading import Model

MIB = 1024 * 1024


async def embed(stub: Any, *texts: str, timeout_s: float = 100, **options: Any) -> Any:
    with translated():
        return await stub.Embed(pb.EmbedRequest(texts=texts, **options), timeout=timeout_s)


async def similarity(stub: Any, *pairs: tuple[str, str], **options: Any) -> Any:
    asked = [pb.TextPair(first=first, second=second) for first, second in pairs]
    with translated():
        return await stub.Similarity(pb.SimilarityRequest(pairs=asked, **options), timeout=100)


@pytest.fixture
def words() -> WordCounter:
    return WordCounter(packed=True)


@pytest.fixture
async def counted(start: Callable[..., Any], words: WordCounter) -> AsyncIterator[Any]:
    settings = Settings(device="cpu", queue_limit=512, threads=1, stream_in_flight=2)
    yield await start(settings, load=lambda name, **options: words)
    words.let_run.set()


async def test_scopes_share_no_vector(embedder: Any) -> None:
    """A text that was embedded before is a cache hit with the same bits, for its own scope alone."""
    answers = [await embed(embedder.stub, "the agent is online", scope=scope) for scope in ("a", "a", "b", "")]
    assert [answer.timing.cache_hits for answer in answers] == [0, 1, 0, 0]
    assert len({answer.vectors for answer in answers}) == 1
    assert answers[1].timing.inference_ms == 0
    assert answers[1].timing.cache_ms > 0
    assert list(answers[1].token_counts) == [6]
    assert not answers[1].window_counts


async def test_pairs_compute_each_text_once(counted: Any, words: WordCounter) -> None:
    """A reference that all pairs share is computed once; counts and flags are those of each text."""
    pairs = [("one two", "the reference"), ("w " * 9, "the reference"), ("the reference", "the reference")]
    answer = await similarity(counted.stub, *pairs)
    assert sorted(length for run in words.seen[1:] for length in run) == [2, 2, 8]
    counts = [(each.first_token_count, each.second_token_count) for each in answer.similarities]
    assert counts == [(2, 2), (8, 2), (2, 2)]
    assert [each.first_truncated for each in answer.similarities] == [False, True, False]
    assert answer.similarities[2].cosine == pytest.approx(1, abs=1e-12)
    assert answer.similarities[1].cosine == pytest.approx(17 / 65**0.5 / 5**0.5)


async def test_stream_is_read_no_faster_than_it_is_answered(counted: Any, words: WordCounter) -> None:
    """A full queue slows a stream down instead of failing its requests; a unary call is refused meanwhile."""
    words.let_run.clear()
    sent: list[int] = []

    async def requests() -> AsyncIterator[pb.EmbedStreamRequest]:
        for number in range(6):
            texts = [f"{number} {at} of many words" for at in range(500)]  # more than one run takes
            yield pb.EmbedStreamRequest(request_id=str(number), embed=pb.EmbedRequest(texts=texts, scope="s"))
            sent.append(number)

    served = await counted.registry.get("")
    async with read_stream(counted.stub.EmbedStream(requests(), timeout=100)) as messages:
        reading = asyncio.create_task(collected(messages))
        await until(lambda: len(sent), lambda count: count >= 2)
        await until(lambda: served.embeddings._turns.get("s"), lambda turn: turn is not None and turn.locked())
        with pytest.raises(Exception, match="texts are waiting already"):
            await embed(counted.stub, "me too", scope="s")
        assert (served.statistics.requests, served.statistics.refused) == (1, 1)
        words.let_run.set()
        answers = await reading
    assert {message.request_id for message in answers} == set("012345")
    assert not [message for message in answers if message.HasField("error")]
    assert served.statistics.requests == 6


async def collected(messages: Any) -> list[Any]:
    return [message async for message in messages]


async def test_long_documents_over_the_wire(embedder: Any) -> None:
    """Windowed, the end of a long text counts, nothing is truncated, and the answer counts the windows."""
    text = "The agent answers politely. " * 60 + "Bananas are rich in potassium. " * 60
    cut = await embed(embedder.stub, text, "Bananas are rich in potassium.")
    whole = await embed(embedder.stub, text, "Bananas are rich in potassium.", windowed=True)
    assert (list(cut.truncated), list(whole.truncated)) == ([0], [])
    assert (cut.token_counts[0], list(whole.window_counts)) == (256, [3, 1])
    vectors = [np.frombuffer(each.vectors, "<f4").reshape(2, 384) for each in (cut, whole)]
    assert vectors[0][1].tobytes() == vectors[1][1].tobytes()
    assert vectors[1][0] @ vectors[1][1] > vectors[0][0] @ vectors[0][1] + 0.1
    pairs = await similarity(embedder.stub, (text, "Bananas are rich in potassium."), windowed=True)
    (pair,) = pairs.similarities
    assert (pair.first_window_count, pair.second_window_count, pair.first_truncated) == (3, 1, False)
    assert pairs.timing.cache_hits == 2


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"dimension": 100}, "dimension", "the model words has no vectors of 100 values; give 0 or one of: 2"),
        ({"scope": "s" * 257}, "scope", "has 257 characters; at most 256 are taken"),
    ],
)
async def test_wrong_options_name_their_field(counted: Any, options: Any, field: str, message: str) -> None:
    """The client learns which field is wrong and what would be right."""
    with pytest.raises(InvalidInputError) as caught:
        await embed(counted.stub, "a", "word " * 10_000, **options)
    (problem,) = caught.value.problems
    assert (problem.field, problem.message) == (field, message)
    assert list((await embed(counted.stub, "a", dimension=2)).token_counts) == [1]


def here(name: str) -> Found:
    """Return that a model is on this machine."""
    return Found(Path(), 0)


async def test_a_load_outlives_its_caller(start: Callable[..., Any]) -> None:
    """A model whose first caller is cancelled by its deadline is loaded once, and serves the next caller."""
    loaded: list[str] = []
    may_end = threading.Event()

    def load(name: str, **options: Any) -> WordCounter:
        loaded.append(name)
        assert name == "listed" or may_end.wait(60)
        return WordCounter()

    settings = Settings(models=("listed",), allow_models=("*",), device="cpu")
    embedder = await start(settings, load=load, find=here)
    with pytest.raises(UnavailableError):
        await embed(embedder.stub, "a", model="large", timeout_s=0.2)
    await until(lambda: embedder.registry._waiting["large"], lambda waiting: not waiting)
    again = asyncio.create_task(embed(embedder.stub, "a", model="large"))
    await until(lambda: embedder.registry._waiting["large"])
    may_end.set()
    assert (await again).dimension == 2
    assert loaded == ["listed", "large"]


async def test_a_load_without_callers_may_fail(start: Callable[..., Any]) -> None:
    """A failed load that no caller waits for leaves nothing behind: the next caller loads again and gets the reason."""
    may_end = threading.Event()

    def load(name: str, **options: Any) -> WordCounter:
        if name == "broken":
            may_end.wait(60)
            raise SetupError("its weights are damaged", reason="MODEL_DAMAGED")
        return WordCounter()

    embedder = await start(Settings(models=("listed",), allow_models=("*",), device="cpu"), load=load, find=here)
    with pytest.raises(UnavailableError):
        await embed(embedder.stub, "a", model="broken", timeout_s=0.2)
    may_end.set()
    await until(lambda: embedder.registry._loads, lambda loads: not loads)
    with pytest.raises(InvalidInputError, match="its weights are damaged"):
        await embed(embedder.stub, "a", model="broken")


def sized(mib: int) -> WordCounter:
    model = WordCounter()
    object.__setattr__(model.description, "weight_bytes", mib * MIB)
    return model


async def test_models_keep_to_the_memory_limit(start: Callable[..., Any]) -> None:
    """The least recently used of the models on request makes room; listed ones and those in use stay."""
    loaded: list[str] = []

    def load(name: str, **options: Any) -> WordCounter:
        loaded.append(name)
        return sized({"listed": 40, "large": 70}.get(name, 25))

    def find(name: str) -> Found:
        return Found(Path(), sized({"large": 70, "huge": 200}.get(name, 25)).description.weight_bytes)

    settings = Settings(models=("listed",), allow_models=("*",), max_models=8, model_memory_mib=100, device="cpu")
    embedder = await start(settings, load=load, find=find)
    for name in ("one", "two", "one", "three", "one"):
        await embed(embedder.stub, "a", model=name)
    assert loaded == ["listed", "one", "two", "three"]
    assert [name for name, _ in embedder.registry.listed()] == ["listed", "three", "one"]
    with pytest.raises(InvalidInputError, match="takes 200 MiB, and models that stay take 40 of the 100 MiB"):
        await embed(embedder.stub, "a", model="huge")
    assert [name for name, _ in embedder.registry.listed()] == ["listed", "three", "one"]  # none left for its sake
    with pytest.raises(InvalidInputError, match="takes 70 MiB, and models that stay take 40 of the 100 MiB") as caught:
        await embed(embedder.stub, "a", model="large")
    assert caught.value.reason == "MODEL_LIMIT_REACHED"
    async with embedder.registry.use("one"), embedder.registry.use("two"):
        with pytest.raises(InvalidInputError, match="models that stay take 90"):
            await embed(embedder.stub, "a", model="three")
    assert (await embed(embedder.stub, "a", model="three")).dimension == 2


async def test_a_tokenizer_of_another_model_is_told_apart(
    tmp_path: Path, make_tiny_model: Callable[[str], Path]
) -> None:
    """Two models with the same weights that read texts in different ways share no cached vector."""
    folders = [make_tiny_model("one"), tmp_path / "two"]
    shutil.copytree(folders[0], folders[1])
    file = folders[1] / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    first, second = list(words)[7:9]  # of which the texts that every model is tried with have none
    words[first], words[second] = words[second], words[first]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    registry = Registry(Settings(models=tuple(map(str, folders)), device="cpu"))
    await registry.load_listed()
    found = [await (await registry.get(str(folder))).embed([first]) for folder in folders]
    await registry.aclose()
    assert [each.timing.cache_hits for each in found] == [0, 0]
    assert not np.array_equal(found[0].vectors[first], found[1].vectors[first])


async def test_a_model_that_makes_room_is_gone(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is free once it is unloaded, and not when garbage happens to be collected."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    made: list[weakref.ref[WordCounter]] = []

    def load(name: str, **options: Any) -> WordCounter:
        model = WordCounter()
        made.append(weakref.ref(model))
        return model

    settings = Settings(models=("listed",), allow_models=("*",), max_models=2, device="cpu")
    embedder = await start(settings, load=load, find=here)
    gc.disable()
    try:
        for name in ("one", "two", "three"):
            await embed(embedder.stub, "a", model=name)
    finally:
        gc.enable()
    assert [model() is not None for model in made] == [True, False, False, True]


async def test_a_load_keeps_no_process_from_ending() -> None:
    """A model that takes minutes to load, or to download, is left behind when the process stops."""
    may_end, ended = threading.Event(), list[bool]()

    def load(name: str, **options: Any) -> WordCounter:
        if name != "listed":
            ended.append(may_end.wait(30))
        return WordCounter()

    registry = Registry(Settings(models=("listed",), allow_models=("*",), device="cpu"), load=load, find=here)
    await registry.load_listed()
    loading = asyncio.create_task(registry.get("slow"))
    await until(lambda: registry._waiting["slow"])
    await registry.aclose()
    await asyncio.gather(loading, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()  # as the end of the process does
    assert not ended, "the end of the process waited for the load"
    may_end.set()


async def test_listed_models_over_the_memory_limit() -> None:
    """The start fails with both numbers instead of serving fewer models than are listed."""
    settings = Settings(device="cpu", models=("a", "b"), model_memory_mib=60)
    registry = Registry(settings, load=lambda name, **options: sized(40))
    with pytest.raises(SetupError, match=r"take 80 MiB; raise --model-memory-mib, which is 60"):
        await registry.load_listed()
    await registry.aclose()


async def test_vectors_on_disk_serve_the_next_process(tmp_path: Path) -> None:
    """With --cache-dir a restarted embedder computes nothing again, unless its model reads texts in another way."""
    models = [WordCounter(), WordCounter(), WordCounter(window=10)]
    object.__setattr__(models[2].description, "max_tokens", 8)  # what the model says of itself is all the same
    settings = Settings(device="cpu", cache_dir=tmp_path / "cache")
    for model in models:
        registry = Registry(settings, load=lambda name, model=model, **options: model)
        await registry.load_listed()
        await (await registry.get("")).embed(["a b c"])
        await registry.aclose()
    assert [model.seen[1:] for model in models] == [[[3]], [], [[3]]]  # the first run is the warm-up


def stored_vectors(file: Path) -> int:
    """Return how many vectors a cache has on disk."""
    with closing(sqlite3.connect(file)) as connection:
        count: int = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
    return count


async def test_vectors_on_disk_outlive_a_kill(
    tmp_path: Path, start: Callable[..., Any], default_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """After kill -9 of an embedder that writes to --cache-dir the next one serves the vectors that a model computes."""
    folder, address = tmp_path / "cache", f"unix:{tmp_path / 'killed.sock'}"
    texts = [f"The agent {number} is online." for number in range(600)]
    command = [sys.executable, "-m", "assay_embedder", "--listen", address, "--cache-dir", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, "--threads", "1", stderr=asyncio.subprocess.DEVNULL)
    async with open_channel(address) as channel:
        await wait_for_ready(channel, SERVICE_NAME, 100)
        stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        asked = [asyncio.create_task(embed(stub, *texts[at : at + 20])) for at in range(0, len(texts), 20)]
        await until(lambda: stored_vectors(folder / "vectors.sqlite"))  # committed, and not only written
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        await asyncio.gather(*asked, return_exceptions=True)
    settings = Settings(device="cpu", cache_dir=folder)
    again = await start(settings, load=lambda name, **options: default_model)
    answers = [await embed(again.stub, *texts[at : at + 300]) for at in (0, 300)]
    assert sum(answer.timing.cache_hits for answer in answers) > 0
    computed = [default_model.encode([tokens]).astype("<f4").tobytes() for tokens in default_model.tokenize(texts)]
    assert b"".join(answer.vectors for answer in answers) == b"".join(computed)
    assert not caplog.records
