"""Agreement of judge and people: worked examples, what is not computed, and what must hold whatever the labels."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.agreement import accuracy, cohen_kappa, confusion, spearman, weighted_kappa
from assay.statistics.agreement_interval import (
    INTERVAL_ALPHA,
    KAPPA,
    NOMINAL_ALPHA,
    QUADRATIC_KAPPA,
    Measure,
    agreement_interval,
)
from assay.statistics.figure import CONSTANT, NOTHING, ONE_LABEL, Figure, rate
from assay.statistics.krippendorff import LEVELS, Level, alpha

PASSES = ([1, 1, 1, 0, 0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 1, 0, 1, 1, 1])
SCORES = ([5, 4, 4, 3, 2, 5, 1, 3], [5, 5, 4, 3, 3, 4, 1, 2])
LABELS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=25)


def near(value: float) -> Any:
    """Return what is within the tolerance of all figures."""
    return pytest.approx(value, abs=1e-6)


def test_worked_examples_of_two_raters() -> None:
    """Kappa of passes; kappa, quadratic kappa and Spearman of scores."""
    assert cohen_kappa(*PASSES).value == near(0.583333)
    assert cohen_kappa(*SCORES).value == near(0.36)
    assert weighted_kappa(*SCORES).value == near(0.855856)
    assert spearman(*SCORES).value == near(0.845679)


@pytest.mark.parametrize(("level", "value"), [("nominal", 0.4), ("ordinal", 0.855324), ("interval", 0.864865)])
def test_worked_examples_of_alpha(level: Level, value: float) -> None:
    """Alpha at its three levels."""
    assert alpha(list(zip(*SCORES, strict=True)), level).value == near(value)


def test_units_with_one_rating_say_nothing() -> None:
    """Units with one rating are left out and not counted."""
    agreement = alpha([(1, None), (2, 2), (3, 4), (5,)], "interval")
    assert agreement == Figure(near(0.727273), 2)


def test_alpha_of_three_raters_as_published() -> None:
    """Krippendorff's own data with missing ratings: nominal 0.743, ordinal 0.815, interval 0.849."""
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    units = list(zip(*observers, strict=True))
    assert alpha(units, "nominal").value == pytest.approx(0.743, abs=5e-4)
    assert alpha(units, "ordinal").value == pytest.approx(0.815, abs=5e-4)
    assert alpha(units, "interval").value == pytest.approx(0.849, abs=5e-4)


@pytest.mark.parametrize(
    ("hits", "reason"),
    [
        (cohen_kappa([1, 1], [1, 1]), ONE_LABEL),
        (cohen_kappa([], []), NOTHING),
        (weighted_kappa([3, 3, 3], [3, 3, 3]), ONE_LABEL),
        (weighted_kappa([], []), NOTHING),
        (spearman([3, 3, 3], [1, 2, 3]), CONSTANT),
        (spearman([1, 2, 3], [0.1, 0.1, 0.1]), CONSTANT),
        (spearman([1], [1]), NOTHING),
        (alpha([(1, 1), (1, 1)], "nominal"), ONE_LABEL),
        (alpha([(0.1, 0.1, 0.1), (0.1, 0.1)], "interval"), ONE_LABEL),
        (alpha([(1,), (None, 2)], "ordinal"), NOTHING),
        (alpha([], "ordinal"), NOTHING),
        (accuracy([], []), NOTHING),
    ],
)
def test_what_cannot_be_computed_is_never_zero(hits: Figure, reason: str) -> None:
    """Constant labels and empty input give no value, and a reason."""
    assert (hits.value, hits.reason) == (None, reason)


def test_one_rater_without_a_choice_agrees_by_chance_alone() -> None:
    """Kappa is undefined only if both raters are constant; a judge that always passes has kappa 0."""
    assert cohen_kappa([1, 1, 1, 1], [1, 0, 1, 0]) == Figure(0.0, 4)
    assert weighted_kappa([3, 3, 3, 3], [1, 5, 2, 4]).value == near(0)


@given(LABELS)
def test_range_and_symmetry(pairs: list[tuple[int, int]]) -> None:
    """Swapping the raters changes nothing; nothing exceeds 1, correlations are not below -1."""
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    for measure in (cohen_kappa, weighted_kappa, spearman, accuracy):
        here, there = measure(one, other).value, measure(other, one).value
        assert (here is None) == (there is None)
        if here is not None:
            assert here == pytest.approx(there)
            assert -1 - 1e-9 <= here <= 1


@given(LABELS)
def test_weighted_kappa_is_what_its_definition_says(pairs: list[tuple[int, int]]) -> None:
    """Squared distances seen, by those of every label of one rater with every label of the other."""
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    agreement = weighted_kappa(one, other).value
    if agreement is not None:
        by_chance = sum((a - b) ** 2 for a in one for b in other) / len(pairs) ** 2
        seen = sum((a - b) ** 2 for a, b in pairs) / len(pairs)
        assert agreement == pytest.approx(1 - seen / by_chance)


@given(LABELS, st.randoms())
def test_the_order_of_items_and_raters_does_not_matter(pairs: list[tuple[int, int]], order: random.Random) -> None:
    """Any order of items, and of the ratings within a unit, gives the same alpha and kappa."""
    mixed = [tuple(order.sample(pair, 2)) for pair in order.sample(pairs, len(pairs))]
    for level in LEVELS:
        assert alpha(mixed, level).value == pytest.approx(alpha(pairs, level).value)
    shuffled = order.sample(pairs, len(pairs))
    here, there = (
        cohen_kappa([a for a, _ in each], [b for _, b in each]).value for each in (pairs, shuffled)
    )  # fmt: skip
    assert here == there


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.integers(2, 4))
def test_perfect_agreement_is_one(values: list[float], raters: int) -> None:
    """Whatever the labels, as long as there are two different ones."""
    units = [[value] * raters for value in values]
    found = [alpha(units, level).value for level in LEVELS]
    if len(set(values)) == 1:
        assert found == [None] * 3
        return
    assert found == [1.0] * 3
    assert cohen_kappa(values, values).value == 1.0
    assert spearman(values, values).value == pytest.approx(1.0)
    assert accuracy(values, values).value == 1.0


@given(st.lists(st.lists(st.none() | st.integers(0, 4), max_size=4), max_size=12), st.sampled_from(LEVELS))
def test_missing_ratings_are_as_if_they_were_not_asked_for(units: list[list[int | None]], level: Level) -> None:
    """None anywhere in a unit changes nothing; alpha is at most 1."""
    bare = [[value for value in unit if value is not None] for unit in units]
    agreement = alpha(units, level)
    assert agreement == alpha(bare, level)
    assert agreement.value is None or agreement.value <= 1


def test_confusion_counts_what_the_judge_said_where_people_said_something() -> None:
    """Outer people, inner judge."""
    assert confusion(["a", "b", "b"], ["a", "a", "b"]) == {"a": {"a": 1, "b": 1}, "b": {"b": 1}}


def test_raters_of_different_length_are_a_defect() -> None:
    """Ratings of different lengths are refused instead of being cut."""
    with pytest.raises(ValueError, match="equal"):
        cohen_kappa([1], [1, 2])
    with pytest.raises(ValueError, match="equal"):
        spearman([1], [1, 2])
    with pytest.raises(TypeError, match="no number"):
        alpha([("a", "b"), ("a", "a")], "interval")


@pytest.mark.parametrize("measure", [KAPPA, QUADRATIC_KAPPA, NOMINAL_ALPHA, INTERVAL_ALPHA])
def test_intervals_are_about_the_figures_themselves(measure: Measure) -> None:
    """The sums that draws are made of give the figure itself: with almost no spread the interval closes in on it."""
    many = list(zip(*SCORES, strict=True)) * 4_000
    ours, theirs = [a for a, _ in many], [b for _, b in many]
    whole = {
        KAPPA: cohen_kappa(ours, theirs),
        QUADRATIC_KAPPA: weighted_kappa(ours, theirs),
        NOMINAL_ALPHA: alpha(many, "nominal"),
        INTERVAL_ALPHA: alpha(many, "interval"),
    }[measure]
    interval = agreement_interval(many, measure)
    assert interval is not None
    assert whole.value is not None
    assert interval[0] < whole.value < interval[1]
    assert sum(interval) / 2 == pytest.approx(whole.value, abs=1e-3)
    assert interval == agreement_interval(many[::-1], measure)


def test_an_interval_of_values_far_from_zero() -> None:
    """Neither an offset nor a scale moves it."""
    here = agreement_interval(list(zip(*SCORES, strict=True)), INTERVAL_ALPHA)
    there = agreement_interval([(1e9 + a / 8, 1e9 + b / 8) for a, b in zip(*SCORES, strict=True)], INTERVAL_ALPHA)
    assert here == pytest.approx(there, abs=1e-6)


def test_raters_who_never_differ_may_differ_on_other_items() -> None:
    """No draw of 50 equal pairs can disagree; up to 7.1 % of disagreements would show none with a chance of 2.5 %."""
    same = [("pass", "pass")] * 25 + [("fail", "fail")] * 25
    interval = agreement_interval(same, NOMINAL_ALPHA)
    by_chance = 2 * 50 * 50 / (100 * 99)
    assert interval == pytest.approx((1 - (1 - 0.025 ** (1 / 50)) / by_chance, 1.0))
    rare = agreement_interval([("pass", "pass")] * 45 + [("fail", "fail")] * 5, NOMINAL_ALPHA)
    assert rare is not None
    assert rare[0] < 0.67


def test_too_little_for_an_interval() -> None:
    """One item, or labels that are almost all equal, give no interval."""
    assert agreement_interval([(1, 2)], INTERVAL_ALPHA) is None
    assert agreement_interval([(1, 1)] * 30 + [(1, 2)], NOMINAL_ALPHA) is None
    assert rate(0, 0).document() == {"value": None, "item_count": 0, "interval": None, "reason": NOTHING}


def test_an_interval_covers_at_its_level() -> None:
    """Labels of two raters whose alpha is 0.85 at a pass rate of 0.9, 50 items: a percentile bootstrap covers 75 %."""
    generator, covered, trials = random.Random(3), 0, 200
    for _ in range(trials):
        people = [generator.random() < 0.9 for _ in range(50)]
        judge = [right if generator.random() < 0.85 else generator.random() < 0.9 for right in people]
        interval = agreement_interval(list(zip(judge, people, strict=True)), NOMINAL_ALPHA)
        covered += interval is None or interval[0] <= 0.85 <= interval[1]
    assert covered / trials > 0.93
