"""Sources that every answer names: how many, which, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_message
from assay.metrics.core.score import Row
from assay.metrics.core.source_matching import first_match, unmatched
from assay.model.answers.agent_response import AgentResponse, Source
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec

if TYPE_CHECKING:
    from assay.model.run import Score

GUIDE = Source(title="User guide", uri="https://docs.example.org/guide/")
BLOG = Source(title="A blog", uri="https://blog.example.com/1")
_NAMES = st.sampled_from(["", " ", "Guide", "guide", "g_1", "http://a.org/g_1", "https://www.a.org/g 1", "http://[x]"])
_SOURCES = st.lists(st.builds(Source, id=_NAMES, title=_NAMES, uri=_NAMES), max_size=4)


def scored(sources: list[Source], **parameters: Any) -> Score:
    """Return the score of an answer with these sources."""
    complete = complete_parameters("sources", parameters, where="m")
    row = Row(Case("c", (Turn("q"),)), AgentResponse(text="a", sources=tuple(sources)))
    return build_metric(MetricSpec("sources", complete)).score(row)


@pytest.mark.parametrize(
    ("sources", "parameters", "value"),
    [
        ([GUIDE], {}, 1.0),
        ([], {}, 0.0),
        ([Source(title=" ")], {}, 0.0),
        ([GUIDE, GUIDE], {"at_least": 2}, 0.0),
        ([GUIDE, BLOG], {"at_least": 2}, 1.0),
        ([GUIDE, BLOG], {"at_least": 2, "pattern": "^https://docs"}, 0.0),
        ([BLOG, GUIDE], {"pattern": "^https://docs"}, 1.0),
        ([GUIDE], {"required": ["user_GUIDE"]}, 1.0),
        ([GUIDE, BLOG], {"required": ["http://docs.example.org/guide", "a blog"]}, 1.0),
        ([GUIDE], {"required": ["User guide", "A blog"]}, 0.0),
        ([], {"at_least": 0, "required": ["User guide"]}, 0.0),
    ],
)
def test_sources(sources: list[Source], parameters: dict[str, Any], value: float) -> None:
    """Sources are counted by their names, once each, and required ones found as hit_rate finds expected ones."""
    score = scored(sources, **parameters)
    assert (score.value, score.passed) == (value, value == 1.0)


def test_a_row_says_which_sources_are_missing() -> None:
    """The reason names both faults."""
    score = scored([BLOG], at_least=2, pattern="docs", required=["User guide"])
    assert row_message(AgentResponse(), [score]) == (
        "sources: 0 sources that match the pattern, fewer than 2; missing source User guide; the answer names A blog"
    )


def test_wrong_parameters_are_refused() -> None:
    """All at once: names that name nothing, a pattern that is none, and a rule that demands nothing."""
    with pytest.raises(SpecError) as refused:
        complete_parameters("sources", {"required": ["_"], "pattern": "("}, where="m")
    assert "m.required[0]" in str(refused.value)
    assert "m.pattern" in str(refused.value)
    with pytest.raises(SpecError, match="demands nothing"):
        complete_parameters("sources", {"at_least": 0}, where="m")


@given(expected=st.lists(_NAMES, max_size=4), sources=_SOURCES)
def test_missing_sources_are_those_that_hit_rate_would_miss(expected: list[str], sources: list[Source]) -> None:
    """Looking all names up at once finds what comparing them one by one finds."""
    assert unmatched(expected, sources) == [name for name in expected if first_match([name], sources) is None]


@given(sources=_SOURCES, more=_SOURCES, at_least=st.integers(1, 3), required=st.lists(st.just("guide"), max_size=1))
def test_further_sources_never_hurt(
    sources: list[Source], more: list[Source], at_least: int, required: list[str]
) -> None:
    """An answer that passes passes with more sources, in whatever order, and with a lower bound."""
    before = scored(sources, at_least=at_least, required=required)
    assert (scored([*more, *sources], at_least=at_least, required=required).value or 0) >= (before.value or 0)
    assert (scored(sources, at_least=1, required=required).value or 0) >= (before.value or 0)
