"""Hit rate, and when two sources are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core.score import Metric, Row
from assay.metrics.core.source_matching import first_match
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Source,
    response_from_json,
)
from assay.model.case import Case, Turn
from assay.model.run import ScoreStatus

PAGE = "https://en.wikipedia.org/wiki/Consumer_behaviour"


def asked(expected: Sequence[str], retrieved: Sequence[str | Source], *, failed: bool = False) -> Row:
    """A row of an agent that retrieves sources; a text is a title."""
    response = AgentResponse(
        status=AgentStatus.ERROR if failed else AgentStatus.SUCCESS,
        error=AgentError(AgentErrorKind.RAISED, "no") if failed else None,
        sources=tuple(Source(title=source) if isinstance(source, str) else source for source in retrieved),
    )
    return Row(Case("case", (Turn("question", expected_sources=tuple(expected)),)), response)


KNOWN = [
    (
        asked(
            ["Consumer behaviour", "Behavioral economics"],
            ["Marketing", "Consumer behaviour", "Behavioral economics"],
        ),
        1.0,
        2,
    ),
    (asked(["Consumer behaviour"], ["Consumer_behaviour"]), 1.0, 1),
    (asked(["Consumer behaviour"], [Source(uri=PAGE + "#History")]), 1.0, 1),
    (asked(["X"], ["A", "A", "x "]), 1.0, 3),
    (asked(["Behavioral economics"], ["Behavioural economics"]), 0.0, None),
    (asked(["X"], []), 0.0, None),
    (asked([], ["X"]), None, None),
]


@pytest.mark.parametrize(("row", "value", "position"), KNOWN)
def test_known_rows(metric: Callable[..., Metric], row: Row, value: float | None, position: int | None) -> None:
    """A hit passes the row and says where; without expected sources the row is skipped."""
    score = metric("hit_rate").score(row)
    assert (score.value, score.passed) == (value, None if value is None else bool(value))
    assert score.detail.get("position") == position
    if value is None:
        assert (score.status, score.reason) == (ScoreStatus.SKIPPED, "no_expected_sources")


@pytest.mark.parametrize("kind", ["hit_rate", "mrr", "sources"])
@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"sources": [{"content": "High."}]}, "content"),
        ({"sources": [{"content": "High.", "rank": 1}]}, "content, rank"),
        ({"sources": [{"id": "a1", "titre": "Tides"}]}, "titre"),
        ({"sources": [{"text": "High.", "document_ids": ["d1", "Tides"]}]}, "document_ids[1]"),
        ({"groundingMetadata": {"chunks": [{"web": {"title": "Tides"}}]}}, "groundingMetadata.chunks[0].web.title"),
    ],
)
def test_sources_whose_names_are_not_read(
    metric: Callable[..., Metric], kind: str, answer: dict[str, Any], field: str
) -> None:
    """An answer whose sources have no readable name is an error that names the field, not a 0."""
    parameters = {"required": ["Tides"]} if kind == "sources" else {}
    response = response_from_json({"text": "t", **answer})
    score = metric(kind, **parameters).score(Row(asked(["Tides"], []).case, response))
    assert (score.status, score.reason) == (ScoreStatus.ERROR, "sources_without_names")
    assert field in score.message


@pytest.mark.parametrize("kind", ["hit_rate", "mrr"])
def test_what_was_retrieved_counts_where_no_source_is_named(metric: Callable[..., Metric], kind: str) -> None:
    """Retrieved documents count if the answer has no sources."""
    document = {"page_content": "High.", "metadata": {"source": "Tides"}}
    response = response_from_json({"text": "t", "source_documents": [document]})
    row = asked(["Tides"], [])
    assert metric(kind).score(Row(row.case, response)).value == 1
    response = response_from_json({"text": "t", "source_documents": [document], "sources": ["Waves"]})
    assert metric(kind).score(Row(row.case, response)).value == 0


def test_the_rate_is_over_questions_with_expected_sources(
    metric: Callable[..., Metric], fold: Callable[..., Any]
) -> None:
    """4 of 6; the question without expectation is in neither count."""
    summary = fold(metric("hit_rate"), [row for row, _, _ in KNOWN])
    assert summary.value == pytest.approx(4 / 6)
    assert (summary.scored_count, summary.skipped_count, summary.passed_count, summary.failed_count) == (6, 1, 4, 2)
    assert (summary.detail["hits"], summary.detail["total"]) == (4, 6)
    assert summary.meets_threshold is False


@pytest.mark.parametrize(
    ("hits", "meets_threshold", "meets_goal"), [(8, False, False), (9, True, False), (10, True, True)]
)
def test_threshold_and_target_must_be_exceeded(
    metric: Callable[..., Metric],
    fold: Callable[..., Any],
    hits: int,
    meets_threshold: bool,
    meets_goal: bool,
) -> None:
    """Exactly 0.80 is not more than 0.80, exactly 0.90 not more than 0.90."""
    rows = [asked(["X"], ["X"])] * hits + [asked(["X"], ["Y"])] * (10 - hits)
    summary = fold(metric("hit_rate"), rows)
    assert (summary.meets_threshold, summary.meets_goal) == (meets_threshold, meets_goal)
    assert (summary.threshold, summary.goal, summary.rule) == (0.80, 0.90, "more_than")


def test_only_the_first_k_sources_count(metric: Callable[..., Metric]) -> None:
    """A source below the cut-off is no hit."""
    row = asked(["X"], ["A", "A", "X"])
    assert [metric("hit_rate", k=k).score(row).value for k in (2, 3, None)] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("row", "value", "reason"),
    [
        (asked(["X"], ["Y"]), 0.0, "no_expected_source_found"),
        (asked(["X"], []), 0.0, "nothing_retrieved"),
        (asked(["X"], [], failed=True), 0.0, "agent_error"),
        (asked(["X"], ["X"], failed=True), 1.0, ""),
        (asked([], [], failed=True), None, "no_expected_sources"),
        (asked([" ", "_"], ["", " "]), None, "no_expected_sources"),
    ],
)
def test_misses_say_why(metric: Callable[..., Metric], row: Row, value: float | None, reason: str) -> None:
    """An agent error is scored by its row; blank names expect nothing."""
    score = metric("hit_rate").score(row)
    assert (score.value, score.reason) == (value, reason)


def test_a_conversation_expects_what_its_last_turn_expects(metric: Callable[..., Metric]) -> None:
    """The last turn's answer is scored against the last turn's expectations."""
    turns = (Turn("first", expected_sources=("X",)), Turn("second", expected_sources=("Y",)))
    row = Row(Case("case", turns), AgentResponse(sources=(Source(title="X"),)))
    assert metric("hit_rate").score(row).value == 0.0


@pytest.mark.parametrize("source", [Source(title="doc 7"), Source(uri="doc_7"), Source(id="DOC 7", title="Other")])
def test_title_address_and_id_name_a_source(metric: Callable[..., Metric], source: Source) -> None:
    """A source is the expected one by any of its three names."""
    assert metric("hit_rate").score(asked(["Doc 7"], [source])).value == 1.0


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Consumer  behaviour\n", "consumer_behaviour", True),
        ("Stra\u00dfe", "STRASSE", True),
        ("\uff21\uff22", "ab", True),
        ("", "", False),
        ("Consumer", "Consumer behaviour", False),
        (PAGE, "Consumer behaviour", True),
        (PAGE + "/", "Consumer behaviour", True),
        (PAGE + "?a=1#b", "consumer behaviour", True),
        ("https://x.org/wiki/Caf%C3%A9_noir", "caf\u00e9 noir", True),
        ("https://x.org/wiki/Economics", "wiki", False),
        ("https://example.org/", "", False),
        ("https://example.org/", "example.org", False),
        (PAGE, "http://www.EN.wikipedia.org/wiki/Consumer%5Fbehaviour/#top", True),
        (PAGE, "https://de.wikipedia.org/wiki/Consumer_behaviour", False),
        (PAGE, PAGE + "?action=edit", False),
        (PAGE + "?a=1", PAGE + "?a=1#x", True),
        ("https://x.org/a/c", "https://x.org/b/c", False),
        ("https://x.org", "http://x.org/", True),
        ("https://x.org:443/a", "http://x.org:80/a", True),
        ("https://x.org:8443/a", "https://x.org/a", False),
        ("HTTPS://x.org/a", "https://x.org/a", True),
        ("ftp://x.org/a", "a", False),
        ("http://[draft]", "http://[draft]", True),
        ("http://x.org:port/a", "a", False),
    ],
)
def test_when_two_names_are_the_same_source(first: str, second: str, same: bool) -> None:
    """Variants of spelling and address match in both directions; nothing else does."""
    for expected, retrieved in ((first, second), (second, first)):
        assert (first_match([expected], [Source(title=retrieved)]) == 1) is same


@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=5))
def test_no_name_breaks_the_comparison(name: str, others: list[str]) -> None:
    """Any text may be a name; a name that is not blank equals itself, as an address too."""
    sources = [Source(title=other, uri="http://" + other, id="https://x.org/" + other) for other in others]
    position = first_match([name], sources)
    assert position is None or 1 <= position <= len(sources)
    if name.replace("_", "").strip():
        assert first_match([name], [*sources, Source(title=name)]) in (position, len(sources) + 1)
