"""Texts that hold secrets, as agents may repeat them: the embedder keeps and shows none of them."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.integration.test_planted_secrets import Planted
from tests.support.embedder.word_counter import WordCounter

from assay.embedder.v1 import embedder_pb2 as pb
from assay.rpc.status import DETAILS_KEY
from assay.telemetry.exporter import exporting
from assay_embedder.settings import MAX_TEXTS, Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MODEL = "words"


async def refusal(call: Awaitable[Any]) -> str:
    """Return all that a refused call says."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    details = dict(caught.value.trailing_metadata() or ()).get(DETAILS_KEY, b"")
    return f"{caught.value.code()} {caught.value.details()} {caught.value.debug_error_string()} {details!r}"


def scraped(address: str) -> bytes:
    """Return the page of metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        text: bytes = page.read()
    return text


async def test_planted_secrets_are_not_kept_or_shown_by_the_embedder(
    start: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """None is in the cache on disk, logs at debug, refusals, errors in streams or metrics; the texts are embedded."""
    planted = Planted()
    for number in range(8):
        planted.plant(f"text-{number}")
    secrets = list(planted.values.values())
    words = WordCounter(packed=True)
    folder = tmp_path / "cache"
    settings = Settings(device="cpu", threads=1, cache_dir=folder)
    with caplog.at_level(logging.DEBUG):
        async with exporting("127.0.0.1:0", service="embedder") as address:
            embedder = await start(settings, load=lambda name, **options: words)
            stub = embedder.stub
            for scope in ("alpha", "beta", "alpha"):  # the last time from the cache
                answer = await stub.Embed(
                    pb.EmbedRequest(texts=[f"My key is {each}." for each in secrets], scope=scope)
                )
                assert len(answer.vectors) > 0
            pairs = [pb.TextPair(first=each, second=f"{each} again") for each in secrets]
            assert len((await stub.Similarity(pb.SimilarityRequest(pairs=pairs, scope="alpha"))).similarities) == 8
            said = [
                await refusal(stub.Embed(pb.EmbedRequest(texts=secrets * MAX_TEXTS))),
                await refusal(stub.Embed(pb.EmbedRequest(texts=[secrets[0], ""], model="not-allowed"))),
                await refusal(stub.Embed(pb.EmbedRequest(texts=[f"{secrets[0]} " * 200_000]))),
                await refusal(stub.Similarity(pb.SimilarityRequest(pairs=pairs * MAX_TEXTS))),
            ]
            words.failure = RuntimeError("no such kernel")
            said.append(await refusal(stub.Embed(pb.EmbedRequest(texts=[f"{each} fails" for each in secrets]))))
            metrics = await asyncio.to_thread(scraped, address)
            await embedder.registry.aclose()
    assert b"assay_embedder_texts_total" in metrics
    assert planted.found_in(metrics) == []
    assert planted.found_in("\n".join(said).encode()) == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 0
    assert [path for path in files if planted.found_in(path.read_bytes())] == []
    assert "no such kernel" in caplog.text
    assert planted.found_in(caplog.text.encode()) == []
