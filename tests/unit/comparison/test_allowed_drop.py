"""--max-drop and --max-drop-test: how often noise decides, and when a larger drop is excluded."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest
from tests.unit.comparison.comparing import compare_columns, compared, disagreeing

from assay.comparison.compare import compare_runs
from assay.comparison.decision import ComparisonDecision, DecisionOutcome, DecisionRules, decide
from assay.comparison.mismatch import Mismatch, MismatchReason
from assay.comparison.model import Comparison, ComparisonSettings, FailOn
from assay.comparison.settings import check_settings
from assay.errors import InvalidInputError
from assay.statistics.one_sided import rate_bounds

TESTED = DecisionRules(FailOn.NEVER, max_drop=0.05, max_drop_test=True)


def exact_match(columns: tuple[list[float], list[float]], *, settings: ComparisonSettings | None = None) -> Comparison:
    """Return the comparison of two runs by exact match."""
    return compare_columns({"exact_match": columns[0]}, {"exact_match": columns[1]}, settings=settings)


def said_of(found: ComparisonDecision) -> str:
    """Return the reasons in one text."""
    return " ".join(found.reasons)


def test_the_chance_that_noise_decides() -> None:
    """Φ(-D/SE), SE √((11 + 11)/102/102) of 10 against 10 of 100 cases; without a limit nothing is said."""
    comparison = exact_match(disagreeing(10, 10, 100))
    decision = decide(comparison, DecisionRules(max_drop=0.05))
    (drop,) = decision.drops
    error = (22 / 102 / 102) ** 0.5
    assert drop.noise_chance == pytest.approx(NormalDist().cdf(-0.05 / error))
    assert "noise alone exceeds --max-drop 0.05 in 13.8% of comparisons of equal runs" in said_of(decision)
    assert "reaches more than 0.05 to either side" in said_of(decision)
    assert (drop.label, drop.drop, drop.is_narrow, decision.exit_status) == ("B", 0.0, False, 0)
    assert decide(comparison, DecisionRules()).drops == ()
    rare = decide(exact_match(disagreeing(2, 2, 1000)), DecisionRules(max_drop=0.05))
    assert "in less than 0.1% of comparisons" in said_of(rare)
    assert "to either side" not in said_of(rare)


@pytest.mark.parametrize(
    ("columns", "allowed", "status"),
    [
        (disagreeing(1, 1, 400), 0.05, 0),
        (disagreeing(1, 1, 400), 0.009, 1),  # the bound is 0.0096
        (disagreeing(10, 10, 100), 0.05, 1),
        (disagreeing(10, 10, 100), 0.09, 0),
        (disagreeing(0, 0, 100), 0.029, 1),  # 100 equal cases leave a drop of 1 - 0.05^(1/100) = 0.0295
        (disagreeing(0, 0, 100), 0.03, 0),
        (disagreeing(0, 0, 5), 0.4, 1),
        (disagreeing(2, 20, 60), 0.0, 0),
    ],
)
def test_a_larger_drop_has_to_be_excluded(
    columns: tuple[list[float], list[float]], allowed: float, status: int
) -> None:
    """Exit status 1 unless the one-sided bound is below the allowed drop; --max-drop alone passes all of these."""
    comparison = exact_match(columns)
    decision = decide(comparison, replace(TESTED, max_drop=allowed))
    assert decision.exit_status == status
    assert ("is not excluded: it may be" in said_of(decision)) is (status == 1)
    assert ("is excluded: it is" in said_of(decision)) is (status == 0)
    assert decision.outcome is not DecisionOutcome.REGRESSION
    assert decide(comparison, DecisionRules(FailOn.NEVER, max_drop=allowed)).exit_status == 0


def test_scores_without_spread_exclude_no_rare_loss() -> None:
    """Five equal scores exclude no drop of 0.3 of a scale of 4, 400 do; without a scale, equal ones exclude none."""
    rules = replace(TESTED, max_drop=0.3)
    for count, status in ((5, 1), (400, 0)):
        comparison = compare_columns({"quality": [4.0] * count}, {"quality": [4.0] * count})
        assert decide(comparison, rules).exit_status == status
    settings = ComparisonSettings(primary="latency")
    equal = compare_columns({"latency": [1.5] * 40}, {"latency": [1.5] * 40}, settings=settings)
    decision = decide(equal, rules)
    assert (decision.exit_status, decision.drops[0].bound, decision.drops[0].noise_chance) == (1, None, None)


@pytest.mark.parametrize(("shift", "status"), [(0.05, 0), (-0.5, 0), (0.25, 1), (0.4, 1)])
def test_lower_may_be_better(shift: float, status: int) -> None:
    """Latency may grow by less than 0.3 s: the upper bound decides, and a faster run passes."""
    a = [1.0 + 0.1 * (place % 7) for place in range(60)]
    b = [value + shift + 0.2 * ((place % 5) - 2) for place, value in enumerate(a)]
    settings = ComparisonSettings(primary="latency")
    decision = decide(compare_columns({"latency": a}, {"latency": b}, settings=settings), replace(TESTED, max_drop=0.3))
    assert decision.exit_status == status
    assert decision.drops[0].drop == pytest.approx(shift)
    assert (decision.outcome is DecisionOutcome.REGRESSION) is (shift > 0.3)


def test_what_cannot_be_compared_never_passes() -> None:
    """Too few values end with 3, a filter or an allowed mismatch with 1."""
    none = compare_columns({"exact_match": [1.0, None, None]}, {"exact_match": [1.0, 1.0, 1.0]})
    assert decide(none, TESTED).exit_status == 3
    filtered = exact_match(disagreeing(0, 30, 400), settings=ComparisonSettings(where="passed = true"))
    assert decide(filtered, DecisionRules(FailOn.NEVER, max_drop=0.05)).exit_status == 0
    decision = decide(filtered, TESTED)
    assert (decision.exit_status, decision.drops[0].bound) == (1, None)
    assert "chosen by a filter" in said_of(decision)
    mismatched = replace(filtered, mismatches=(Mismatch(MismatchReason.JUDGE, "the judges differ"),))
    assert decide(mismatched, TESTED).exit_status == 3
    assert decide(mismatched, replace(TESTED, allow_mismatch=True)).exit_status == 1


def test_differing_errors_count_as_losses() -> None:
    """B has no value in 12 of 300 cases, all of them errors, 8 of them right in A: the bound is that of 8 lost ones."""
    columns = [1.0, 1.0, 0.0] * 100
    missing = [None if place < 12 else value for place, value in enumerate(columns)]
    one = compared("a", {"exact_match": columns})
    other = compared("b", {"exact_match": missing}, errors=range(12))
    comparison = compare_runs([one, other], ComparisonSettings(primary="exact_match"))
    rules = replace(TESTED, fail_on=FailOn.NEVER)
    passed, failed = decide(comparison, rules), decide(comparison, replace(rules, max_drop=0.04))
    assert (passed.exit_status, failed.exit_status) == (0, 1)
    assert passed.drops[0].bound == pytest.approx(-rate_bounds(8, 0, 300)[0])
    assert "with the worst values in place of errors" in said_of(failed)
    assert "noise alone" not in said_of(failed)


def test_each_run_has_its_own_drop() -> None:
    """Of three runs, the reasons name the one that may be worse, and the chance of each."""
    right, wrong = [1.0] * 400, [0.0] * 12 + [1.0] * 388
    decision = decide(compare_columns({"exact_match": right}, {"exact_match": right}, {"exact_match": wrong}), TESTED)
    assert [drop.label for drop in decision.drops] == ["B", "C"]
    assert decision.exit_status == 0
    strict = decide(
        compare_columns({"exact_match": right}, {"exact_match": right}, {"exact_match": wrong}),
        replace(TESTED, max_drop=0.04),
    )
    assert strict.exit_status == 1
    assert "of run-2 against run-0 by more than 0.04 is not excluded" in said_of(strict)
    assert "--max-drop 0.04 of run-1 in" in said_of(strict)


def test_the_test_needs_a_drop() -> None:
    """The flag without a drop is refused, in the terms of where it is set."""
    for prefix in ("", "rules."):
        with pytest.raises(InvalidInputError, match=f"{prefix}max_drop_test: needs {prefix}max_drop"):
            check_settings(
                ComparisonSettings(),
                DecisionRules(max_drop_test=True),
                adjust="holm",
                fail_on="never",
                place=prefix.__add__,
            )
