"""The text of filters and orders of runs."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InvalidInputError
from assay.filters.row_filter import MetricCondition, Operator
from assay.filters.run_filter import (
    EVERY_RUN,
    NEWEST_FIRST,
    RunFilter,
    RunKey,
    RunOrder,
    parse_run_filter,
    parse_run_order,
    run_conditions,
)
from assay.model.run import RunState


def test_each_condition_is_read() -> None:
    """Names, states, labels, teams, datasets and times; a time without a zone is in UTC."""
    run_filter = parse_run_filter(
        'name:triage state:failed,paused label:branch=fix label:"note=a b" team:x,y dataset:"faq 1.json" '
        "since:2026-11-01 and until:2026-11-02T10:00+02:00 run:cap-2026 group:g verdict:FAIL,INCOMPLETE "
        "pass_rate<0.8 exact_match>=.9 latency.p95<1500ms latency>2 rouge!=none"
    )
    assert run_filter == RunFilter(
        name="triage",
        labels={"branch": "fix", "note": "a b"},
        states=frozenset({RunState.FAILED, RunState.PAUSED}),
        datasets=("faq 1.json",),
        teams=("x", "y"),
        created_from="2026-11-01T00:00:00.000Z",
        created_before="2026-11-02T08:00:00.000Z",
        run_id_prefix="cap-2026",
        group_id="g",
        verdicts=("FAIL", "INCOMPLETE"),
        figures=(
            MetricCondition("pass_rate", Operator.LESS, 0.8),
            MetricCondition("exact_match", Operator.GREATER_OR_EQUAL, 0.9),
            MetricCondition("latency.p95", Operator.LESS, 1.5),
            MetricCondition("latency", Operator.GREATER, 2.0),
            MetricCondition("rouge", Operator.NOT_EQUAL, None),
        ),
    )
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
        ("verdict:fail", "unknown verdict 'fail'; did you mean 'FAIL'?"),
        ("pass_rate<80%", "'80%' is no finite number"),
        ("pass_rate<0.5,0.8", "pass_rate< takes one number"),
        ("latency.p95<4h2", "'4h2' is no duration"),
        ("exact_match<none", "only == and != compare with none"),
        ("exact_match:1", "unknown condition 'exact_match'"),
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


def test_options_join_a_filter() -> None:
    """Options and a filter's text become one text; a condition that both have is refused."""
    joined = run_conditions("label:a=1", name="n 1", labels={"b": 'x"'}, states=[RunState.FAILED])
    assert parse_run_filter(joined) == RunFilter(
        name="n 1", labels={"a": "1", "b": 'x"'}, states=frozenset({RunState.FAILED})
    )
    assert run_conditions("") == ""
    with pytest.raises(InvalidInputError) as refusal:
        run_conditions("name:a label:k=1", field="--where", name="b", labels={"k": "2"})
    assert [(problem.field, problem.message) for problem in refusal.value.problems] == [
        ("--where", "name is given twice"),
        ("--where", "label 'k' is given twice"),
    ]


def test_orders_are_read() -> None:
    """The newest come first where nothing is said."""
    assert parse_run_order("") == NEWEST_FIRST == parse_run_order("-created")
    assert parse_run_order("name") == RunOrder(RunKey.NAME, descending=False)
    assert parse_run_order("-latency.p95") == RunOrder(RunKey.FIGURE, "latency.p95", descending=True)
    for text in ("-", "pass rate", "--name", "9"):
        with pytest.raises(InvalidInputError, match="is no order: write created, ended, name, pass_rate or a metric"):
            parse_run_order(text)
