"""The forms in which real models reply, over the wire of both protocols: one object with the right id counts."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from assay.judge.v1 import judge_pb2 as pb
from assay.testing.judges import says, verdict_id_of
from assay.testing.providers import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.testing.providers import ProviderRequest

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
FENCED = "```json\n%s\n```"
QUICK = {"pause_s": 0.005}


def verdict_in(form: str, verdict: dict[str, Any]) -> Callable[[ProviderRequest], Reply]:
    """Return a script of a judge that gives a verdict with the right id, in the form of a text."""
    return lambda request: Reply(form.replace("%s", json.dumps({"verdict_id": verdict_id_of(request), **verdict})))


def completion_of(content: Any) -> Reply:
    """Return a completion of OpenAI's protocol with a content of any form."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    return Reply(raw=json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode())


def text_of(request: ProviderRequest, **verdict: Any) -> str:
    """Return a verdict on a request, as JSON."""
    return json.dumps({"verdict_id": verdict_id_of(request), **GOOD, **verdict})


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "form", [FENCED, "<think>It says Paris.</think>\n\n%s", "<think>\n</think>\n" + FENCED, "\n%s\n"]
)
async def test_a_verdict_in_a_fence_or_after_thoughts_needs_no_repair(start: Start, protocol: str, form: str) -> None:
    """One call, one verdict; keys that were not asked for change nothing."""
    judge = await start(verdict_in(form, {**GOOD, "confidence": 0.9, "notes": "none"}), protocol=protocol)
    verdict = (await judge.grade()).verdict
    assert (verdict.status, dict(verdict.scores)) == (pb.VERDICT_STATUS_VALID, {"score": 4.0})
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)],
)
async def test_a_reply_that_a_gateway_compresses_is_read(
    start: Start, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    """The request asked for no compression; the verdict is paid for, and one call is enough."""

    def compressed(request: ProviderRequest) -> Reply:
        plain = completion_of(text_of(request)).raw or b""
        return Reply(raw=packed(plain), headers={"content-encoding": encoding})

    judge = await start(compressed)
    assert dict((await judge.grade()).verdict.scores) == {"score": 4.0}
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (gzip.compress(b"[" * 50_000_000), "larger than"),
        (gzip.compress(b'{"a": 1}' * 100)[:-9], "cannot be unpacked"),
        (gzip.compress(b"{}") + gzip.compress(b"{}"), "cannot be unpacked"),
        (b"{}", "cannot be unpacked"),
    ],
    ids=["bomb", "cut off", "two", "plain"],
)
async def test_a_compressed_reply_is_bounded_and_whole(start: Start, body: bytes, said: str) -> None:
    """It is unpacked in pieces, up to the size that a reply may have."""
    drip_s = 1e-4 if len(body) < 1_000 else 0.0  # in parts, so that what follows may be a part of its own
    judge = await start(Reply(raw=body, headers={"content-encoding": "gzip"}, drip_s=drip_s), attempts=1)
    verdict = (await judge.grade()).verdict
    assert verdict.status == pb.VERDICT_STATUS_UNAVAILABLE
    assert said in verdict.message


async def test_a_comparison_is_read_by_the_same_rule(start: Start) -> None:
    """A winner in a fence counts in both orders."""
    judge = await start(
        verdict_in(FENCED, {"reasoning": "r", "winner": "first", "pass": True}),
        verdict_in(FENCED, {"reasoning": "r", "winner": "second", "pass": True}),
        max_concurrency=1,
    )
    response = await judge.stub.ComparePair(
        pb.ComparePairRequest(rubric="pairwise", question="q", answer_a="a", answer_b="b"), timeout=60
    )
    assert [verdict.status for verdict in response.verdicts] == [pb.VERDICT_STATUS_VALID] * 2
    assert len(judge.provider.requests) == 2


async def test_a_content_of_parts_is_its_text(start: Start) -> None:
    """Thoughts and parts of other kinds are no text; a verdict in two halves is one verdict."""

    def script(request: ProviderRequest) -> Reply:
        text = text_of(request)
        thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": text_of(request, score=1)}]}
        halves = [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]
        return completion_of([thoughts, *halves, {"type": "reference", "reference_ids": [1]}])

    judge = await start(script)
    verdict = (await judge.grade()).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda request: [{"type": "text", "text": text_of(request)}] * 2, "invalid_verdict"),
        (lambda request: [{"type": "thinking", "thinking": text_of(request)}], "empty_verdict"),
        (lambda request: [], "empty_verdict"),
        (lambda request: [text_of(request), {"type": "text"}, {"type": "text", "text": 3}], "empty_verdict"),
        (lambda request: [{"type": "refusal", "refusal": "I will not."}], "refused"),
    ],
    ids=["two verdicts", "thoughts alone", "nothing", "no parts", "refusal"],
)
async def test_parts_without_exactly_one_verdict_are_none(start: Start, content: Any, reason: str) -> None:
    """The reason is that of a reply in one piece."""
    judge = await start(lambda request: completion_of(content(request)))
    verdict = (await judge.grade()).verdict
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_INVALID, reason)
    assert not verdict.scores


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}, "called a tool"),
        ({"content": "", "reasoning_content": "It is right."}, "its thoughts and no verdict"),
        ({"content": [{"type": "thinking", "thinking": "It is right."}]}, "its thoughts and no verdict"),
        ({"content": "\u200b\n"}, "an empty reply"),
    ],
)
async def test_a_reply_without_text_says_what_it_was(start: Start, message: dict[str, Any], said: str) -> None:
    """A tool's call and thoughts alone are not empty: another setting or model helps."""
    body = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}]}
    verdict = (await (await start(Reply(raw=json.dumps(body).encode()))).grade()).verdict
    assert verdict.reason == "empty_verdict"
    assert said in verdict.message


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(raw=b'{"error": {"code": 429, "message": "slow down"}}'), "http_429"),
        (Reply(raw=b': PROCESSING\n\n{"error": {"code": 503, "message": "busy"}}'), "http_503"),
        (Reply(status=202, raw=b'{"status": "accepted"}'), "http_202"),
        (Reply(status=206, raw=b'{"choices": []}'), "http_206"),
    ],
)
async def test_an_error_under_a_status_of_success_costs_nothing(start: Start, reply: Reply, outcome: str) -> None:
    """Gateways answer 200 before they know: the call is made again as after the code itself, and is not paid for."""
    judge = await start(reply, says(GOOD), **QUICK)
    verdict = (await judge.grade()).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert [one.outcome for one in verdict.tries] == [outcome, "replied"]
    assert verdict.usage.cost_usd == pytest.approx(0.00195)


async def test_comments_before_a_reply_are_no_part_of_it(start: Start) -> None:
    """With them a gateway keeps the connection open while the model thinks."""

    def script(request: ProviderRequest) -> Reply:
        completion = completion_of(
            [{"type": "output_text", "text": text_of(request)[:9]}, {"text": text_of(request)[9:]}]
        )
        assert completion.raw is not None
        return Reply(raw=b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n" + completion.raw)

    judge = await start(script)
    assert dict((await judge.grade()).verdict.scores) == {"score": 4.0}
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_body_with_a_key_twice_is_no_reply(start: Start, protocol: str) -> None:
    """Readers differ in which of two values they take, so neither is taken; the next attempt counts."""

    def twice(request: ProviderRequest) -> Reply:
        if protocol == "openai":
            one, other = (
                json.dumps([{"finish_reason": "stop", "message": {"content": text_of(request, score=score)}}])
                for score in (2, 5)
            )
            return Reply(raw=f'{{"choices": {one}, "choices": {other}}}'.encode())
        one, other = (json.dumps([{"type": "text", "text": text_of(request, score=score)}]) for score in (2, 5))
        return Reply(raw=f'{{"type": "message", "content": {one}, "content": {other}}}'.encode())

    judge = await start(twice, says(GOOD), protocol=protocol, **QUICK)
    verdict = (await judge.grade()).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert [each.outcome for each in verdict.tries] == ["malformed", "replied"]
