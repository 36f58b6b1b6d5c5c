from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.providers.retry_after import retry_after_s
from assay.testing.hostile_verdicts import FAMILIES
from assay.text.inline_thoughts import split_thoughts
from assay_judge.verdicts.parser import InvalidVerdictError, read_verdict
from assay_judge.verdicts.rubric_registry import BUILT_IN

ID = "0123456789abcdef0123456789abcdef"
VERDICTS: dict[str, dict[str, Any]] = {
    "quality": {"verdict_id": ID, "reasoning": "It is right.", "score": 4},
    "answer": {"verdict_id": ID, "reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.7,
               "overall_score": 0.85},
}  # fmt: skip
pieces = st.one_of(st.sampled_from(list('{}[]",:0123456789.eE-+ \n\\')), st.text(max_size=3))
changes = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 4), pieces), max_size=3)


def changed(text: str, edits: list[tuple[int, int, str]]) -> str:
    for at, length, piece in edits:
        at %= len(text) + 1
        text = text[:at] + piece + text[at + length :]
    return text


@pytest.mark.parametrize("family", FAMILIES)
@given(rubric=st.sampled_from(list(VERDICTS)), seed=st.integers(0, 2**32))
def test_every_member_of_a_family_is_refused(family: str, rubric: str, seed: int) -> None:
    """Whatever a family makes of a valid verdict: no score."""
    reply = FAMILIES[family](random.Random(seed), dict(VERDICTS[rubric]))
    with pytest.raises(InvalidVerdictError):
        read_verdict(reply, BUILT_IN[rubric], ID)


@given(st.sampled_from(list(FAMILIES)), st.sampled_from(list(VERDICTS)), st.integers(0, 2**32), changes)
def test_a_changed_member_is_refused_or_is_what_it_says(
    family: str, rubric: str, seed: int, edits: list[tuple[int, int, str]]
) -> None:
    """Changes may make a hostile reply a valid one, by chance; its scores are then exactly those that stand in it."""
    reply = changed(FAMILIES[family](random.Random(seed), dict(VERDICTS[rubric])), edits)
    try:
        verdict = read_verdict(reply, BUILT_IN[rubric], ID)
    except InvalidVerdictError:
        return
    reply = split_thoughts(reply)[1]
    pairs: list[tuple[str, Any]] = json.loads(reply[reply.index("{") : reply.rindex("}") + 1], object_pairs_hook=list)
    data = dict(pairs)
    assert len(data) == len(pairs)
    assert data.pop("verdict_id") == ID
    asked = BUILT_IN[rubric]
    for name, score in verdict.scores.items():
        assert type(data[name]) in (int, float)
        assert data[name] == score
        assert asked.minimum <= score <= asked.maximum


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0), ({"retry-after": "0.25"}, 0.25), ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "Friday, 15-Jan-27 08:00:30 GMT"}, 30.0), ({"retry-after": "soon"}, None), ({}, None),
    ],
)  # fmt: skip
def test_every_form_of_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, dates of today's and of older forms, past ones too; nonsense says nothing."""
    assert retry_after_s(headers, now=1_800_000_000.0) == seconds
