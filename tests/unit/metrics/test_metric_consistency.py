"""Consistency: the closed form, its scopes, blank answers and failures."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import complete_parameters
from assay.metrics.consistency import consistency
from assay.metrics.rows.order import check_metrics
from assay.model.run import MetricSpec, RowResult, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.metrics.core.score import Metric, Row

VECTORS = st.lists(
    st.lists(st.floats(-100, 100).filter(lambda x: abs(x) > 1e-3), min_size=3, max_size=3), min_size=2, max_size=30
)


def double_loop(vectors: Sequence[Sequence[float]]) -> float:
    """Return the mean pairwise cosine the slow way."""
    arrays = [np.asarray(vector, dtype=float) for vector in vectors]
    cosines = [float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b)) for a, b in combinations(arrays, 2)]
    return sum(cosines) / len(cosines)


@pytest.mark.parametrize(
    ("vectors", "blanks", "value"),
    [
        ([(1, 0), (1, 0), (0, 1)], 0, 1 / 3),
        ([(1, 2), (2, 1), (1, 1), (3, 1)], 0, 0.8814750103),
        ([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)], 0, 0.2886751346),
        ([(1, 0), (-1, 0)], 0, -1.0),
        ([(1, 0), (1, 0)], 1, 1 / 3),
        ([], 3, 1.0),
        ([(1, 0)], 0, None),
        ([], 0, None),
    ],
)
def test_known_values(vectors: list[tuple[float, ...]], blanks: int, value: float | None) -> None:
    """Worked examples; a blank answer is like another blank one and like nothing else."""
    found = consistency(vectors, blanks)
    assert found == (None if value is None else pytest.approx(value, abs=1e-9))


@given(VECTORS)
def test_the_closed_form_equals_the_double_loop(vectors: list[list[float]]) -> None:
    """One pass gives what comparing every pair gives."""
    assert consistency(vectors) == pytest.approx(double_loop(vectors), abs=1e-9)


@given(VECTORS, st.floats(0.01, 1000))
def test_lengths_do_not_matter(vectors: list[list[float]], factor: float) -> None:
    """Scaling any vector by a positive factor changes nothing."""
    scaled = [[factor * x for x in vectors[0]], *vectors[1:]]
    assert consistency(scaled) == pytest.approx(consistency(vectors), abs=1e-9)


@pytest.fixture
def summary_of(metric: Callable[..., Metric], row: Callable[..., Row]) -> Callable[..., Any]:
    """The summary of answers given as (case, text, vector) in dataset order; no vector means it is missing."""

    def build(*answers: tuple[int, str, tuple[float, ...] | None], failed: Sequence[int] = ()) -> Any:
        one = metric("consistency")
        fold = one.aggregate()
        for position, (case, text, vector) in enumerate(answers):
            built = row(text, failed=position in failed, vectors=[] if vector is None else [vector])
            data = b"" if vector is None else np.asarray(vector, dtype="<f4").tobytes()
            score = one.score(built)
            result = RowResult(
                f"c{case}", case, position, "", built.response.status, None, (score,), None, "", answer_vector=data
            )
            fold.add(result, score)
        return fold.result()

    return build


def test_runs_of_a_case_are_compared_with_each_other(summary_of: Callable[..., Any]) -> None:
    """The value is the mean over cases with two runs or more; other cases are left out."""
    summary = summary_of((0, "a", (1, 0)), (0, "A ", (1, 0)), (1, "b", (1, 0)), (1, "c", (0, 1)), (2, "d", (1, 1)))
    assert (summary.value, summary.detail["scope"], summary.detail["n_cases"]) == (0.5, "repeats", 2)
    assert (summary.detail["total_comparisons"], summary.detail["agreement_rate"]) == (2, 0.5)
    assert (summary.scored_count, summary.skipped_count, summary.meets_threshold) == (4, 1, False)


def test_a_blank_answer_differs_from_each_other_run_of_its_case(summary_of: Callable[..., Any]) -> None:
    """Of three runs of a case, one of them blank, one pair of three is alike."""
    summary = summary_of((0, "a", (1, 0)), (0, " ", None), (0, "a", (1, 0)))
    assert (summary.value, summary.detail["agreement_rate"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (summary.scored_count, summary.detail["total_comparisons"]) == (3, 3)


def test_one_run_a_case_is_pooled(summary_of: Callable[..., Any]) -> None:
    """Without repeats all answers are compared with a note, and the threshold decides nothing."""
    summary = summary_of(*((case, "x", (1, 0)) for case in range(25)))
    assert (summary.value, summary.detail["scope"], summary.detail["total_comparisons"]) == (1.0, "pooled", 300)
    assert "how alike the questions are" in summary.detail["note"]
    assert (summary.threshold, summary.meets_threshold, summary.detail["meets_threshold"]) == (0.8, None, None)


def test_failures_are_left_out_and_counted(summary_of: Callable[..., Any]) -> None:
    """Agent errors and missing vectors are errors; fewer than two answers give no value, never 0."""
    summary = summary_of((0, "a", (1, 0)), (0, "b", None), (0, "c", (1, 0)), failed=[2])
    assert (summary.value, summary.detail["note"]) == (None, "Insufficient responses")
    assert (summary.scored_count, summary.skipped_count, summary.error_count, summary.own_error_count) == (0, 1, 2, 1)
    assert (summary.meets_threshold, summary.detail["total_comparisons"]) == (None, 0)


def test_a_row_has_no_value_of_its_own(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """The score of a row refers to the run and gives the row no verdict."""
    score = metric("consistency").score(row("text", vectors=[(1, 0)]))
    assert (score.status, score.reason, score.passed) == (ScoreStatus.SKIPPED, "aggregate_only", None)


@pytest.mark.parametrize("changed", [{"model": "other"}, {"dimension": 64}, {"windowed": True}])
def test_a_row_keeps_one_vector(changed: dict[str, Any]) -> None:
    """Two such metrics over different vectors would both be computed from those of the first: they are refused."""
    wanted: dict[str, dict[str, Any]] = {"first": {}, "second": changed, "third": {}}
    metrics = {
        name: MetricSpec(name, complete_parameters("consistency", more, where=name), "consistency")
        for name, more in wanted.items()
    }
    assert [problem.field for problem in check_metrics(metrics)] == ["second"]
