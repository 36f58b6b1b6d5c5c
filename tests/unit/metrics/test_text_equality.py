"""One equality of texts: every metric and check takes the same pairs for the same, and the same texts for blank."""

from __future__ import annotations

from typing import Any

import pytest

import assay
from assay.text.equality import composed_json, is_blank, json_equal, same_text, without_punctuation

COMPOSED, APART = "caf\u00e9", "cafe\u0301"
BLANKS = ["", " ", "\u200b", "\ufeff", "\u2060\n", "\u00ad", "\u3164", "\u200e\u3000", "\x07", "\u2800"]

METRICS: dict[str, dict[str, Any]] = {
    "exact_match": {},
    "contains": {"values": [COMPOSED]},
    "contains as it is": {"values": [COMPOSED], "case_sensitive": True},
    "contains words": {"values": [COMPOSED], "as_words": True},
    "regex": {"pattern": f"^{COMPOSED}$"},
    "regex of all": {"pattern": COMPOSED, "mode": "fullmatch"},
    "rouge": {},
}
CHECKS: list[dict[str, Any]] = [
    {"type": "equals", "value": COMPOSED},
    {"type": "contains", "value": COMPOSED},
    {"type": "icontains", "value": COMPOSED.upper()},
    {"type": "contains-all", "value": [COMPOSED]},
    {"type": "contains-any", "value": ["x", COMPOSED]},
    {"type": "icontains-all", "value": [COMPOSED.upper()]},
    {"type": "icontains-any", "value": ["x", COMPOSED.upper()]},
    {"type": "starts-with", "value": COMPOSED},
    {"type": "regex", "value": f"^{COMPOSED}$"},
    {"type": "levenshtein", "value": COMPOSED, "threshold": 0},
    {"type": "rouge-n", "value": COMPOSED},
    {"type": "word-count", "value": 1},
]
JSON_CHECKS: list[dict[str, Any]] = [
    {"type": "equals", "value": {COMPOSED: [COMPOSED]}},
    {"type": "is-json", "value": {"properties": {COMPOSED: {"const": [COMPOSED]}}, "required": [COMPOSED]}},
    {"type": "contains-json", "value": {"properties": {COMPOSED: {"enum": [[COMPOSED]]}}, "required": [COMPOSED]}},
]


@pytest.mark.parametrize("answer", [COMPOSED, APART, f"\ufeff{APART}\u200b"])
@pytest.mark.parametrize("name", METRICS)
def test_a_metric_takes_both_forms_for_the_same(name: str, answer: str) -> None:
    """An accent may be a character of its own, and a byte order mark may come along."""
    assert assay.score(name.partition(" ")[0], answer, COMPOSED, **METRICS[name]).value == 1.0


@pytest.mark.parametrize("answer", [COMPOSED, APART, f"\ufeff{APART}\u200b"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check["type"]))
def test_a_check_takes_both_forms_for_the_same(check: dict[str, Any], answer: str) -> None:
    """So does its opposite: a forbidden word is found in either form."""
    assert assay.score("assertions", answer, assertions=[check]).value == 1.0
    forbidden = {**check, "type": f"not-{check['type']}"}
    assert assay.score("assertions", answer, assertions=[forbidden]).value == 0.0


@pytest.mark.parametrize("check", JSON_CHECKS, ids=lambda check: str(check["type"]))
def test_json_takes_both_forms_for_the_same(check: dict[str, Any]) -> None:
    """In keys and in values."""
    answer = f'\ufeff{{"{APART}": ["{APART}"]}}'
    assert assay.score("assertions", answer, assertions=[check]).value == 1.0


@pytest.mark.parametrize("match", ["exact", "subset", "unordered"])
def test_calls_of_tools_take_both_forms_for_the_same(match: str) -> None:
    """In names, in arguments, and in numbers."""
    answer = {"text": "", "tool_calls": [{"name": APART, "arguments": {APART: [APART, 42.0]}}]}
    tool = {"name": COMPOSED, "arguments": {COMPOSED: [COMPOSED, 42]}, "match": match}
    assert assay.score("tool_calls", answer, expected_tools=[tool]).value == 1.0
    for check in ({"type": "trajectory:tool-used", "value": COMPOSED}, {"type": "tool-call-f1", "value": [COMPOSED]}):
        assert assay.score("assertions", answer, assertions=[check]).value == 1.0


@pytest.mark.parametrize("blank", BLANKS)
def test_blank_is_blank_for_every_metric(blank: str) -> None:
    """An answer that shows nothing has the score of an empty one, and a reference that shows nothing is none."""
    assert is_blank(blank)
    assert assay.score("exact_match", "x", blank).reason == "no_reference"
    for metric, parameters in METRICS.items():
        kind = metric.partition(" ")[0]
        assert assay.score(kind, blank, "x", **parameters).value == assay.score(kind, "", "x", **parameters).value == 0
    for check in (*CHECKS, *JSON_CHECKS):
        assert assay.score("assertions", blank, assertions=[check]).value == 0.0
    with assay.Scorer("semantic_similarity", embed=lambda texts: [[1.0, 0.0] for _ in texts]) as scorer:
        similar = scorer.score(blank, "x")
    assert (similar.value, similar.reason) == (0.0, "empty_output")


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        *(("42.0", expected, True) for expected in (42, "42", "42.00", " 42 ", "+42", "٤٢", 42.0)),
        ("1e2", 100, True), ("\u22125", -5, True), (".5", 0.5, True), ("42%", "42.0 %", True), ("0.1", 0.1, True),
        ("42%", 42, False), ("042", "42", False), ("1,000", 1000, False), ("42 km", 42, False), ("true", 1, False),
        ("1e9999", "1e9998", False), ("42.0000000000000000001", 42, False),
    ],
)  # fmt: skip
def test_numbers_are_the_same_by_value(answer: str, expected: Any, same: bool) -> None:
    """In the check `equals`, and in exact_match where that is asked for."""
    assert assay.score("assertions", answer, assertions=[{"type": "equals", "value": expected}]).value == float(same)
    assert same_text(answer, str(expected), numbers=True) is same
    assert assay.score("exact_match", answer, str(expected), numbers=True).value == float(same)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        *((number, number) for number in ("1.5", "-5", "60%", "60 %", "10:30", "1/2", ".5", "1..5", "5 - 3", "3,14")),
        *((number, number) for number in ("\u22125", "-$5", "٤٢٪", "1,000.50", "v1.5", "2026-11-27")),
        ("(42).", "42"), ("**42**", "42"), ("42!", "42"), ("- 42", "42"), ("#42", "42"), ("(-5)", "-5"),
        ("50%.", "50%"), ("\u201860%\u2019", "60%"), ("...5", "5"), ("5, 3", "5 3"), ("don't", "dont"),
        ("covid-19", "covid19"), ("\u00abParis\u00bb!", "Paris"), ("?!", ""), ("x=-5", "x-=5"),
        ("%60", "%60"), ("1e-3", "1e-3"), ("2 e-mails", "2 emails"),
    ],
)  # fmt: skip
def test_punctuation_stays_where_it_belongs_to_a_number(text: str, left: str) -> None:
    """Without it, another number would be the same."""
    assert without_punctuation(text) == left


def test_json_values_are_equal_by_value() -> None:
    """True is not 1, two keys that differ in their form alone stay two, and a flag keeps its region."""
    assert json_equal({"a": 1}, {"a": 1.0})
    assert not json_equal([True], [1])
    assert not json_equal({COMPOSED: 1}, {COMPOSED: 1, APART: 2})
    assert len(composed_json({COMPOSED: 1, APART: 2})) == 2
    england, scotland = ("\U0001f3f4" + "".join(chr(0xE0000 + ord(char)) for char in tag) for tag in ("gbeng", "gbsct"))
    assert not same_text(f"{england}\U000e007f", f"{scotland}\U000e007f")
