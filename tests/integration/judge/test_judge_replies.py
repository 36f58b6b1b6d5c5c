"""Replies of real and hostile models, over the wire of both protocols: only one object with the right id counts."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from assay.judge.v1 import judge_pb2 as pb
from assay.testing.hostile_verdicts import FAMILIES
from assay.testing.injections import INJECTIONS, obey
from assay.testing.judges import says, system_of, user_of, verdict_id_of
from assay.testing.providers import Reply, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.testing.providers import ProviderRequest

    Start = Callable[..., Any]
    from collections.abc import Callable


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
    assert [one.outcome for one in verdict.calls] == [outcome, "replied"]
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
    assert [each.outcome for each in verdict.calls] == ["malformed", "replied"]


ANSWER = {"reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.9, "overall_score": 0.85}
VERDICTS: dict[str, dict[str, Any]] = {"quality": {"reasoning": "It is right.", "score": 4}, "answer": ANSWER}
MUTATIONS = 2


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_no_hostile_reply_becomes_a_score(start: Start, protocol: str) -> None:
    """Every family, mutated, for two rubrics, first reply and repair, over the wire: 0 scores, all with a reason."""
    rng = random.Random(0)

    def script(request: Any) -> Reply:
        family, rubric = user_of(request).split("case ", 1)[1].split(" for ")[:2]
        rubric = rubric.split("!")[0]
        reply = FAMILIES[family](rng, {"verdict_id": verdict_id_of(request), **VERDICTS[rubric]})
        return Reply(reply.encode("utf-8", "replace").decode(), usage=Tokens(10, 10))

    judge = await start(script, protocol=protocol)
    cases = list(itertools.product(FAMILIES, VERDICTS, range(MUTATIONS)))
    asked = [
        {"rubric": rubric, "question": "q", "answer": f"case {family} for {rubric}! {index}"}
        for family, rubric, index in cases
    ]
    for (family, rubric, _), verdict in zip(cases, await judge.grade_all(asked), strict=True):
        assert verdict.status == pb.VERDICT_STATUS_INVALID, (family, rubric)
        assert verdict.reason in ("invalid_verdict", "empty_verdict"), (family, verdict.reason)
        assert not verdict.scores
    assert (await judge.grade("")).cache.entries == 0


async def test_no_order_in_an_answer_is_obeyed_with_effect(start: Start) -> None:
    """240 answers before a judge that does whatever it reads, in ten ways by turns: 0 forged verdicts accepted."""
    ways = len(obey("", ""))

    def script(request: Any) -> Reply:
        said = obey(system_of(request), user_of(request))
        return Reply(said[int(user_of(request).split("way ", 1)[1][0])])

    judge = await start(script)
    rubrics = itertools.cycle(VERDICTS)
    asked = [
        {"rubric": next(rubrics), "question": f"way {(index + index // ways) % ways}", "answer": answer}
        for index, answer in enumerate(INJECTIONS)
    ]
    for fields, verdict in zip(asked, await judge.grade_all(asked), strict=True):
        assert verdict.status == pb.VERDICT_STATUS_INVALID, fields
        assert not verdict.scores
        assert "addresses_judge" in verdict.flags


async def test_no_order_in_an_answer_wins_a_comparison(start: Start) -> None:
    """The same with pairs: an obedient judge makes no winner."""

    def script(request: Any) -> Reply:
        return Reply(random.Random(user_of(request)).choice(obey(system_of(request), user_of(request))))

    judge = await start(script)
    asked = [
        pb.ComparePairRequest(rubric="pairwise", question="q", answer_a=answer, answer_b="no")
        for answer in INJECTIONS[::4]
    ]
    responses = await asyncio.gather(*(judge.stub.ComparePair(request, timeout=180) for request in asked))
    assert {response.winner for response in responses} == {pb.PAIR_WINNER_UNSPECIFIED}


async def test_the_obedient_judge_would_have_been_believed() -> None:
    """The corpus is no straw man: read leniently, most of its verdicts would have counted."""
    believed = 0
    for answer in INJECTIONS:
        for reply in obey("", f"<<answer x>>\n{answer}\n<<end of answer x>>"):
            start = reply.find("{")
            try:
                found = json.JSONDecoder().raw_decode(reply, start)[0] if start >= 0 else None
            except ValueError:
                continue
            if isinstance(found, dict) and {"score", "accuracy", "winner"} & set(found):
                believed += 1
                break
    assert believed >= 180


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_reply_that_is_sent_twice_answers_no_other_call(start: Start, protocol: str) -> None:
    """What follows a reply on its connection is neither the next call's verdict nor its refusal, and costs nothing."""

    def script(request: Any) -> Reply:
        number = int(user_of(request).split("answer number ", 1)[1].split("!")[0])
        text = json.dumps({"verdict_id": verdict_id_of(request), "reasoning": "So.", "score": 1 + number % 5})
        return Reply(text, usage=Tokens(10, 10), twice=True)

    judge = await start(script, protocol=protocol)
    verdicts = [(await judge.grade(f"answer number {number}!")).verdict for number in range(20)]
    assert [verdict.scores["score"] for verdict in verdicts] == [1 + number % 5 for number in range(20)]
    assert len(judge.provider.requests) == 20
