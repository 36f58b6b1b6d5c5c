"""The pass rate that people would have given: worked examples, what is withheld, and how often intervals cover."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.corrected_rate import (
    HUMAN_VERDICT,
    NO_BETTER_THAN_CHANCE,
    RANDOM,
    TOO_FEW_OF_A_KIND,
    TOO_FEW_OF_A_WEIGHT,
    TOO_UNEVEN,
    DrawnLabel,
    corrected_pass_rate,
    weighted_pass_rate,
)
from assay.statistics.figure import NOTHING, Figure


@pytest.mark.parametrize(
    ("observed", "n", "q0", "m0", "q1", "m1", "theta", "interval"),
    [
        (0.8, 200, 0.9, 50, 0.85, 50, 0.933333, (0.807360, 1.0)),
        (0.6, 100, 0.9, 40, 0.8, 60, 0.714286, (0.538199, 0.901840)),
        (0.05, 100, 0.9, 50, 0.9, 50, 0.0, (0.0, 0.055109)),
        (1.0, 20, 1.0, 10, 1.0, 10, 1.0, (0.823135, 1.0)),
        (0.5, 20, 0.8, 5, 0.25, 20, 1.0, (0.0, 1.0)),  # with one more of each, q0 + q1 is below 1
    ],
)
def test_worked_examples(
    observed: float, n: int, q0: float, m0: int, q1: float, m1: int, theta: float, interval: tuple[float, float]
) -> None:
    """Rogan and Gladen's estimate, in the interval of Lang and Reiczigel; that of a perfect judge has a width."""
    corrected = corrected_pass_rate(observed, n, specificity=q0, n_failed=m0, sensitivity=q1, n_passed=m1)
    assert corrected.value == pytest.approx(theta, abs=1e-6)
    assert corrected.interval == pytest.approx(interval, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "q0", "q1", "m0", "reason"),
    [
        (100, 0.5, 0.5, 40, NO_BETTER_THAN_CHANCE),
        (100, 0.2, 0.3, 40, NO_BETTER_THAN_CHANCE),
        (100, 0.9, 0.1, 40, NO_BETTER_THAN_CHANCE),
        (0, 0.9, 0.9, 40, NOTHING),
        (100, 0.9, 0.9, 0, NOTHING),
        (100, 1.0, 0.9, 4, TOO_FEW_OF_A_KIND),
    ],
)
def test_what_corrects_nothing(n: int, q0: float, q1: float, m0: int, reason: str) -> None:
    """A judge no better than chance; people who failed nothing, or less than an interval needs."""
    corrected = corrected_pass_rate(0.5, n, specificity=q0, n_failed=m0, sensitivity=q1, n_passed=60)
    assert (corrected.value, corrected.interval, corrected.reason) == (None, None, reason)


@pytest.mark.parametrize(
    ("n_failed", "n_passed", "drawn", "reason"),
    [
        (10, 41, HUMAN_VERDICT, TOO_UNEVEN),
        (41, 10, HUMAN_VERDICT, TOO_UNEVEN),
        (10, 40, HUMAN_VERDICT, ""),
        (20, 400, HUMAN_VERDICT, ""),
        (10, 41, RANDOM, ""),
    ],
)
def test_uneven_labels(n_failed: int, n_passed: int, drawn: str, reason: str) -> None:
    """Few of one kind and more than four times as many of the other correct nothing, unless drawn at random."""
    corrected = corrected_pass_rate(
        0.8, 200, specificity=0.9, n_failed=n_failed, sensitivity=0.9, n_passed=n_passed, drawn=drawn
    )
    assert (corrected.reason, corrected.value is None) == (reason, bool(reason))


@given(*[st.floats(0, 1)] * 3, *[st.integers(1, 500)] * 3)
def test_a_corrected_rate_is_a_rate(observed: float, q0: float, q1: float, n: int, m0: int, m1: int) -> None:
    """It and its interval lie in [0, 1]; a perfect judge corrects nothing."""
    corrected = corrected_pass_rate(observed, n, specificity=q0, n_failed=m0, sensitivity=q1, n_passed=m1)
    if corrected.value is not None:
        assert corrected.interval is not None
        assert 0 <= corrected.interval[0] <= corrected.value <= corrected.interval[1] <= 1
    perfect = corrected_pass_rate(observed, n, specificity=1.0, n_failed=m0 + 5, sensitivity=1.0, n_passed=m1 + 5)
    assert perfect.value == pytest.approx(observed)


def drawn(kind: tuple[bool, bool], count: int, weight: float) -> list[DrawnLabel]:
    """Return equal labels: whether judge and people pass them."""
    return [DrawnLabel(*kind, weight)] * count


def test_labels_that_stand_for_their_rows() -> None:
    """160 of 200 rows pass; 20 labels of those that pass and 20 of the others: 0.8 - 0.8 * 0.1 + 0.2 * 0.25."""
    labels = [
        *drawn((True, True), 18, 8), *drawn((True, False), 2, 8), *drawn((False, True), 5, 2),
        *drawn((False, False), 15, 2),
    ]  # fmt: skip
    corrected = weighted_pass_rate(0.8, 200, labels)
    assert corrected.value == pytest.approx(0.77)
    p, z = (160 + 1.959963984540054**2 / 2) / (200 + 1.959963984540054**2), 1.959963984540054
    centre = p - 0.8 * 3 / 22 + 0.2 * 6 / 22
    variance = p * (1 - p) / (200 + z * z) + (0.64 * (3 / 22) * (19 / 22) + 0.04 * (6 / 22) * (16 / 22)) / 22
    assert corrected.interval == pytest.approx((centre - z * variance**0.5, centre + z * variance**0.5))


def test_a_stratum_of_one_label_joins_the_next() -> None:
    """A stratum of one label has no spread of its own; one label in all gives nothing."""
    pair = drawn((True, True), 20, 2)
    assert weighted_pass_rate(0.9, 100, [*pair, *drawn((False, True), 1, 1)]) == weighted_pass_rate(
        0.9, 100, [*pair, *drawn((False, True), 1, 1)][::-1]
    )
    assert weighted_pass_rate(0.9, 100, drawn((True, True), 1, 1)) == Figure(None, 100, reason=NOTHING)


@pytest.mark.parametrize(
    ("count", "weight", "reason"),
    [(9, 1, TOO_FEW_OF_A_WEIGHT), (10, 1, ""), (9, 0.5, ""), (2, 5, TOO_FEW_OF_A_WEIGHT)],
)
def test_few_labels_that_stand_for_many_rows(count: int, weight: float, reason: str) -> None:
    """Fewer than ten labels of a weight correct nothing where they stand for more than 5 % of the rows."""
    labels = [*drawn((True, True), 50, 2), *drawn((False, False), count, weight)]
    assert weighted_pass_rate(0.9, 100, labels).reason == reason


TRIALS = 600


def judged(generator: random.Random, theta: float, q0: float, q1: float) -> tuple[bool, bool]:
    """Return whether the judge and people pass a row."""
    people = generator.random() < theta
    return (generator.random() < q1) if people else (generator.random() >= q0), people


@pytest.mark.parametrize(
    ("n", "m", "theta", "q0", "q1"),
    [(20, 100, 0.95, 0.95, 0.98), (200, 100, 0.8, 0.7, 0.9), (500, 100, 0.95, 0.98, 0.9), (20, 20, 0.5, 0.98, 0.98)],
)
@pytest.mark.parametrize("by_human_verdict", [False, True])
def test_intervals_cover(n: int, m: int, theta: float, q0: float, q1: float, by_human_verdict: bool) -> None:
    """At least 93 % (here: within three standard errors of it) where a value is given, and never without a width."""
    generator, covered, given_ = random.Random(5), 0, 0
    for _ in range(TRIALS):
        passed = m // 2 if by_human_verdict else sum(generator.random() < theta for _ in range(m))
        right = [sum(generator.random() < q for _ in range(k)) for q, k in ((q1, passed), (q0, m - passed))]
        observed = sum(judged(generator, theta, q0, q1)[0] for _ in range(n)) / n
        corrected = corrected_pass_rate(
            observed, n, specificity=right[1] / max(1, m - passed), n_failed=m - passed,
            sensitivity=right[0] / max(1, passed), n_passed=passed,
        )  # fmt: skip
        if corrected.interval is not None:
            given_ += 1
            covered += corrected.interval[0] <= theta <= corrected.interval[1]
    assert given_ > 100
    assert covered / given_ > 0.93 - 3 * (0.93 * 0.07 / given_) ** 0.5


@pytest.mark.parametrize(("theta", "q0", "q1"), [(0.8, 0.7, 0.9), (0.95, 0.7, 0.98), (0.9, 0.98, 0.98)])
def test_weighted_intervals_cover(theta: float, q0: float, q1: float) -> None:
    """50 labels of rows that the judge passes and 50 of others: unweighted, the estimate of 0.80 would be 0.996."""
    generator, covered, values = random.Random(5), 0, []
    for _ in range(TRIALS):
        rows = [judged(generator, theta, q0, q1) for _ in range(500)]
        labels = []
        for verdict in (True, False):
            kind = [row for row in rows if row[0] is verdict]
            labels += [DrawnLabel(*row, len(kind) / min(50, len(kind))) for row in kind[:50]]
        corrected = weighted_pass_rate(sum(row[0] for row in rows) / 500, 500, labels)
        assert corrected.interval is not None
        assert corrected.value is not None
        values.append(corrected.value)
        covered += corrected.interval[0] <= theta <= corrected.interval[1]
    assert sum(values) / TRIALS == pytest.approx(theta, abs=0.01)
    assert covered / TRIALS > 0.93
