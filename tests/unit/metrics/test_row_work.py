"""Bounds of the work of scoring a row: they decide which rows are scored in a process of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.metrics.core.row_work import WORK_PER_CHARACTER, row_work
from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, Turn
from assay.text.edit_distance import edit_work

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = {"type": "array", "items": {"type": "object", "required": ["n"]}}


@pytest.fixture
def work_of(metric: Callable[..., Metric]) -> Callable[..., float]:
    """The work of one check of an answer."""

    def build(check: Assertion, **answer: Any) -> float:
        return row_work(
            [metric("assertions")], Row(Case("c", (Turn("q"),), assertions=(check,)), AgentResponse(**answer))
        )

    return build


def test_structured_output_counts_where_it_is_validated(work_of: Callable[..., float]) -> None:
    """is-json validates structured output instead of the text; contains-json reads the text alone."""
    output = [{"n": 1}] * 10_000
    short, long = ({"text": "{}", "output": value} for value in ([], output))
    whole, inside = (Assertion(kind, SCHEMA) for kind in ("is-json", "contains-json"))
    assert work_of(whole, **long) > 1_000 * work_of(whole, **short)
    assert work_of(inside, **long) == work_of(inside, **short)


def test_each_brace_may_start_a_json_value(work_of: Callable[..., float]) -> None:
    """contains-json reads the text once from each brace, and stops at the two hundredth."""
    text = "{" * 200 + "a" * 9_800
    assert work_of(Assertion("contains-json"), text=text) >= 200 * len(text)
    assert work_of(Assertion("is-json"), text=text) < 200 * len(text)


@pytest.mark.parametrize(("first", "second"), [(0, 50_000), (1, 50_000), (300, 400)])
def test_both_texts_count_in_the_work_of_edits(first: int, second: int) -> None:
    """Reading either text takes time, whichever is longer."""
    work = edit_work("a" * first, "b" * second)
    assert work == edit_work("b" * second, "a" * first)
    assert work >= WORK_PER_CHARACTER * (first + second)
