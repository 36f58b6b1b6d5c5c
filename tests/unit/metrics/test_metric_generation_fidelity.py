"""Generation fidelity: length or refusal, script, numbers, and phrases that betray a guess."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_verdict
from assay.metrics.core.score import Metric, Row
from assay.metrics.generation_fidelity import script_ratio
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec

OPEN_TENDERS = "يوجد حالياً 42 مناقصة مطروحة في منطقة الرياض."
MARKS = "\u0640\u064b\u064c\u064e\u0651\u0670\u200e\u200f\u202b\u2067\u061c"
CHECKS = ("status_ok", "script_ok", "numbers_ok", "markers_ok")


def told(
    text: str, data_rows: int | None = 1, status: str = "success", category: str = "count", sql: str | None = None
) -> Row:
    """A row of an agent that tells what it retrieved."""
    response = AgentResponse(
        status=AgentStatus(status),
        text=text,
        sql=sql,
        data_rows=data_rows,
        error=AgentError(AgentErrorKind.RAISED, "no") if status == "error" else None,
    )
    return Row(Case("case", (Turn("question"),), category=category, expected={"expected_table": "t"}), response)


def checks_of(detail: Any) -> str:
    """The four checks as a text of ticks and crosses."""
    return "".join("✓" if detail[check] else "✗" for check in CHECKS)


@pytest.mark.parametrize(
    ("row", "checks", "value"),
    [
        (told(OPEN_TENDERS), "✓✓✓✓", 1.0),
        (told(OPEN_TENDERS.replace("42", "٤٢")), "✓✓✓✓", 1.0),
        (told("يوجد عدد من المناقصات المطروحة في منطقة الرياض حاليا"), "✓✓✗✓", 1.0),
        (told("ربما يوجد عدد من المناقصات المطروحة في منطقة الرياض حاليا"), "✓✓✗✗", 0.0),
        (told("There are 42 open tenders in the Riyadh region today."), "✓✗✓✓", 1.0),
        (told("عذراً، غير متوفرة البيانات...", 0, "out_of_scope", "out_of_scope"), "✓✓✗✓", 1.0),
        (told("عذرًا، غير متوفرة البيانات المطلوبة", 0, "out_of_scope", "out_of_scope"), "✓✓✗✓", 1.0),
        (told("Sorry, no data is available.", 0, "out_of_scope", "out_of_scope"), "✗✗✗✓", 0.0),
        (told("الطقس اليوم مشمس ودرجة الحرارة معتدلة في جميع المناطق", 0, category="out_of_scope"), "✗✓✗✓", 0.0),
        (told("عدد المناقصات الحالية: 42"), "✗✓✓✓", 1.0),
        (told("", 0), "✗✗✗✓", 0.0),
    ],
)
def test_known_rows(metric: Callable[..., Metric], row: Row, checks: str, value: float) -> None:
    """Three of four checks are enough, and a right refusal has exactly three."""
    score = metric("generation_fidelity").score(row)
    assert (checks_of(score.detail), score.detail["points"]) == (checks, checks.count("✓"))
    assert (score.value, score.passed, bool(score.reason)) == (value, value == 1.0, value == 0.0)


@pytest.mark.parametrize(
    ("text", "script", "ratio"),
    [
        ("عدد: 1,234,567", "arabic", 1.0),
        ("Total المجموع", "arabic", 0.5833333333),
        ("The tender عدد", "arabic", 0.25),
        ("abcdefg ابت", "arabic", 0.3),
        ("abcdefghijklm ابجدهو", "arabic", 0.3157894737),
        ("12345", "arabic", 0.0),
        ("", "arabic", 0.0),
        ("عـــدد عَدَد", "arabic", 1.0),
        ("\ufecb\ufeac\ufead\ufe8d", "arabic", 1.0),
        ("The tender عدد", "latin", 0.75),
        ("naïve Straße", "latin", 1.0),
        ("Москва", "latin", 0.0),
        ("Москва", "any", 1.0),
        ("12345", "any", 0.0),
    ],
)
def test_known_shares_of_letters(text: str, script: str, ratio: float) -> None:
    """Only letters count; marks, tatweel, digits and punctuation are in neither count."""
    assert script_ratio(text, script) == pytest.approx(ratio, abs=1e-9)


def test_exactly_the_threshold_is_not_enough(metric: Callable[..., Metric]) -> None:
    """A share of 0.30 is not more than 0.30, and 30 characters are not more than 30."""
    assert metric("generation_fidelity").score(told("abcdefg ابت")).detail["script_ok"] is False
    assert metric("generation_fidelity").score(told(" " + "ا" * 30 + " ")).detail["status_ok"] is False
    assert metric("generation_fidelity").score(told("ا" * 31)).detail["status_ok"] is True


@pytest.mark.parametrize(
    ("digit", "counts"), [("7", True), ("٧", True), ("۷", True), ("²", False), ("½", False), ("سبعة", False)]
)
def test_digits_are_those_of_any_script(metric: Callable[..., Metric], digit: str, counts: bool) -> None:
    """Superscripts, fractions and number words are no digits; without data no digit counts."""
    assert metric("generation_fidelity").score(told(digit)).detail["numbers_ok"] is counts
    assert metric("generation_fidelity").score(told(digit, 0)).detail["numbers_ok"] is False
    assert metric("generation_fidelity").score(told(digit, None)).detail["numbers_ok"] is False


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("I’M NOT SURE, probably", ["i'm not sure", "probably"]),
        ("improbably", []),
        ("ولنفترض أن", ["لنفترض"]),
        ("لا أملِك معلومات", ["لا أملك معلومات"]),
        ("i thinker", []),
        ("Lorem\u00a0ipsum", ["lorem ipsum"]),
    ],
)
def test_markers_are_found_as_words(metric: Callable[..., Metric], text: str, markers: list[str]) -> None:
    """Folding unifies spelling, a particle may be attached, and parts of words do not count."""
    score = metric("generation_fidelity").score(told(text))
    assert score.detail["markers"] == markers
    assert score.detail["markers_ok"] is not bool(markers)


@pytest.mark.parametrize(("text", "refuses"), [("فعذرا", True), ("وعذراً", True), ("بعذر", False), ("لعذرا", False)])
def test_a_refusal_takes_two_particles_only(metric: Callable[..., Metric], text: str, refuses: bool) -> None:
    """The particles of a refusal are fewer than those of other phrases."""
    row = told(text, 0, "out_of_scope", "out_of_scope")
    assert metric("generation_fidelity").score(row).detail["status_ok"] is refuses


def test_parameters_change_one_thing_each(metric: Callable[..., Metric]) -> None:
    """Script, length and both lists of phrases can be configured; phrases that fold to nothing never match."""
    row = told("There are 42 tenders, maybe.")
    assert checks_of(metric("generation_fidelity").score(row).detail) == "✗✗✓✓"
    loose = metric("generation_fidelity", script="latin", min_chars=5, hallucination_markers=["maybe", "\u200b"])
    score = loose.score(row)
    assert checks_of(score.detail) == "✓✓✓✗"
    assert score.detail["markers"] == ["maybe"]
    sorry = metric("generation_fidelity", script="any", refusal_markers=["sorry"])
    assert sorry.score(told("Sorry, no data.", 0, "out_of_scope", "out_of_scope")).value == 1.0
    assert metric("generation_fidelity", script_threshold=0.2).score(told("The tender عدد")).detail["script_ok"] is True


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (told("maybe"), "too_short, other_script, no_numbers"),
        (told("Sorry", 0, "out_of_scope", "out_of_scope"), "no_refusal, other_script, no_numbers"),
        (told("ربما نعم", category="out_of_scope"), "no_refusal, no_numbers, marker_found"),
        (told("", None, "error"), "agent_error"),
    ],
)
def test_a_wrong_row_says_why(metric: Callable[..., Metric], row: Row, reason: str) -> None:
    """The reason names the checks that failed."""
    assert metric("generation_fidelity").score(row).reason == reason


@given(
    st.text(OPEN_TENDERS + "abc٤ ربما عذرا", max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(MARKS))),
    st.sampled_from(["success", "out_of_scope"]),
)
def test_marks_never_change_a_result(text: str, marks: list[tuple[int, str]], status: str) -> None:
    """Diacritics, tatweel and bidi marks anywhere have no effect but on the length."""
    text = unicodedata.normalize("NFC", text)
    marked = list(text)
    for position, mark in marks:
        marked.insert(min(position, len(marked)), mark)
    parameters = complete_parameters("generation_fidelity", {"min_chars": 0}, where="metrics[0]")
    built = build_metric(MetricSpec("generation_fidelity", parameters))
    plain, other = (built.score(told(one, 1, status)).detail for one in (text, "".join(marked)))
    kept = [*CHECKS[1:], "markers", "script_ratio"] + (["status_ok"] if status == "out_of_scope" else [])
    assert {name: other[name] for name in kept} == {name: plain[name] for name in kept}


def test_the_verdict_of_a_row_needs_both_metrics(
    metric: Callable[..., Metric], result: Callable[..., Any], fold: Callable[..., Any]
) -> None:
    """20 rows, 18 with the right data, 17 with a true text, 17 with both: 90 %, 85 %, 85 %."""
    right = told(OPEN_TENDERS, 1, sql="SELECT 1 FROM t")
    vague = told("ربما", 1, sql="SELECT 1 FROM t")
    wrong = told("ربما", 0, sql=None)
    rows = [right] * 17 + [vague] + [wrong] * 2
    metrics = [metric("retrieval_accuracy"), metric("generation_fidelity")]
    assert [fold(one, rows).value for one in metrics] == [pytest.approx(0.90), pytest.approx(0.85)]
    verdicts = [result(row, metrics).passed for row in rows]
    assert (verdicts.count(True), verdicts.count(False)) == (17, 3)


def test_an_agent_error_fails_the_row_whatever_it_holds(metric: Callable[..., Metric]) -> None:
    """A failed agent fails the row even if both metrics are satisfied."""
    row = told(OPEN_TENDERS, 1, "error", sql="SELECT 1 FROM t")
    scores = [metric(name).score(row) for name in ("retrieval_accuracy", "generation_fidelity")]
    assert [score.value for score in scores] == [1.0, 1.0]
    assert row_verdict(row.response.status, scores) is False
