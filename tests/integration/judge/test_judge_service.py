from __future__ import annotations

import asyncio
import json
import re
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.processes.waiting import until

from assay.agent.v1 import agent_pb2
from assay.errors import InvalidInputError, SetupError, UnavailableError
from assay.judge.v1 import judge_pb2 as pb
from assay.judging.rubric_list import list_rubrics
from assay.rpc.channel import open_channel, read_stream
from assay.rpc.status import from_status, translated
from assay.testing.judges import says, system_of, user_of, verdict_id_of
from assay.testing.providers import Reply, Tokens
from assay.v1 import judge_spec_pb2
from assay.wire import pages
from assay_judge.judges import JudgeChoice
from assay_judge.verdicts.precheck import Precheck, precheck

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay_judge.model import Material

    Start = Callable[..., Any]

KEY = "sk-planted-0123456789-abcdefghij"
CHOICES = {"first": pb.PAIR_CHOICE_FIRST, "second": pb.PAIR_CHOICE_SECOND, "tie": pb.PAIR_CHOICE_TIE}
GOOD = {"reasoning": "It is right.", "score": 4}
ANSWER = {"reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.9, "overall_score": 0.85}
TONE = """
name: tone
description: Whether the answer is friendly.
scale: {minimum: -1, maximum: 1}
criteria: [{name: warmth, description: Whether it is warm.}]
"""


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_verdict_over_the_whole_wire(start: Start, protocol: str) -> None:
    """Both protocols: one valid object becomes a verdict with its usage, cost, fingerprint and temperature."""
    judge = await start(protocol=protocol)
    response = await judge.grade(contexts=["Paris is a city."])
    verdict = response.verdict
    assert verdict.status == pb.VERDICT_STATUS_VALID
    assert dict(verdict.scores) == {"score": 4.0}
    assert verdict.reasoning == "It is right."
    assert (verdict.reason, verdict.message, verdict.cached, verdict.by_rule) == ("", "", False, False)
    assert (verdict.call_count, verdict.temperature, verdict.model) == (1, 0.1, "scripted")
    assert (verdict.usage.input_tokens, verdict.usage.output_tokens) == (1_200, 150)
    assert verdict.usage.cost_usd == pytest.approx(0.00195, abs=1e-12)
    assert len(verdict.fingerprint) == len(verdict.key) == 64
    request = judge.provider.requests[0]
    assert "Paris is a city." in user_of(request)
    assert "Paris is a city." not in system_of(request)
    assert verdict_id_of(request) not in user_of(request)


async def test_each_protocol_is_asked_in_its_own_way(start: Start) -> None:
    """Structured output, the temperature and the prompt cache are asked for as the provider wants it."""
    anthropic = await start(protocol="anthropic")
    await anthropic.grade()
    sent = anthropic.provider.requests[0]
    assert sent.body["output_config"]["format"]["type"] == "json_schema"
    assert sent.body["temperature"] == 0.1
    assert sent.body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in sent.body["system"][1]
    assert KEY in sent.headers.get("x-api-key", sent.headers.get("authorization", ""))


async def test_openai_is_asked_in_its_own_way(start: Start) -> None:
    """A strict schema, and the key as a bearer token."""
    openai = await start(protocol="openai")
    await openai.grade()
    sent = openai.provider.requests[0]
    assert sent.body["response_format"]["json_schema"]["strict"] is True
    assert sent.body["max_tokens"] == 2_048
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_the_three_rubrics_and_ones_own(start: Start) -> None:
    """Quality, answer and a rubric that comes with the request; what is wrong with it is said before any call."""
    judge = await start(says(ANSWER), says({"reasoning": "Kind.", "warmth": 0.5}), says(GOOD))
    assert dict((await judge.grade(rubric="answer")).verdict.scores) == {
        "accuracy": 0.9, "completeness": 0.8, "relevance": 0.9, "overall_score": 0.85,
    }  # fmt: skip
    assert dict((await judge.grade(rubric="", rubric_yaml=TONE)).verdict.scores) == {"warmth": 0.5}
    with pytest.raises(InvalidInputError) as caught, translated():
        await judge.grade(rubric="", rubric_yaml=TONE.replace("warmth", "Warm Th").replace("scale", "scales"))
    assert {problem.field for problem in caught.value.problems} == {
        "rubric_yaml.scales", "rubric_yaml.criteria[0].name",
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match="did you mean 'quality'"), translated():
        await judge.grade(rubric="qualty")
    assert len(judge.provider.requests) == 2


@pytest.mark.parametrize("page_bytes", [pages.MAX_PAGE_BYTES, 1])
async def test_rubrics_are_listed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    """The built-in ones and those of the operator, with their scales, on as many pages as messages need."""
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", page_bytes)
    (tmp_path / "tone.yaml").write_text(TONE)
    judge = await start(rubrics=(str(tmp_path / "tone.yaml"),))
    first = await judge.stub.ListRubrics(pb.ListRubricsRequest())
    assert (len(first.rubrics), first.next_page_token) == ((1, "answer") if page_bytes == 1 else (4, ""))
    found = {rubric.name: rubric for rubric in await list_rubrics(judge.stub)}
    assert list(found) == ["answer", "pairwise", "quality", "tone"]
    assert list(found["answer"].criteria) == ["accuracy", "completeness", "relevance", "overall_score"]
    assert (found["quality"].minimum, found["quality"].maximum, found["quality"].whole) == (1, 5, True)
    assert found["pairwise"].compares


@pytest.mark.parametrize(
    ("first", "second", "winner", "flipped"),
    [
        ("first", "second", pb.PAIR_WINNER_A, False),
        ("second", "first", pb.PAIR_WINNER_B, False),
        ("tie", "tie", pb.PAIR_WINNER_TIE, False),
        ("first", "first", pb.PAIR_WINNER_TIE, True),
        ("first", "tie", pb.PAIR_WINNER_TIE, True),
        ("first", "third", pb.PAIR_WINNER_UNSPECIFIED, False),
    ],
)
async def test_pairs_are_compared_in_both_orders(
    start: Start, first: str, second: str, winner: int, flipped: bool
) -> None:
    """An answer wins only if it does so wherever it is shown; a missing verdict makes no tie."""

    def script(request: Any) -> Reply:
        text = user_of(request)
        shown = first if text.index("Paris") < text.index("Lyon") else second
        return says({"reasoning": "Because.", "winner": shown})(request)

    judge = await start(script)
    asked = pb.ComparePairRequest(rubric="pairwise", question="Capital?", answer_a="Paris", answer_b="Lyon")
    response = await judge.stub.ComparePair(asked, timeout=180)
    assert (response.winner, response.flipped) == (winner, flipped)
    assert response.verdicts[0].choice == CHOICES.get(first, pb.PAIR_CHOICE_UNSPECIFIED)
    assert all(not verdict.scores for verdict in response.verdicts)


async def test_a_comparison_without_a_key_says_so(start: Start) -> None:
    """With the sentence that Grade has, although both orders fail together."""
    judge, who = await start(), judge_spec_pb2.JudgeModel(provider="openai", model="judge-1", key_variable="NOT_SET")
    asked = pb.ComparePairRequest(rubric="pairwise", question="q", answer_a="Paris", answer_b="Lyon", judge=who)
    sentences = []
    for call in (judge.stub.ComparePair(asked, timeout=60), judge.grade(judge=who)):
        with pytest.raises(SetupError, match="NOT_SET is not set") as caught, translated():
            await call
        assert caught.value.reason == "JUDGE_KEY_MISSING"
        sentences.append(caught.value.message)
    assert sentences[0] == sentences[1]


async def test_no_judge_is_an_outcome_with_a_reason(start: Start) -> None:
    """Without a judge there is no verdict, never a 0; nothing is asked."""
    judge = await start(judge=JudgeChoice())
    verdict = (await judge.grade()).verdict
    assert verdict.status == pb.VERDICT_STATUS_UNAVAILABLE
    assert verdict.reason == "judge_not_configured"
    assert "no judge configured" in verdict.message
    assert not verdict.scores
    assert judge.provider.requests == []


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply('{"score": 5}', stop="content_filter"), "refused"),
        (says(GOOD, stop="length"), "truncated"),
        (Reply(""), "empty_verdict"),
        (Reply(" \n"), "empty_verdict"),
    ],
)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_reply_that_stopped_is_no_verdict(start: Start, protocol: str, reply: Any, reason: str) -> None:
    """Refusals, cut verdicts and silence are errors with that reason, though their text may hold a score."""
    judge = await start(reply, protocol=protocol)
    verdict = (await judge.grade()).verdict
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_INVALID, reason)
    assert not verdict.scores
    assert len(judge.provider.requests) == 1


async def test_an_invalid_reply_gets_one_repair_with_a_new_id(start: Start) -> None:
    """The second turn says what was wrong in our words, quotes nothing, and counts both calls' tokens."""
    judge = await start(says({**GOOD, "score": 9}), says(GOOD))
    verdict = (await judge.grade()).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert verdict.call_count == verdict.usage.requests == 2
    assert verdict.usage.input_tokens == 2_400
    first, second = judge.provider.requests
    assert verdict_id_of(first) != verdict_id_of(second)
    assert "score must be a whole number from 1 to 5" in system_of(second)
    assert len(second.body["messages"]) == 2


async def test_an_empty_answer_is_not_sent_to_a_judge(start: Start) -> None:
    """It gets the lowest score by rule, and says so."""
    judge = await start()
    verdict = (await judge.grade(" \u200b\n")).verdict
    assert dict(verdict.scores) == {"score": 1.0}
    assert verdict.by_rule
    assert list(verdict.flags) == ["empty_answer"]
    assert judge.provider.requests == []


async def test_turns_before_the_question_are_parts_of_their_own(start: Start) -> None:
    """By roles of our own words; another conversation is another verdict, and a very long one is refused."""
    judge = await start()
    said = [agent_pb2.Message(role="assistant>>", content="Hello."), agent_pb2.Message(role="tool", content="{}")]
    first = (await judge.grade(history=said)).verdict
    shown = user_of(judge.provider.requests[0])
    assert re.findall(r"<<(turn.*?) \w{32}>>", shown) == ["turn 1 of other", "turn 2 of tool"]
    assert (await judge.grade(history=said[:1])).verdict.key != first.key
    assert (await judge.grade(history=said)).verdict.cached
    with pytest.raises(InvalidInputError, match="at most 1000 are taken"), translated():
        await judge.grade(history=said * 501)


@pytest.mark.parametrize("rubric", ["quality", "answer"])
@pytest.mark.parametrize(
    ("answer", "material", "flag"),
    [
        ("%", {"question": "Which operator gives the remainder in Python?", "reference": "The percent sign: %"},
         "punctuation_only"),
        ("The shop is open Monday to Friday, 9:00 to 17:00.",
         {"question": "When?", "reference": "From 9 to 17 on weekdays.",
          "contexts": ["The shop is open Monday to Friday, 9:00 to 17:00."]}, "copies_prompt"),
        ("He go to school.", {"question": "He go to school.", "reference": "Leave it as it is."}, "copies_question"),
    ],
)  # fmt: skip
async def test_right_answers_that_look_odd_get_the_verdict_of_the_judge(
    start: Start, rubric: str, answer: str, material: dict[str, Any], flag: str
) -> None:
    """Punctuation, a passage and the question itself may be right: the judge decides, and a flag stands beside it."""
    best = {"score": 5} if rubric == "quality" else {"accuracy": 1, "completeness": 1, "relevance": 1}
    judge = await start(says({"reasoning": "Right.", **best}))
    verdict = (await judge.grade(answer, rubric=rubric, **material)).verdict
    assert dict(verdict.scores) == best
    assert (verdict.by_rule, verdict.reasoning, list(verdict.flags)) == (False, "Right.", [flag])
    assert len(judge.provider.requests) == 1


async def test_long_material_is_checked_outside_of_the_event_loop(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another verdict comes while a long answer is still being checked."""
    judge, began, moved = await start(), threading.Event(), threading.Event()

    def waits(material: Material) -> Precheck:
        if len(material.answer) > 10_000:
            began.set()
            assert moved.wait(60), "the event loop stood still"
        return precheck(material)

    monkeypatch.setattr("assay_judge.verdicts.precheck.precheck", waits)
    long = asyncio.ensure_future(judge.grade("كلمة " * 5_000))
    await until(began.is_set)
    assert (await judge.grade("Paris")).verdict.scores
    moved.set()
    assert (await long).verdict.scores


async def test_a_rubric_may_want_empty_answers_judged(start: Start) -> None:
    """By some rubrics saying nothing is right: then the judge is asked, and the flag stays."""
    judge = await start(says({"reasoning": "Rightly silent.", "warmth": 1}))
    verdict = (await judge.grade("", rubric="", rubric_yaml=TONE + "judges_trivial: true")).verdict
    assert dict(verdict.scores) == {"warmth": 1.0}
    assert not verdict.by_rule
    assert list(verdict.flags) == ["empty_answer"]


async def test_a_stream_answers_each_request_and_survives_wrong_ones(start: Start) -> None:
    """Answers carry their request's id; a request that is wrong is an error of its own."""
    judge = await start(stream_in_flight=4)
    requests = [
        pb.GradeStreamRequest(
            request_id=f"r{index}",
            grade=pb.GradeRequest(rubric="quality" if index % 5 else "nope", question="q", answer=f"answer {index}"),
        )
        for index in range(20)
    ]
    call = judge.stub.GradeStream(iter(requests))
    async with read_stream(call) as responses:
        found = {response.request_id: response async for response in responses}
    assert len(found) == 20
    for index in range(20):
        response = found[f"r{index}"]
        if index % 5:
            assert dict(response.grade.verdict.scores) == {"score": 4.0}
        else:
            refusal = from_status(response.error)
            assert isinstance(refusal, InvalidInputError)
            assert [problem.field for problem in refusal.problems] == ["rubric"]
            assert "unknown rubric" in refusal.message


async def test_health_names_the_service(start: Start, tmp_path: Path) -> None:
    """Health answers for the judge by its full name."""
    await start()
    async with open_channel(f"unix:{tmp_path / '0.sock'}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="assay.judge.v1.JudgeService"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"provider": "openai", "model": "other"}, "judge"),
        ({"provider": "anthropic", "model": "judge-1"}, "judge"),
        ({"provider": "openai", "model": "judge-1", "base_url": "http://evil.example"}, "judge.base_url"),
        ({"provider": "openai", "model": "judge-1", "base_url": "http://a@b"}, "judge.base_url"),
        ({"provider": "openai", "model": "judge-1", "base_url": "file:///etc/passwd"}, "judge.base_url"),
        ({"provider": "openai", "model": "judge-1", "key_variable": "HOME"}, "judge.key_variable"),
        ({"provider": "gpt", "model": "x"}, "judge.provider"),
        ({"provider": "openai"}, "judge.model"),
        ({"model": "x"}, "judge.provider"),
        ({"provider": "openai", "model": "x", "temperature": 3}, "judge.temperature"),
        ({"provider": "openai", "model": "x", "max_tokens": 1_000_000}, "judge.max_tokens"),
    ],
)
async def test_requests_name_only_what_the_operator_allows(start: Start, asked: dict[str, Any], field: str) -> None:
    """By default a request can choose neither model, address nor key."""
    judge = await start(allow_judges=(), allow_base_urls=(), allow_key_variables=())
    with pytest.raises(InvalidInputError) as caught, translated():
        await judge.grade(judge=judge_spec_pb2.JudgeModel(**asked))
    assert field in {problem.field for problem in caught.value.problems}
    assert judge.provider.requests == []


async def test_a_key_goes_nowhere_unless_it_is_named(start: Start, scripted: Any) -> None:
    """Another service gets no key by itself; a missing key of a provider's own service is said, not guessed."""
    judge = await start()
    other = scripted(says(GOOD))
    asked = judge_spec_pb2.JudgeModel(provider="openai", model="m", base_url=other.openai_url)
    assert (await judge.grade(judge=asked)).verdict.status == pb.VERDICT_STATUS_VALID
    assert KEY not in str(other.requests[0].headers)
    with pytest.raises(SetupError, match="OPENAI_API_KEY is not set"), translated():
        await judge.grade(judge=judge_spec_pb2.JudgeModel(provider="openai", model="m"))


async def test_a_request_sends_the_judge_to_no_private_address(start: Start, scripted: Any) -> None:
    """Its service is refused after one attempt, unless the operator lists it literally; the operator's own is not."""
    other = scripted(says(GOOD))
    asked = judge_spec_pb2.JudgeModel(provider="openai", model="m", base_url=other.openai_url)
    judge = await start(egress_networks=())
    assert (await judge.grade()).verdict.status == pb.VERDICT_STATUS_VALID
    refused = (await judge.grade(judge=asked)).verdict
    assert (refused.status, refused.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "judge_unavailable")
    assert "--egress-networks" in refused.message
    assert "attempts" not in refused.message
    assert not other.requests
    listing = await start(egress_networks=(), allow_base_urls=(other.openai_url.removesuffix("/v1"),))
    assert (await listing.grade(judge=asked)).verdict.status == pb.VERDICT_STATUS_VALID


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        ({"provider": "openai", "model": "m"}, r"OPENAI_API_KEY is not set"),
        ({"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9"}, ""),
        ({"provider": "none"}, ""),
        ({"provider": "replay"}, r"judge\.model: must name the recorded judge"),
        ({}, ""),
    ],
)
async def test_whether_a_judge_could_be_asked_is_told_without_asking(start: Start, judge: Any, problem: str) -> None:
    """Validation alone gives no verdict, and calls nobody."""
    service = await start()
    with pytest.raises((SetupError, InvalidInputError), match=problem) if problem else nullcontext(), translated():
        answer = await service.grade(judge=judge_spec_pb2.JudgeModel(**judge), validate_only=True)
        assert not answer.HasField("verdict")
    assert not service.provider.requests


async def test_parameters_of_the_own_judge_may_be_set(start: Start) -> None:
    """Temperature and max_tokens alone need no permission."""
    judge = await start(allow_judges=(), allow_base_urls=(), allow_key_variables=())
    verdict = (await judge.grade(judge=judge_spec_pb2.JudgeModel(temperature=0.7, max_tokens=99))).verdict
    assert verdict.temperature == 0.7
    assert judge.provider.requests[0].body["max_tokens"] == 99


async def test_too_little_time_is_said_before_anything_is_paid(start: Start) -> None:
    """A call whose deadline is nearly over starts no call of a model."""
    judge = await start()
    with pytest.raises((UnavailableError, grpc.aio.AioRpcError)), translated():
        await judge.stub.Grade(pb.GradeRequest(rubric="quality", question="q", answer="a"), timeout=0.15)
    assert judge.provider.requests == []


@pytest.mark.parametrize("batch", [False, True])
async def test_a_reply_with_several_choices_is_malformed(start: Start, batch: bool) -> None:
    """One message was asked for: of two none is more the verdict than the other, be they equal or not."""

    def twice(request: Any) -> Reply:
        reply = says(GOOD)(request)
        message = {"role": "assistant", "content": reply.text}
        choices = [{"index": n, "message": message, "finish_reason": "stop"} for n in range(2)]
        return Reply(raw=json.dumps({"id": "c", "object": "chat.completion", "choices": choices}).encode())

    own: dict[str, Any] = {"batch_base_urls": ("*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}
    judge = await start(twice, attempts=2, pause_s=0.01, **own)
    verdict = (await judge.grade(batch=batch)).verdict
    assert not verdict.scores
    assert verdict.reason == ("batch_result_missing" if batch else "judge_unavailable")
    assert "does not hold one message" in verdict.message


async def test_tokens_of_the_prompt_cache_are_priced(start: Start) -> None:
    """Cached tokens are counted within the input and cost a tenth."""
    used = Tokens(1_200, 150, cache_read=1_000)
    judge = await start(says(GOOD, usage=used), protocol="anthropic")
    usage = (await judge.grade()).verdict.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (1_200, 1_000)
    assert usage.cost_usd == pytest.approx(0.00105, abs=1e-12)
