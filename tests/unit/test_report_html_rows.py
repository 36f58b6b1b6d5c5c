"""What the HTML report holds of a row: texts cut where readers see no difference, and where answers differ."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reports.report_documents import failed, row, score

from assay.reports.formats.html.row_data import MAX_TEXT_CHARS, MIN_TEXT_CHARS, detail_of, preview, script_json
from assay.reports.formats.html.row_figures import RowFigures
from assay.reports.formats.html.svg import interval_bar
from assay.reports.formats.html.word_diff import MAX_WORDS, Ranges, differences

WORDS = st.lists(
    st.sampled_from(["red", "ring", " ", ".", "\n", "مناقصة", "日", "本", "😀", "e\u0301"]), max_size=30
).map("".join)


def detail(**changes: Any) -> dict[str, Any]:
    """Return the detail of a failed row without a limit."""
    found: dict[str, Any] = json.loads(detail_of(failed("c1", **changes), 10**9))
    return found


def without(text: str, ranges: Ranges) -> str:
    """Return what is left of a text, counted in UTF-16 code units."""
    units, kept, end = text.encode("utf-16-le"), b"", 0
    for first, last in ranges:
        kept += units[2 * end : 2 * first]
        end = last
    return (kept + units[2 * end :]).decode("utf-16-le")


@given(WORDS, WORDS)
def test_what_does_not_differ_is_the_same(text: str, other: str) -> None:
    """Without the ranges that differ both texts are equal, also of characters that JavaScript counts twice."""
    ranges = differences(text, other)
    assert ranges is not None
    assert without(text, ranges[0]) == without(other, ranges[1])


def test_differences_are_whole_words() -> None:
    """A changed word is marked as a whole, its punctuation is not."""
    assert differences("The 😀 ring is red.", "The 😀 ring is blue.") == ([(15, 18)], [(15, 19)])
    assert differences("same", "same") == ([], [])
    assert differences("حلقة حمراء", "حلقة زرقاء") == ([(5, 10)], [(5, 10)])


def test_long_texts_differ_by_lines() -> None:
    """Above the limit of words a line is marked as a whole."""
    lines = [" ".join(f"w{place}-{word}" for word in range(10)) + "\n" for place in range(MAX_WORDS // 10)]
    changed = [*lines[:-1], "another last line\n"]
    ranges = differences("".join(lines), "".join(changed))
    start = sum(map(len, lines[:-1]))
    assert ranges == ([(start, start + len(lines[-1]))], [(start, start + len(changed[-1]))])


def test_texts_that_repeat_themselves_are_not_compared() -> None:
    """A text of one word a thousand times costs no minutes: it has no differences, and its page says why."""
    assert differences("a\n" * 1_000, "a\n" * 1_500) is None


def test_only_failed_rows_have_differences() -> None:
    """They travel for those alone that people look at."""
    assert detail(answer="red", references=["blue"])["differences"] == [[[0, 3]], [[0, 4]]]
    assert "differences" not in json.loads(detail_of(row(), 10**9))
    assert "differences" not in detail(answer="", references=["blue"])


@pytest.mark.parametrize("end", ["e\u0301", "👍🏽", "👩\u200d👩\u200d👧", "क्षि"], ids=ascii)
def test_texts_are_cut_between_what_readers_see_as_characters(end: str) -> None:
    """A sign keeps its accents, tones and joined parts, or goes with them; the length said is that of all."""
    for before in range(1, len(end)):
        text = "x" * (MAX_TEXT_CHARS - before) + end + "tail"
        assert detail(answer=text)["answer"] == ["x" * (MAX_TEXT_CHARS - before), len(text)]
    whole = "x" * MAX_TEXT_CHARS
    assert detail(answer=whole)["answer"] == whole


def test_texts_are_cut_harder_where_a_report_would_be_too_large() -> None:
    """All texts of a row share its room, none falls below the least length."""
    large = failed("c1", answer="a" * 15_000, references=["b" * 15_000, "short"], question="q" * 15_000)
    text = detail_of(large, 10_000)
    assert len(text) <= 10_000
    assert json.loads(text)["references"][1] == "short"
    least = json.loads(detail_of(large, 1))
    assert least["answer"] == ["a" * MIN_TEXT_CHARS, 15_000]


def test_scores_keep_reasons_and_what_produced_them() -> None:
    """A judge's reasoning and a metric's message are texts, the rest is JSON to look at."""
    scores = {
        "quality": {**score(2.0, passed=False), "judgements": [{"judge": "j", "reasoning": "too short"}]},
        "rouge": score(None, reason="no_reference", message="the case has no reference"),
        "exact": score(None, reason="no_reference", message="the case has no reference"),
    }
    shown = detail(scores=scores)["scores"]
    assert shown["quality"]["reasoning"] == "too short"
    assert shown["quality"]["detail"] == '{"judgements":[{"judge":"j"}]}'
    assert [shown[name]["message"] for name in scores] == [
        None,
        "the case has no reference",
        "the case has no reference",
    ]


def test_responses_keep_calls_sources_and_errors() -> None:
    """Lists stay lists, and errors keep their traceback."""
    error = {"kind": "raised", "message": "no", "traceback": "Traceback", "retryable": True}
    response = {
        "error": error, "attempts": [{"latency_ms": 5.0, "error": error}], "tool_calls": [{"name": "search"}],
        "sources": [{"title": "Elephant", "score": 1.5}], "usage": {"input_tokens": 3}, "sql": "SELECT 1",
        "metadata": {"a": 1},
    }  # fmt: skip
    shown = detail(response=response)["response"]
    texts = {**error, "retryable": "true"}
    assert shown == {
        "error": texts, "attempts": [{"latency_ms": 5.0, **texts}], "tool_calls": [{"name": "search"}],
        "sources": [{"title": "Elephant", "score": "1.5"}], "usage": {"input_tokens": 3}, "sql": "SELECT 1",
        "metadata": '{"a":1}',
    }  # fmt: skip


def test_previews_are_one_short_line() -> None:
    """A question's beginning has no line ends, and says that more follows."""
    assert preview("a\n b\t c") == "a b c"
    assert preview("word " * 100) == ("word " * 28).strip() + "…"


def test_json_in_a_script_cannot_end_it() -> None:
    """Neither an end of the element nor the begin of a comment is written; the value is the same."""
    value = {"a": "</script><!--\u2028\u202e\ud800"}
    text = script_json(json.dumps(value, ensure_ascii=False))
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == value


@pytest.mark.parametrize(("largest", "width"), [(0.0086, 0.0005), (1.41, 0.05), (3.0, 0.1), (100, 5), (0.0, 0.05)])
def test_bins_have_round_widths(largest: float, width: float) -> None:
    """Axes end at numbers that people can read."""
    assert RowFigures().latency_bins(largest)[0] == pytest.approx(width)


def test_bars_stay_within_their_scale() -> None:
    """A value outside, a scale of one point and hostile words give a valid chart."""
    chart = str(interval_bar("m", "<b>\u202e", 7.0, (-2.0, 9.0), 0.5, (0.0, 1.0), meets=True))
    assert 'class="good" x="0" y="5" width="200"' in chart
    assert "M0 11H200" in chart
    assert '<title id="m-title">&lt;b&gt;\\u202e</title>' in chart
    assert "nan" not in str(interval_bar("m", "", 0.0, None, None, (0.0, 0.0)))


def test_what_a_case_expects_is_shown_beside_its_references() -> None:
    """Sources, tool calls and checks in words; of a conversation, what is of no turn stands behind the turns."""
    tools = ["read", {"name": "search", "arguments": {"q": "x"}, "match": "subset"}]
    expected = {"expected_sources": ["faq#9"], "expected_tools": tools, "assertions": [{"type": "regex", "value": "a"}]}
    assert detail(expected=expected)["expected"] == [
        ["expected sources", "faq#9"],
        ["expected tools", 'read\nsearch({"q": "x"}) (subset)'],
        ["assertions", 'regex: "a"'],
    ]
    turn = {"turn_index": 0, "question": "q", "answer": "a", "references": [], "status": "success", "scores": {}}
    of_turn = {"expected_sources": ["faq#9"]}
    shown = detail(turns=[{**turn, "expected": of_turn}], expected=expected)
    assert shown["turns"][0]["expected"] == [["expected sources", "faq#9"]]
    assert [name for name, _ in shown["expected"]] == ["expected tools", "assertions"]
