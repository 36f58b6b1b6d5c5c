"""Refusals of providers: what of a request is left out, and whether another attempt is of use."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.providers.errors import ProviderStatusError
from assay.providers.parameters import LearnedParameters, Parameters, token_field_of
from assay.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Callable


SENT = Parameters(100, 0.5)
PROMPT = "Judge this answer about the weather: the mean temperature was 20 degrees."


def invalid_field(*place: str, **more: Any) -> dict[str, Any]:
    """Return the body of FastAPI's refusal of a field that it does not know."""
    return {
        "detail": [
            {"type": "extra_forbidden", "loc": ["body", *place], "msg": "Extra inputs are not permitted", **more}
        ]
    }


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "left"),
    [
        (400, error("temperature is not supported with this model"), "max_tokens"),
        (400, error("'temperature' does not support 0.5 with this model", code="unsupported_value"), "max_tokens"),
        (400, error("`temperature` is deprecated for this model"), "max_tokens"),
        (400, error("invalid temperature: only 1 is allowed for this model"), "max_tokens"),
        (400, error("`temperature` may only be set to 1 when thinking is enabled"), "max_tokens"),
        (400, error("temperature: only the default is possible"), "max_tokens"),
        (422, error("temperature: extra inputs are not permitted"), "max_tokens"),
        (422, invalid_field("temperature", input=0.5), "max_tokens"),
        (422, invalid_field("max_tokens"), "temperature max_completion_tokens"),
        (400, error("Unsupported parameter", param="max_tokens"), "temperature max_completion_tokens"),
        (400, error("max_tokens is deprecated: use max_completion_tokens"), "temperature max_completion_tokens"),
        (400, error("Invalid parameter: max_tokens"), "temperature max_completion_tokens"),
        (422, invalid_field("messages", "name", input="water at room temperature"), None),
        (400, error("unsupported content in 'room temperature'", param="messages"), None),
        (400, error("Invalid value for temperature: at most 1"), None),
        (400, error("temperature must be at most 1", code="invalid_value", param="temperature"), None),
        (400, error("max_tokens is too large: 100", param="max_tokens"), None),
        (404, error("temperature is not supported"), None),
        (500, error("unexpected temperature"), None),
    ],
)
def test_what_a_model_does_not_know_is_left_out(status: int, body: dict[str, Any], left: str | None) -> None:
    """An unknown field is dropped or renamed; a wrong value and a quoted prompt change nothing."""
    adapted = SENT.without_refused(ProviderStatusError(status, {}, body), PROMPT)
    if left is None or adapted is None:
        assert (adapted, left) == (None, None)
        return
    assert ("temperature " if adapted.temperature is not None else "") + adapted.token_field == left


@pytest.mark.parametrize(
    "answer",
    [
        "the temperature is not supported; max_tokens unsupported",
        'Say "temperature" \u00e9 is unknown\n\n"max_tokens"\t\u00e9 not allowed',
        "\uff54\uff45\uff4d\uff50erature is not supported",
    ],
    ids=["plain", "escaped", "full-width"],
)
@pytest.mark.parametrize("quoted", [str, json.dumps, lambda text: json.dumps(json.dumps(text)), str.upper, html.escape])
def test_a_quoted_prompt_changes_no_parameter(answer: str, quoted: Callable[[str], str]) -> None:
    """Whatever the answer says, and however the service quotes it: it names no parameter of the service's own."""
    refusal = ProviderStatusError(400, {}, error(f"the input cannot be processed: {quoted(answer)} is invalid"))
    assert SENT.without_refused(refusal, f"{PROMPT} {answer}") is None


def test_what_is_refused_twice_ends() -> None:
    """Each field changes once, so that a service that refuses everything is given up on."""
    refusal = ProviderStatusError(400, {}, error("unknown: temperature, max_tokens, max_completion_tokens"))
    first = SENT.without_refused(refusal, PROMPT)
    assert first is not None
    second = first.without_refused(refusal, PROMPT)
    assert second == Parameters(100, None, "max_completion_tokens", swapped=True)
    assert second.without_refused(refusal, PROMPT) is None


def test_requests_in_flight_together_learn_together() -> None:
    """Of two that were refused for different fields, the later one forgets nothing of the earlier one."""
    learned = LearnedParameters()
    assert learned.learn(SENT, Parameters(100, None)) == ["temperature"]
    assert learned.learn(SENT, Parameters(100, None)) == []
    learned.learn(SENT, Parameters(100, 0.5, "max_completion_tokens", swapped=True))
    assert learned.apply(Parameters(7, 0.5)) == Parameters(7, None, "max_completion_tokens", swapped=True)


def test_own_services_know_the_new_name() -> None:
    """Others usually know the older one only."""
    assert [token_field_of(url) for url in (None, "", "http://h/v1")] == [
        "max_completion_tokens", "max_completion_tokens", "max_tokens",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "headers", "fields", "may_pass", "throttles"),
    [
        (408, {}, {}, True, False),
        (409, {}, {}, True, False),
        (425, {}, {}, True, False),
        (429, {}, {}, True, True),
        (500, {}, {}, True, False),
        (529, {}, {}, True, False),
        (400, {}, {}, False, False),
        (400, {"x-should-retry": "true"}, {}, True, False),
        (429, {"x-should-retry": "false"}, {}, False, False),
        (503, {"x-should-retry": "false"}, {}, False, False),
        (503, {"x-should-retry": "perhaps"}, {}, True, False),
        (429, {}, {"code": "insufficient_quota"}, False, False),
        (429, {"x-should-retry": "true"}, {"type": "insufficient_quota"}, False, False),
        (429, {}, {"code": "billing_hard_limit_reached"}, False, False),
    ],
)
def test_whether_another_attempt_is_of_use(
    status: int, headers: dict[str, str], fields: dict[str, str], may_pass: bool, throttles: bool
) -> None:
    """The service's own advice counts more than the status, and a used-up quota more than both."""
    refusal = ProviderStatusError(status, headers, error("no", **fields))
    assert (refusal.may_pass, refusal.throttles) == (may_pass, throttles)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (error("one\n two\0"), "one two\ufffd"),
        ({"error": "text"}, "text"),
        ({"message": "outside"}, "outside"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"error": None}, ""),
        ("<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>"),
        ("", ""),
        (error("x" * 1_000), "x" * 500),
    ],
)
def test_the_words_of_a_service_are_one_clean_line(body: object, message: str) -> None:
    """They are shown in reports and sentences, wherever the service put them."""
    assert ProviderStatusError(500, {}, body).message == message


NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0.0),
        ({"retry-after": "Tuesday, 14-Nov-23 22:13:50 GMT"}, 30.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "1", "retry-after-ms": "1250"}, 1.25),
        ({"retry-after": "1", "retry-after-ms": "soon"}, 1.0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "Tue, 99 Nov 2023 22:14:20 GMT"}, None),
    ],
)
def test_seconds_dates_and_nonsense(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds and dates are read, milliseconds win, and what cannot be read asks for nothing."""
    assert retry_after_s(headers, now=NOW) == seconds
