from __future__ import annotations

import email.utils
import gzip
import logging
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.errors import AssayError
from assay.judge.v1 import judge_pb2 as pb
from assay.rpc.status import translated
from assay.testing.judges import says
from assay.testing.providers import Reply, Tokens
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]
    from collections.abc import Callable


KEY = "sk-planted-0123456789-abcdefghij"
GOOD = {"reasoning": "It is right.", "score": 4}
QUICK = {"pause_s": 0.01}


def passed_date() -> str:
    return email.utils.formatdate(time.time() - 5, usegmt=True)


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"retry-after": "0"}, {"retry-after": "0.02"}, {"retry-after-ms": "20"}, {"retry-after": passed_date()},
     {"retry-after": "soon"}, {"retry-after": "-1"}, {"retry-after": "nan"}],
    ids=["none", "0", "0.02", "20 ms", "a date that has passed", "soon", "-1", "nan"],
)  # fmt: skip
async def test_a_429_is_waited_out_in_whatever_form_it_comes(
    start: Start, protocol: str, headers: dict[str, str]
) -> None:
    """Seconds, milliseconds, a date, nothing or nonsense: the verdict is had in the end, and costs one call."""
    refusal = Reply("slow down", status=429, headers=headers)
    judge = await start(refusal, refusal, says(GOOD), protocol=protocol, **QUICK)
    verdict = (await judge.grade()).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert verdict.call_count == 3
    assert verdict.usage.cost_usd == pytest.approx(0.00195, abs=1e-12)


async def test_more_429s_than_attempts_lose_nothing(start: Start) -> None:
    """Being throttled uses up no attempts."""
    judge = await start(*[Reply("slow down", status=429, headers={"retry-after-ms": "1"})] * 4, says(GOOD), attempts=1,
                        pause_s=0.002)  # fmt: skip
    assert (await judge.grade()).verdict.status == pb.VERDICT_STATUS_VALID


async def test_a_retry_after_beyond_the_deadline_ends_with_the_deadline(start: Start) -> None:
    """A provider that asks for hours gets its peace; whoever waits is told in time what happened."""
    judge = await start(Reply("slow down", status=429, headers={"retry-after": "10000"}))
    verdict = (await judge.grade(timeout_ms=300)).verdict
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "rate_limited")
    assert "HTTP 429: slow down" in verdict.message
    assert verdict.call_count == 1


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "failure",
    [
        Reply("oh", status=500), Reply("overloaded", status=529), Reply("oh", status=503), Reply("oh", status=408),
        Reply("oh", status=409), Reply("x" * 400, cut=True), Reply(raw=b"<html>"), Reply(raw=b""), Reply(raw=b"[]"),
        Reply(raw=b'{"choices": [], "content": 3}'), Reply(raw=b'{"a": NaN}'),
        Reply("oh", status=500, raw=b"\xff<html>"),
        Reply(raw=gzip.compress(b"{}"), headers={"content-encoding": "gzip"}), Reply(raw=b" " * 5_000_000),
    ],
    ids=["500", "529", "503", "408", "409", "cut", "html", "no body", "list", "no message", "nan", "500 html", "gzip",
         "huge"],
)  # fmt: skip
async def test_failures_that_may_pass_are_tried_again(start: Start, protocol: str, failure: Reply) -> None:
    """The next attempt counts; one that never stops failing ends as unavailable, with its reason, never a number."""
    judge = await start(failure, says(GOOD), protocol=protocol, **QUICK)
    assert dict((await judge.grade()).verdict.scores) == {"score": 4.0}
    assert len(judge.provider.requests) == 2


@pytest.mark.parametrize("failure", [Reply("oh", status=500), Reply("x" * 400, cut=True), Reply(raw=b"<html>")])
async def test_what_never_stops_failing_is_unavailable(start: Start, failure: Reply) -> None:
    """After so many attempts there is a reason and no score."""
    judge = await start(failure, attempts=3, **QUICK)
    verdict = (await judge.grade()).verdict
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "judge_unavailable")
    assert verdict.call_count == len(judge.provider.requests) == 3
    assert not verdict.scores
    assert verdict.message


@pytest.mark.parametrize(
    "failure", [Reply("{}", delay_s=30), Reply('{"x": 1}' * 50, drip_s=0.05)], ids=["silent", "dripping"]
)
async def test_an_attempt_has_a_limit_that_bytes_do_not_restart(start: Start, failure: Reply) -> None:
    """A judge that is silent and one that drips a byte now and then are both given up in time."""
    judge = await start(failure, attempts=1, attempt_timeout_s=1.0)  # the request must have been sent by then
    verdict = (await judge.grade()).verdict
    assert verdict.reason == "judge_unavailable"
    assert "no answer within 1 s" in verdict.message
    # Nobody knows what it cost: the most that it may have is on the bill.
    assert verdict.usage.cost_usd > 0.01


async def test_an_unreachable_judge_costs_nothing(start: Start) -> None:
    """A connection that was refused is not billed."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    judge = await start(judge=JudgeChoice("openai", "m", f"http://127.0.0.1:{port}/v1"), attempts=2, **QUICK)
    verdict = (await judge.grade(run_id="r")).verdict
    assert verdict.reason == "judge_unavailable"
    assert verdict.usage.cost_usd == 0


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_will_not_pass_is_not_tried_again(start: Start, protocol: str, status: int) -> None:
    """One call, and the provider's own words; who is not let in at all is told apart."""
    judge = await start(Reply("no such thing", status=status), protocol=protocol)
    verdict = (await judge.grade()).verdict
    reason = "judge_denied" if status in (401, 403, 404) else "judge_refuses_request"
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, reason)
    assert f"({status} from 127.0.0.1:" in verdict.message or verdict.message.startswith(f"HTTP {status}: ")
    assert verdict.message.endswith("no such thing")
    assert len(judge.provider.requests) == 1


async def test_a_quota_that_is_used_up_is_no_throttling(start: Start) -> None:
    """A 429 for lack of money does not pass by waiting."""
    judge = await start(Reply("You exceeded your quota", status=429, error={"code": "insufficient_quota"}))
    assert (await judge.grade()).verdict.reason == "judge_denied"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_temperature_that_is_refused_is_left_out_and_remembered(start: Start, protocol: str) -> None:
    """The first call learns it, the next ones know; each verdict says what was sent."""
    refusal = Reply("temperature is not supported with this model", status=400, error={"param": "temperature"})
    judge = await start(refusal, says(GOOD), protocol=protocol)
    first = (await judge.grade()).verdict
    second = (await judge.grade("Lyon")).verdict
    assert first.status == second.status == pb.VERDICT_STATUS_VALID
    assert not first.HasField("temperature")
    assert (first.call_count, second.call_count) == (2, 1)
    assert [("temperature" in request.body) for request in judge.provider.requests] == [True, False, False]


async def test_services_without_schemas_are_asked_more_simply(start: Start) -> None:
    """A server that knows no json_schema is asked for an object, then in words alone; the verdict is checked anyway."""
    refusals = [
        Reply("response_format.type json_schema is unknown", status=400),
        Reply("'response_format' is not supported", status=400),
    ]
    judge = await start(*refusals, says(GOOD))
    assert (await judge.grade()).verdict.status == pb.VERDICT_STATUS_VALID
    formats = [request.body.get("response_format", {}).get("type") for request in judge.provider.requests]
    assert formats == ["json_schema", "json_object", None]


async def test_the_other_name_of_max_tokens_is_tried(start: Start) -> None:
    """Services disagree about what the limit is called."""
    refusal = Reply("Unsupported parameter: 'max_tokens', use 'max_completion_tokens'", status=400,
                    error={"code": "unsupported_parameter", "param": "max_tokens"})  # fmt: skip
    judge = await start(refusal, says(GOOD))
    assert (await judge.grade()).verdict.status == pb.VERDICT_STATUS_VALID
    assert judge.provider.requests[1].body["max_completion_tokens"] == 2_048


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_keys_are_in_no_message_and_no_log(
    start: Start, protocol: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Not even where the provider repeats the key, whole or cut, and everything logs all it can."""
    caplog.set_level(logging.DEBUG)
    replies = [
        Reply(f"Incorrect API key provided: {KEY}", status=401),
        Reply(f"Bearer {KEY[:20]}", status=403),
        Reply("x" * 480 + KEY, status=400),
        Reply("oh", status=500, raw=KEY.encode()),
        Reply(raw=f"<html>{KEY}".encode()),
    ]
    judge = await start(*replies, protocol=protocol, attempts=1, state_dir=tmp_path / "state")
    said = [str(await judge.grade(f"answer {index}")) for index in range(len(replies))]
    assert len(judge.provider.requests) == len(replies)
    files = [path.read_bytes() for path in (tmp_path / "state").iterdir()]
    for text in (*said, caplog.text, *(file.decode("latin-1") for file in files)):
        assert KEY not in text
        assert KEY[:12] not in text


@pytest.mark.parametrize(
    ("headers", "settings", "said"),
    [
        ({"x-ratelimit-limit-tokens": "2000", "x-ratelimit-remaining-tokens": "0"}, {}, "provider allows 2,000 tokens"),
        ({"x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0"}, {}, "provider allows 1 requests"),
        ({}, {"limits": "limits: [{model: '*', requests_per_minute: 1}]"}, "--limits allows 1 requests"),
    ],
    ids=["tokens", "requests", "limits"],
)
async def test_a_call_that_waits_for_its_own_pace_says_so(
    start: Start, tmp_path: Path, headers: dict[str, str], settings: dict[str, str], said: str
) -> None:
    """Nothing is wrong with the judge: the sentence names the rate, and who allows it."""
    if settings:
        (tmp_path / "limits.yaml").write_text(settings["limits"])
    own = {"limits": tmp_path / "limits.yaml"} if settings else {}
    judge = await start(says(GOOD, headers=headers, usage=Tokens(9_000, 150)), **own)
    assert (await judge.grade("a")).verdict.status == pb.VERDICT_STATUS_VALID
    verdict = (await judge.grade("b", timeout_ms=300)).verdict
    assert verdict.reason == "deadline_exceeded"
    assert f"the judge waited for its own pace: {'' if said[0] == '-' else 'the '}{said} a minute" in verdict.message


async def test_a_limit_that_allows_nothing_is_none(start: Start) -> None:
    """One wrong header does not stop a judge for all that come later."""
    limits = {"x-ratelimit-limit-tokens": "0.001", "x-ratelimit-remaining-tokens": "0"}
    judge = await start(says(GOOD, headers=limits))
    for answer in "abc":
        assert (await judge.grade(answer, timeout_ms=5_000)).verdict.status == pb.VERDICT_STATUS_VALID


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_lost_call_costs_what_the_repaired_one_shows(start: Start, protocol: str) -> None:
    """It was read like the one that was answered, and wrote `max_tokens` at most; the account says what is unknown."""
    judge = await start(Reply("{}", cut=True), says(GOOD), protocol=protocol, pause_s=0.01)
    response = await judge.grade("a", run_id="r")
    assert response.verdict.status == pb.VERDICT_STATUS_VALID
    lost, paid = (one.cost_usd for one in response.verdict.calls)
    spending = response.spending
    assert paid == pytest.approx(0.00195)
    assert spending.spent_nano_usd / 1e9 == pytest.approx(paid + lost)
    assert spending.spent_nano_usd / 1e9 == pytest.approx(response.verdict.usage.cost_usd)
    assert spending.unknown_nano_usd / 1e9 == pytest.approx(lost)
    # Without a usage that shows more: a token for each of at least 4,000 bytes, and 2,000 around them.
    assert 0.0012 + 2_048 * 5e-6 <= lost < 0.006 + 2_048 * 5e-6


async def test_a_client_that_leaves_ends_its_call(start: Start) -> None:
    """Nobody waits for an answer that nobody wants; what it may have cost stays on the run's bill."""
    judge = await start(Reply("{}", delay_s=30), says(GOOD))
    asked = pb.GradeRequest(rubric="quality", question="q", answer="a", run_id="r")
    call = judge.stub.Grade(asked, timeout=180)
    await until(lambda: judge.provider.requests)
    call.cancel()
    response = await judge.grade("b", run_id="r")
    assert response.verdict.status == pb.VERDICT_STATUS_VALID
    assert response.spending.reserved_nano_usd == 0
    assert response.spending.spent_nano_usd / 1e9 > response.verdict.usage.cost_usd


WEB_PAGE = b"<!doctype html><html><title>Welcome</title></html>"
NO_SCALE = (
    "name: tone\ndescription: Is it friendly?\ncriteria: [{name: warmth, description: Warm?, anchors: {5: very}}]"
)
WITHOUT_LIMITS = {"attempts": 2, "pause_s": 0.01}


@pytest.mark.parametrize(
    ("reply", "settings", "said"),
    [
        (Reply("Incorrect API key provided", status=401), {},
         "The judge's key was refused (401 from {host}). Set JUDGE_KEY where the judge runs. The service says: Inc"),
        (Reply("no", status=403), {}, "The judge's key was refused (403 from {host}). Set JUDGE_KEY where"),
        (Reply("The model `judge-1` does not exist", status=404), {},
         "The judge's model 'judge-1' was not found (404 from {host}). Check the model and http://{host}"),
        (Reply("You exceeded your quota", status=429, error={"code": "insufficient_quota"}), {},
         "The judge's account may spend no more (429 from {host}). Check its plan and billing. The service"),
        (Reply(raw=WEB_PAGE, headers={"content-type": "text/html"}), WITHOUT_LIMITS,
         "no answer after 2 attempts; last: the reply is a web page and not a model's: check base_url: <!doctype"),
        (Reply(raw=WEB_PAGE, status=404), {},
         "The judge's model 'judge-1' was not found (404 from {host}). Check the model and http://{host}"),
    ],
    ids=["wrong key", "forbidden", "unknown model", "no money", "web page", "web page for 404"],
)  # fmt: skip
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_what_a_judge_answers_comes_with_what_to_do(
    start: Start, protocol: str, reply: Reply, settings: dict[str, Any], said: str
) -> None:
    """One sentence: the provider's own words, and where to look."""
    judge = await start(reply, protocol=protocol, **settings)
    verdict = (await judge.grade()).verdict
    assert verdict.message.startswith(said.replace("{host}", judge.provider.url.removeprefix("http://")))
    assert "\n" not in verdict.message
    assert not verdict.scores


async def test_a_service_that_wants_a_key_and_gets_none(start: Start, scripted: Any) -> None:
    """Where no key was named, the sentence says how to name one."""
    judge = await start()
    other = scripted(Reply("Unauthorized", status=401))
    asked = {"provider": "openai", "model": "m", "base_url": other.openai_url}
    assert (await judge.grade(judge=asked)).verdict.message == (
        f"The judge needs a key (401 from {other.url.removeprefix('http://')}). "
        "Name the variable that holds it with key_variable. The service says: Unauthorized"
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rubric": "qualty"}, "unknown rubric 'qualty'; did you mean 'quality'?"),
        ({"rubric": "", "rubric_yaml": NO_SCALE}, "5 is not on the scale from 0 to 1"),
        ({"judge": {"provider": "openai", "model": "m"}}, "OPENAI_API_KEY is not set where the judge service"),
        ({"judge": {"provider": "openai", "model": "m", "base_url": "api.example/v1"}}, "must be http(s)://host[:port]"),
    ],
    ids=["unknown rubric", "rubric without scale", "missing key", "base_url without scheme"],
)  # fmt: skip
async def test_what_cannot_be_asked_at_all_says_what_to_do(start: Start, asked: dict[str, Any], said: str) -> None:
    """Before anything is paid for, with the field."""
    judge = await start()
    with pytest.raises(AssayError) as caught, translated():
        await judge.grade(**asked)
    problems = [str(problem) for problem in getattr(caught.value, "problems", [])]
    assert any(said in text for text in [caught.value.message, *problems])
    assert judge.provider.requests == []


async def test_a_rubric_without_a_scale_is_from_0_to_1(start: Start) -> None:
    """Scores off it are no verdict."""
    rubric = NO_SCALE.replace("{5: very}", "{1: very}")
    judge = await start(says({"reasoning": "Warm.", "warmth": 0.5}), says({"reasoning": "Warm.", "warmth": 5}))
    assert dict((await judge.grade(rubric="", rubric_yaml=rubric)).verdict.scores) == {"warmth": 0.5}
    assert (await judge.grade("b", rubric="", rubric_yaml=rubric)).verdict.reason == "invalid_verdict"


async def test_an_unknown_model_of_the_operators_is_no_zero(start: Start) -> None:
    """A judge that was shut down is a reason, never a score."""
    judge = await start(Reply("model not found", status=404), judge=JudgeChoice())
    assert (await judge.grade()).verdict.reason == "judge_not_configured"
