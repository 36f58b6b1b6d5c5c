"""Juries: mean scores, majority labels, too few judges, and how far the judges agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.jury.jury import jury_label, jury_score
from assay.metrics.jury.jury_agreement import AgreementFold
from assay.statistics.krippendorff import alpha


@pytest.mark.parametrize(
    ("scores", "value", "n_valid", "reason"),
    [
        ([4, 5], 4.5, 2, ""),
        ([4, None, 5, 3], 4.0, 3, ""),
        ([0.1, 0.2, 0.3], 0.2, 3, ""),
        ([4, None], None, 1, "too_few_judges"),
        ([4, float("nan"), float("inf")], None, 1, "too_few_judges"),
        ([], None, 0, "too_few_judges"),
    ],
)
def test_scores_are_averaged_over_valid_judges(
    scores: list[float | None], value: float | None, n_valid: int, reason: str
) -> None:
    """One judge alone is no jury, and its score does not stand for one."""
    jury = jury_score(scores)
    assert jury.value == (None if value is None else pytest.approx(value))
    assert (jury.n_valid, jury.reason, jury.is_error) == (n_valid, reason, value is None)


@pytest.mark.parametrize(
    ("labels", "value", "reason", "is_error"),
    [
        (["pass", "pass", "fail"], "pass", "", False),
        (["pass", "pass"], "pass", "", False),
        (["pass", None, "fail", "fail"], "fail", "", False),
        (["pass", "fail"], None, "no_majority", False),
        (["a", "a", "b", "b", "c"], None, "no_majority", False),
        (["pass", None], None, "too_few_judges", True),
        ([], None, "too_few_judges", True),
    ],
)
def test_labels_are_decided_by_most_valid_judges(
    labels: list[str | None], value: str | None, reason: str, is_error: bool
) -> None:
    """A divided jury gives no label, which is not an error; too few judges are one."""
    jury = jury_label(labels)
    assert (jury.value, jury.reason, jury.is_error) == (value, reason, is_error)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=9))
def test_the_order_of_judges_does_not_matter(labels: list[str | None]) -> None:
    """Any order of the same verdicts gives the same jury."""
    assert jury_label(labels[::-1]) == jury_label(labels)
    scores = [None if label is None else float(ord(label)) / 7 for label in labels]
    assert jury_score(scores[::-1]) == jury_score(scores)


RATINGS = st.one_of(st.none(), st.integers(1, 5).map(float), st.sampled_from([0.0, 0.25, 0.7, 1.0]))


def agreed(rows: list[list[float | None]]) -> AgreementFold:
    """Return a fold of these rows."""
    fold = AgreementFold("quality")
    for row in rows:
        fold.add(row)
    return fold


@given(st.lists(st.lists(RATINGS, min_size=2, max_size=4), max_size=12), st.randoms())
def test_it_is_krippendorffs_alpha_in_any_order(rows: list[list[float | None]], random: object) -> None:
    """The same as with all rows at hand, to the last bits; shuffled rows give the very same number."""
    agreement = agreed(rows).result()
    expected = alpha(rows, "interval")
    if expected.value is None:
        assert agreement.alpha is None
    else:
        assert agreement.alpha == pytest.approx(expected.value, abs=1e-9)
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert agreed(rows).result() == agreement


def test_a_worked_example_of_agreement() -> None:
    """Units (1, -), (2, 2), (3, 4), (5): those with one score are left out."""
    agreement = agreed([[1, None], [2, 2], [3, 4], [5, None]]).result()
    assert agreement.alpha == pytest.approx(0.7272727)
    assert (agreement.row_count, agreement.too_few_count) == (2, 2)
