from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from assay.judge.v1 import judge_pb2
from assay.testing.judges import says
from assay.testing.providers import Reply
from assay_judge.calls import provider_registry
from assay_judge.judges import JudgeChoice, Permissions

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


async def test_a_rotated_key_is_used_without_a_restart(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a judge is a secret of a team; while it is missing, the judge refuses, naming it."""
    monkeypatch.setattr(provider_registry, "REREAD_S", 0.0)
    path = tmp_path / "secrets" / "alpha" / "models"
    path.parent.mkdir(parents=True)
    path.write_text("first-0123456789")
    judge = await start(secrets=tmp_path / "secrets")
    asked = {"provider": "openai", "model": "judge-2", "base_url": judge.provider.openai_url}
    for number, value in enumerate(("first-0123456789", "second-0123456789", "", "second-0123456789")):
        path.write_text(value)
        model = judge_pb2.JudgeModel(**asked, key_variable="secret://alpha/models")
        if not value:
            with pytest.raises(grpc.aio.AioRpcError, match="secret://alpha/models"):
                await judge.grade(f"answer {number}", judge=model)
            continue
        assert (await judge.grade(f"answer {number}", judge=model)).verdict.status == judge_pb2.VERDICT_STATUS_VALID
    sent = [{name.lower(): text for name, text in each.headers.items()} for each in judge.provider.requests]
    assert [each["authorization"] for each in sent] == [
        f"Bearer {value}-0123456789" for value in ("first", "second", "second")
    ]
    with pytest.raises(grpc.aio.AioRpcError, match="has no secret secret://local/models"):
        await judge.grade("other", judge=judge_pb2.JudgeModel(**asked, key_variable="secret://models"))
    with pytest.raises(grpc.aio.AioRpcError, match="names no secret"):
        await judge.grade("other", judge=judge_pb2.JudgeModel(**asked, key_variable="secret://../models"))


@pytest.mark.parametrize(
    ("entry", "url", "is_allowed"),
    [
        ("MODELS_KEY", "http://models.test/v1", True),
        ("MODELS_KEY@models.test", "http://models.test/v1", True),
        ("MODELS_*@*.test", "http://models.test/v1", True),
        ("MODELS_KEY@models.test", "http://other.test/v1", False),
        ("OTHER@models.test", "http://models.test/v1", False),
    ],
)
def test_a_key_goes_to_the_hosts_that_the_operator_binds_it_to(entry: str, url: str, is_allowed: bool) -> None:
    """A request may not send the key of one service to another one that is allowed as well."""
    allowed = Permissions(("*",), ("*",), (entry,))
    found = allowed.problems(JudgeChoice("openai", "m", url, "MODELS_KEY"), "judge")
    assert [problem.field for problem in found] == ([] if is_allowed else ["judge.key_variable"])
