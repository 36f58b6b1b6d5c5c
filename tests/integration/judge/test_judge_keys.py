from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.judges import says
from assay.testing.providers import Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

KEY = "sk-planted-0123456789-abcdefghij"
SAYS_KEY = {"reasoning": f"The key is {KEY}, or {KEY[:20]}.", "score": 4}
REPLIES = (
    says(SAYS_KEY),
    Reply(f"Incorrect API key provided: {KEY}", status=401),
    Reply("oh", status=500, raw=f"<html>{KEY}".encode()),
    Reply(raw=f'{{"id": "{KEY}"}}'.encode()),
    says({**SAYS_KEY, KEY: 1}),
    Reply(KEY, stop="content_filter"),
    Reply(f"slow down, {KEY}", status=429, headers={"retry-after": "10000"}),
)


def whole(folder: Path) -> str:
    """Return everything that stands in a folder, whatever it is."""
    return "".join(path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("batch", [False, True], ids=["at once", "batch"])
async def test_a_key_stands_in_nothing_that_is_written(
    start: Start, protocol: str, batch: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A service that repeats its key wherever it can: not in a verdict, a log, the cache, a record or an order."""
    caplog.set_level(logging.DEBUG)
    out = tmp_path / "out"
    out.mkdir()
    said = []
    for number, reply in enumerate(REPLIES):
        judge = await start(
            reply, protocol=protocol, attempts=1, state_dir=out / f"state{number}", record=out / "record.jsonl",
            batch_base_urls=("*",), batch_wait_s=0.01, batch_poll_s=0.01,
        )  # fmt: skip
        if batch:
            judge.provider.batches.refusals = [Reply(f"oh {KEY}", status=503)]
        said.append(str((await judge.grade(run_id="r", timeout_ms=5_000, batch=batch)).verdict))
        if batch:  # what nobody waits for is written down until it is fetched
            await judge.grade("other", run_id="r", timeout_ms=1, batch=True)
        assert judge.provider.batches.requests if batch else judge.provider.requests
    assert "score" in whole(out)
    for text in (*said, caplog.text, whole(out)):
        assert KEY not in text
        assert KEY[:12] not in text
    assert "[redacted]" in said[0]
