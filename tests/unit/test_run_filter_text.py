"""The text of filters and orders of runs."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InvalidInputError
from assay.filters.run_filter import (
    EVERY_RUN,
    NEWEST_FIRST,
    RunFilter,
    RunKey,
    RunOrder,
    parse_run_filter,
    parse_run_order,
)
from assay.model.run import RunState
from assay.wire.filters import run_filter_from_wire, run_order_from_wire, run_query_to_wire


def test_each_condition_is_read() -> None:
    """Names, states, labels, teams, datasets and times; a time without a zone is in UTC."""
    run_filter = parse_run_filter(
        'name:triage state:failed,paused label:branch=fix label:"note=a b" team:x,y dataset:"faq 1.json" '
        "since:2026-11-01 and until:2026-11-02T10:00+02:00"
    )
    assert run_filter == RunFilter(
        name="triage",
        labels={"branch": "fix", "note": "a b"},
        states=frozenset({RunState.FAILED, RunState.PAUSED}),
        datasets=("faq 1.json",),
        teams=("x", "y"),
        created_from="2026-11-01T00:00:00.000Z",
        created_before="2026-11-02T08:00:00.000Z",
    )
    request = run_query_to_wire(run_filter, RunOrder(RunKey.PASS_RATE, descending=False))
    assert run_filter_from_wire(request) == run_filter
    assert run_order_from_wire(request) == RunOrder(RunKey.PASS_RATE, descending=False)
    assert parse_run_filter("") == EVERY_RUN


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sate:failed", "unknown condition 'sate'; did you mean 'state'?"),
        ("state:faild", "unknown state 'faild'; did you mean 'failed'?"),
        ("failed", "unknown condition 'failed'"),
        ("name", "write name:VALUE"),
        ("name:a name:b", "name is given twice"),
        ("name:a,b", "takes one value"),
        ('team:""', "has an empty value"),
        ("label:branch", "write label:branch=VALUE"),
        ("label:=x", "write label:KEY=VALUE"),
        ("label:a=1 label:a=2", "label 'a' is given twice"),
        ("since:yesterday", "is no time: write 2026-11-23"),
        ("since<2026-11-01", "write since:VALUE"),
    ],
)
def test_what_is_no_filter_is_refused(text: str, sentence: str) -> None:
    """Each problem has its position and says what to write."""
    with pytest.raises(InvalidInputError) as refusal:
        parse_run_filter(text, where="--where")
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("--where: character ")


@given(
    st.lists(st.one_of(st.text(max_size=4), st.sampled_from(["since:", "label:", "=", "0001-01-01T00:00+20:00", " "])))
)
def test_any_text_is_a_filter_or_refused(pieces: list[str]) -> None:
    """No text makes the reader fail in another way."""
    with suppress(InvalidInputError):
        parse_run_filter("".join(pieces))


def test_conditions_of_two_filters_hold_together() -> None:
    """Options and a filter's text are joined; where they differ, the caller is asked to choose."""
    joined = parse_run_filter("label:a=1 state:failed").joined(RunFilter(name="n", labels={"b": "2"}))
    assert joined == RunFilter(name="n", labels={"a": "1", "b": "2"}, states=frozenset({RunState.FAILED}))
    with pytest.raises(InvalidInputError, match="name is given twice") as refusal:
        parse_run_filter("name:a label:k=1").joined(RunFilter(name="b", labels={"k": "2"}))
    assert len(refusal.value.problems) == 2


def test_orders_are_read() -> None:
    """The newest come first where nothing is said."""
    assert parse_run_order("") == NEWEST_FIRST == parse_run_order("-created")
    assert parse_run_order("name") == RunOrder(RunKey.NAME, descending=False)
    with pytest.raises(InvalidInputError, match=r"unknown order 'pas_rate'; did you mean 'pass_rate'\?"):
        parse_run_order("-pas_rate")
