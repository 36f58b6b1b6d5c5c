"""Which judge a request gets, what names it, and what it may not name."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import InvalidInputError
from assay.judge.v1 import judge_pb2
from assay_judge.judges import JudgeChoice, Permissions, choose_judge
from assay_judge.wire import requested_judge

OWN = JudgeChoice("openai", "judge-1", "http://judge.test/v1", "JUDGE_KEY")
OTHER = JudgeChoice("openai", "judge-2", "http://other.test/v1", "OTHER_KEY")


def fields_of(choice: JudgeChoice) -> list[str]:
    """Return the fields of a judge's problems."""
    return [problem.field for problem in choice.problems("judge.")]


@pytest.mark.parametrize(
    ("choice", "url", "key", "identity"),
    [
        (JudgeChoice("openai", "m"), "https://api.openai.com/v1", "OPENAI_API_KEY", "openai:m"),
        (JudgeChoice("anthropic", "m"), "https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic:m"),
        (JudgeChoice("anthropic", "m", key_variable="K"), "https://api.anthropic.com", "K", "anthropic:m"),
        (JudgeChoice("openai", "m", "http://h/v1"), "http://h/v1", "", "openai:m@http://h/v1"),
        (JudgeChoice("openai", "m", "http://h/v1", "K"), "http://h/v1", "K", "openai:m@http://h/v1"),
    ],
)
def test_a_providers_own_service_is_asked_with_its_usual_key(
    choice: JudgeChoice, url: str, key: str, identity: str
) -> None:
    """Another service gets a key only where the variable is named: the usual one belongs to the provider."""
    assert (choice.url, choice.key_name, choice.identity) == (url, key, identity)


def test_no_judge_and_a_recording_need_no_key() -> None:
    """A recorded judge is called as it was when it was asked."""
    assert JudgeChoice().provider == "none"
    assert JudgeChoice().key_name == JudgeChoice("replay").key_name == ""
    assert JudgeChoice("replay", "openai:m").identity == "openai:m"
    assert JudgeChoice().problems("judge.") == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"provider": "opnai"}, "judge.provider"),
        ({"model": ""}, "judge.model"),
        ({"model": " "}, "judge.model"),
        ({"model": 301 * "m"}, "judge.model"),
        ({"provider": "replay", "base_url": "http://h/v1"}, "judge.base_url"),
        ({"provider": "none", "base_url": "http://h/v1"}, "judge.base_url"),
        ({"temperature": -0.1}, "judge.temperature"),
        ({"temperature": 2.1}, "judge.temperature"),
        ({"max_tokens": 0}, "judge.max_tokens"),
        ({"max_tokens": 100_001}, "judge.max_tokens"),
    ],
)
def test_what_is_wrong_with_a_judge_is_said_with_its_field(changes: dict[str, Any], field: str) -> None:
    """Each problem of a judge names its field."""
    problems = fields_of(JudgeChoice(**{"provider": "openai", "model": "m", **changes}))
    assert problems in ([field], ["judge.base_url", field] if "opnai" in changes.values() else [field])


@pytest.mark.parametrize(
    "changes",
    [
        {"model": 300 * "m"}, {"temperature": 0}, {"temperature": 2}, {"temperature": None}, {"max_tokens": 1},
        {"max_tokens": 100_000}, {"base_url": "https://h.test:8443/a/b"}, {"base_url": "http://[::1]:1"},
    ],
)  # fmt: skip
def test_bounds_belong_to_what_is_allowed(changes: dict[str, Any]) -> None:
    """Values at the bounds are allowed."""
    assert fields_of(JudgeChoice(**{"provider": "openai", "model": "m", **changes})) == []


@pytest.mark.parametrize(
    "url",
    [
        "h.test", "//h.test", "ftp://h.test", "http://", "http:///v1", "http://:80/v1", "http://h:0/", "http://h:x/",
        "http://h:70000/", "http://H.test/", "http://u@h/", "http://u:p@h/", "http://h/?q", "http://h/#f", "http://h /",
        "http://h/a b", "http://h\\x/", "http://h\u00e9/", "http://h/\u00e9", "http://h/\t", "http://h/\x7f", "http://[h/",
    ],
)  # fmt: skip
def test_an_address_that_two_readers_may_take_for_different_ones_is_refused(url: str) -> None:
    """The address that is compared with the operator's list is the one that is called."""
    assert fields_of(JudgeChoice("openai", "m", url)) == ["judge.base_url"]


def test_a_request_gets_the_servers_own_judge_or_one_that_is_allowed() -> None:
    """The server's own judge may be named with another temperature or length; others need the operator's list."""
    nothing = Permissions()
    assert choose_judge(None, OWN, nothing) == OWN
    own_again = JudgeChoice(OWN.provider, OWN.model, OWN.base_url, OWN.key_variable, temperature=1.0, max_tokens=7)
    assert choose_judge(own_again, OWN, nothing) == own_again
    allowed = Permissions(("openai:judge-*",), ("http://other.test",), ("OTHER_*",))
    assert choose_judge(OTHER, OWN, allowed) == OTHER
    with pytest.raises(InvalidInputError) as caught:
        choose_judge(OTHER, OWN, nothing)
    assert [problem.field for problem in caught.value.problems] == ["judge", "judge.base_url", "judge.key_variable"]
    with pytest.raises(InvalidInputError) as caught:
        choose_judge(JudgeChoice("openai", ""), OWN, allowed)
    assert [problem.field for problem in caught.value.problems] == ["judge.model"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"provider": "anthropic"}, "judge"),
        ({"model": "other"}, "judge"),
        ({"base_url": "http://other.test:81/v1"}, "judge.base_url"),
        ({"base_url": "https://other.test/v1"}, "judge.base_url"),
        ({"key_variable": "JUDGE_KEY"}, "judge.key_variable"),
    ],
)
def test_each_part_of_a_judge_has_a_list_of_its_own(changes: dict[str, Any], field: str) -> None:
    """An unlisted part is refused whatever the other parts are; an address is scheme, host and port."""
    allowed = Permissions(("openai:judge-*",), ("http://other.test",), ("OTHER_*",))
    asked = JudgeChoice(**{"provider": "openai", "model": "judge-2", **changes})
    with pytest.raises(InvalidInputError) as caught:
        choose_judge(asked, OWN, allowed)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("provider", ["none", "replay"])
def test_asking_no_service_needs_no_permission(provider: str) -> None:
    """A judge that calls no service needs no permission."""
    asked = JudgeChoice(provider)
    assert choose_judge(asked, OWN, Permissions()) == asked


def test_a_batch_needs_a_service_that_has_them() -> None:
    """Providers' own services have batches; others need the operator's list of scheme, host and port."""
    assert JudgeChoice("openai", "m").batch_problems((), "batch") == []
    listed = ("http://other.test", "http://third.test:8*")
    assert OTHER.batch_problems(listed, "batch") == []
    (problem,) = OTHER.batch_problems(("http://third.test",), "batch")
    assert (problem.field, "http://other.test is not known" in problem.message) == ("batch", True)
    (problem,) = JudgeChoice("replay").batch_problems(("*",), "batch")
    assert problem.field == "batch"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "key was refused (401 from judge.test). Set JUDGE_KEY where"), (403, "Set JUDGE_KEY where"),
        (402, "may spend no more"), (429, "may spend no more"), (404, "'judge-1' was not found (404 from judge.test)"),
    ],
)  # fmt: skip
def test_a_refusal_says_where_to_look(status: int, message: str) -> None:
    """The status alone decides the remedy."""
    assert message in OWN.remedy(status)
    assert OWN.remedy(400) == OWN.remedy(500) == ""


@pytest.mark.parametrize("provider", ["none", "replay"])
def test_a_key_for_no_service_is_refused(provider: str) -> None:
    """It would be sent nowhere: a request that names one is answered with a sentence, whatever is allowed."""
    with pytest.raises(InvalidInputError, match=f"K is not allowed here for {provider}") as refusal:
        choose_judge(JudgeChoice(provider, key_variable="K"), OWN, Permissions(key_variables=("K@judge.test",)))
    assert [problem.field for problem in refusal.value.problems] == ["judge.key_variable"]


def test_a_temperature_of_minus_zero_is_zero() -> None:
    """Equal judges have equal keys, whichever of them is asked first."""
    request = judge_pb2.GradeRequest()
    request.judge.temperature = -0.0
    judge = requested_judge(request, JudgeChoice("openai", "m"))
    assert judge is not None
    assert str(judge.temperature) == "0.0"
