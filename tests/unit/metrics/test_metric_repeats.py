"""pass@k, pass^k and the variance split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core.repeats import RepeatsFold, pass_at_k, pass_hat_k
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import RepeatSummary, RowResult


@pytest.mark.parametrize(
    ("n", "c", "k", "at", "hat"),
    [
        (10, 3, 1, 0.3, 0.3),
        (10, 3, 5, 0.916667, 0.0),
        (5, 4, 2, 1.0, 0.6),
        (5, 0, 2, 0.0, 0.0),
        (3, 2, 5, None, None),
    ],
)
def test_known_values(n: int, c: int, k: int, at: float | None, hat: float | None) -> None:
    """Worked examples; more draws than runs have no value."""
    assert pass_at_k(n, c, k) == (None if at is None else pytest.approx(at, abs=1e-6))
    assert pass_hat_k(n, c, k) == (None if hat is None else pytest.approx(hat, abs=1e-6))


@given(st.integers(1, 30), st.data())
def test_order_of_the_three(n: int, data: st.DataObject) -> None:
    """pass^k <= pass@1 <= pass@k, and for one draw both are the share."""
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    at_one, at, hat = pass_at_k(n, c, 1), pass_at_k(n, c, k), pass_hat_k(n, c, k)
    assert at_one is not None
    assert at is not None
    assert hat is not None
    assert hat <= at_one + 1e-12
    assert at_one <= at + 1e-12
    assert at_one == pytest.approx(c / n)
    assert pass_hat_k(n, c, 1) == pytest.approx(c / n)


def folded(*cases: str) -> RepeatSummary | None:
    """Return the summary of cases given as their runs: 1 passed, 0 failed, ? undecided."""
    fold = RepeatsFold()
    for index, runs in enumerate(cases):
        for repeat, mark in enumerate(runs):
            passed = {"1": True, "0": False, "?": None}[mark]
            fold.add(RowResult(f"c{index}", index, repeat, "", AgentStatus.SUCCESS, passed, (), None, ""))
    return fold.result()


def test_variance_is_split() -> None:
    """The worked example: noise within cases, spread between them, standard error, noise."""
    summary = folded("1110", "1111", "0010", "1011", "0000")
    assert summary is not None
    assert [rate.k for rate in summary.rates] == [1, 2, 3, 4]
    assert [rate.pass_hat_k for rate in summary.rates] == pytest.approx([0.55, 0.4, 0.3, 0.2])
    assert [rate.pass_at_k for rate in summary.rates] == pytest.approx([0.55, 0.7, 0.75, 0.8])
    variance = summary.variance
    assert variance is not None
    assert variance.within == pytest.approx(0.15)
    assert variance.between == pytest.approx(0.13125)
    assert variance.standard_error == pytest.approx(0.183712, abs=1e-6)
    assert variance.noise_share == pytest.approx(0.222222, abs=1e-6)
    assert variance.advice == ""  # the noise is below one half


def test_noise_between_runs_calls_for_more_runs() -> None:
    """Cases that all behave alike and waver call for more runs a case."""
    summary = folded("10", "01", "11", "00", "10", "01")
    assert summary is not None
    assert summary.variance is not None
    assert "more runs per case help more than more cases" in summary.variance.advice


def test_the_share_of_noise_is_a_share() -> None:
    """Cases whose means are more alike than their runs' noise would make them: the noise is all there is."""
    summary = folded("1100", "1010", "0111")
    assert summary is not None
    assert summary.variance is not None
    assert summary.variance.noise_share == 1.0
    assert summary.variance.between == 0.0


def test_rows_without_a_verdict_are_left_out() -> None:
    """An undecided run counts neither way and is counted."""
    summary = folded("1?1", "0??", "???")
    assert summary is not None
    assert (summary.case_count, summary.runs_per_case, summary.undecided_count) == (3, 3, 6)
    assert [rate.pass_at_k for rate in summary.rates] == [0.5, 1.0]
    assert summary.variance is None


def test_one_run_a_case_tells_nothing() -> None:
    """Without repeats there is nothing to report."""
    assert folded("1", "0", "1") is None
