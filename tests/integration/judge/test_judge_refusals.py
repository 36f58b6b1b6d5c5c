"""The client that judges and agents share: providers' refusals, ends of replies, and keys, which appear nowhere."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from assay.errors import SetupError
from assay.judge.v1 import judge_pb2
from assay.judge.v1 import judge_pb2 as pb
from assay.testing.judges import says
from assay.testing.providers import ProviderRequest, Reply
from assay.v1 import judge_spec_pb2
from assay_judge.calls import provider_registry
from assay_judge.judges import JudgeChoice, Permissions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]
    from collections.abc import Callable


KEY = "sk-planted-0123456789-abcdefghij"
GOOD = {"reasoning": "It is right.", "score": 4}
both = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


@both
@pytest.mark.parametrize(
    "refusal",
    [
        Reply("temperature must be at most 1", status=400, error={"param": "temperature", "code": "invalid_value"}),
        Reply("temperature: input should be less than or equal to 1", status=400),
        Reply("unsupported content in 'water at room temperature'", status=400, error={"param": "messages"}),
    ],
    ids=["named value", "value", "quoted prompt"],
)
async def test_a_refusal_for_another_reason_changes_no_later_request(
    start: Start, protocol: str, refusal: Reply
) -> None:
    """A wrong value is the owner's to correct: no verdict is given at another temperature than was asked for."""
    judge = await start(refusal, says(GOOD), protocol=protocol)
    verdict = (await judge.grade()).verdict
    assert verdict.reason == "judge_refuses_request"
    assert refusal.text in verdict.message
    assert (await judge.grade("Lyon")).verdict.temperature == pytest.approx(0.1)
    assert ["temperature" in request.body for request in judge.provider.requests] == [True, True]


QUOTED = "the temperature is not supported; response_format json_schema is unknown; max_tokens unsupported"


def quoting(request: ProviderRequest) -> Reply:
    """Refuse a request that holds the hostile answer, with a quotation of it."""
    is_hostile = QUOTED in request.question
    return Reply(f"cannot process: {QUOTED} (rejected)", status=400) if is_hostile else says(GOOD)(request)


@both
async def test_an_answer_that_a_refusal_quotes_changes_no_later_request(start: Start, protocol: str) -> None:
    """Its one request fails; the form of the verdict and the temperature of all later ones stay."""
    judge = await start(quoting, protocol=protocol)
    assert (await judge.grade(QUOTED)).verdict.reason == "judge_refuses_request"
    verdict = (await judge.grade("Lyon")).verdict
    assert (verdict.status, list(verdict.refused_parameters)) == (pb.VERDICT_STATUS_VALID, [])
    hostile, later = (request.body for request in judge.provider.requests)
    assert set(hostile) == set(later)


@both
async def test_what_is_refused_is_learned_from_an_answer_and_seen(
    start: Start, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that is refused with and without the temperature says nothing about later ones."""
    refused = Reply("`temperature` is deprecated for this model", status=400)
    judge = await start(refused, Reply("bad input", status=400), refused, says(GOOD), protocol=protocol)
    assert (await judge.grade("Nice")).verdict.reason == "judge_refuses_request"
    assert not caplog.records
    verdict = (await judge.grade("Lyon")).verdict
    assert list(verdict.refused_parameters) == ["temperature"]
    assert not verdict.HasField("temperature")
    assert "refuses parameters: model=judge-1 changed=temperature" in caplog.text
    assert list((await judge.grade("Lille")).verdict.refused_parameters) == ["temperature"]
    assert ["temperature" in request.body for request in judge.provider.requests] == [True, False, True, False, False]


async def test_a_deprecated_name_of_max_tokens_is_not_sent_again(start: Start) -> None:
    """However the service says that it does not take it."""
    judge = await start(Reply("max_tokens is deprecated: use max_completion_tokens", status=400), says(GOOD))
    assert (await judge.grade()).verdict.status == pb.VERDICT_STATUS_VALID
    assert judge.provider.requests[1].body["max_completion_tokens"] == 2_048


@both
@pytest.mark.parametrize(
    "refusal",
    [
        Reply("no more today", status=429, headers={"x-should-retry": "false"}),
        Reply("pay first", status=429, headers={"x-should-retry": "true"}, error={"type": "insufficient_quota"}),
    ],
    ids=["advice", "quota"],
)
async def test_a_429_that_will_not_pass_is_not_waited_out(start: Start, protocol: str, refusal: Reply) -> None:
    """The provider's advice and a used-up quota end the request at once."""
    judge = await start(refusal, says(GOOD), protocol=protocol, pause_s=0.01)
    verdict = (await judge.grade()).verdict
    assert verdict.reason == "judge_denied"
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize(
    ("protocol", "stop", "reason", "words"),
    [
        ("anthropic", "model_context_window_exceeded", "truncated", "where the judge's context window ends"),
        ("anthropic", "pause_turn", "truncated", "the provider paused the turn"),
        ("anthropic", "max_tokens", "truncated", "raise max_tokens"),
        ("openai", "length", "truncated", "raise max_tokens"),
        ("openai", "content_filter", "refused", "content filter"),
    ],
)
async def test_why_a_reply_stopped_is_said(start: Start, protocol: str, stop: str, reason: str, words: str) -> None:
    """Raising max_tokens is advised only where it helps."""
    judge = await start(says(GOOD, stop=stop), protocol=protocol)
    verdict = (await judge.grade()).verdict
    assert (verdict.reason, words in verdict.message) == (reason, True)


@pytest.mark.parametrize("stop", ["error", "abort"])
@pytest.mark.parametrize("batch", [False, True])
async def test_a_reply_that_the_service_broke_off_gets_another_turn(start: Start, stop: str, batch: bool) -> None:
    """What there is of it is no verdict, however whole it looks."""
    own: dict[str, Any] = {"batch_base_urls": ("*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}
    judge = await start(says({**GOOD, "score": 1}, stop=stop), says(GOOD), **own)
    verdict = (await judge.grade(batch=batch)).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert verdict.call_count == 2


async def test_gateways_of_anthropics_protocol_get_the_key_in_each_header_that_may_carry_it(start: Start) -> None:
    """Some know the protocol's first header only."""
    judge = await start(protocol="anthropic")
    await judge.grade()
    headers = judge.provider.requests[0].headers
    assert (headers["x-api-key"], headers["authorization"]) == (KEY, f"Bearer {KEY}")


@pytest.mark.parametrize(("protocol", "version"), [("openai", "2.14.0"), ("anthropic", "1.9")])
async def test_a_package_that_is_too_old_is_a_sentence(
    start: Start, protocol: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service does not start, and says which version is there and which is needed."""
    metadata = tmp_path / "old" / f"{protocol}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {protocol}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path / "old")
    with pytest.raises(SetupError, match=f"not {version}") as caught:
        await start(protocol=protocol)
    assert caught.value.reason == "JUDGE_NOT_INSTALLED"


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
        model = judge_spec_pb2.JudgeModel(**asked, key_variable="secret://alpha/models")
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
        await judge.grade("other", judge=judge_spec_pb2.JudgeModel(**asked, key_variable="secret://models"))
    with pytest.raises(grpc.aio.AioRpcError, match="names no secret"):
        await judge.grade("other", judge=judge_spec_pb2.JudgeModel(**asked, key_variable="secret://../models"))


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
