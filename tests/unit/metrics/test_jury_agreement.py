"""How far a jury agrees, without keeping its rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.jury.jury_agreement import AgreementFold
from assay.statistics.krippendorff import alpha

SCORES = st.one_of(st.none(), st.integers(1, 5).map(float), st.sampled_from([0.0, 0.25, 0.7, 1.0]))


def agreed(rows: list[list[float | None]]) -> AgreementFold:
    """Return a fold of these rows."""
    fold = AgreementFold("quality")
    for row in rows:
        fold.add(row)
    return fold


@given(st.lists(st.lists(SCORES, min_size=2, max_size=4), max_size=12), st.randoms())
def test_it_is_krippendorffs_alpha_in_any_order(rows: list[list[float | None]], random: object) -> None:
    """The same as with all rows at hand, to the last bits; shuffled rows give the very same number."""
    found = agreed(rows).result()
    expected = alpha(rows, "interval")
    if expected.value is None:
        assert found.alpha is None
    else:
        assert found.alpha == pytest.approx(expected.value, abs=1e-9)
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert agreed(rows).result() == found


def test_a_worked_example() -> None:
    """Units (1, -), (2, 2), (3, 4), (5): those with one score are left out."""
    found = agreed([[1, None], [2, 2], [3, 4], [5, None]]).result()
    assert found.alpha == pytest.approx(0.7272727)
    assert (found.count, found.too_few) == (2, 2)
