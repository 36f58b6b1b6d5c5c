from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import AssayError
from assay.rpc.status import translated
from assay.testing.judges import says
from assay.testing.providers import Reply
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
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
