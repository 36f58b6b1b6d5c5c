"""A quick form of `benchmarks/error_rates`: few trials with a fixed seed, and the bounds that these allow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.clustered import sums_of, t_decides
from benchmarks.error_rates.comparing import compare, decisions, flips_decide
from benchmarks.error_rates.equivalence import equivalent_probability, says_equivalent
from benchmarks.error_rates.families import equal_or_worse, family_verdicts
from benchmarks.error_rates.layouts import keys, one_large, scores
from benchmarks.error_rates.mcnemar_tables import verdict_probability
from benchmarks.error_rates.rates import Rate, counted
from benchmarks.error_rates.runs import METRIC, run
from benchmarks.error_rates.tables import PAGE, RATES, with_tables
from benchmarks.error_rates.themes import THEMES, measure, settings

from assay.comparison.compare import compare_runs
from assay.comparison.model import ComparisonSettings, ComparisonVerdict

QUICK = [number for number, setting in enumerate(settings()) if setting.quick]
SIZES = one_large(10)


@pytest.mark.parametrize("number", QUICK, ids=[settings()[number].title for number in QUICK])
def test_rates_keep_their_bounds(number: int) -> None:
    """Each theme's harder settings: false verdicts, coverage and power are within what so few trials allow."""
    _, rates, _ = measure(number, settings()[number].quick, seed=1)
    assert rates
    assert [rate for rate in rates if not rate.is_kept()] == []


def test_a_wrong_rule_breaks_its_bound() -> None:
    """t with G - 1 degrees decides most comparisons of one large cluster and nine small ones, where none differs."""
    a, b = scores(SIZES, 0.8)(np.random.default_rng(1), 200)
    assert not counted("false verdicts", t_decides(b - a, SIZES), at_most=0.05).is_kept()


def test_sign_flips_are_the_verdict_of_whole_comparisons() -> None:
    """The level is measured by the test alone, which decides as the comparison does."""
    a, b = scores(SIZES, 0.4)(np.random.default_rng(2), 150)
    assert flips_decide(sums_of(b - a, SIZES)).tolist() == decisions(compare(a, b, clusters=keys(SIZES))).tolist()


@pytest.mark.parametrize("all_pairs", [False, True])
def test_families_decide_as_whole_comparisons(*, all_pairs: bool) -> None:
    """Holm over the pairs that decide gives the verdicts of a comparison of five runs."""
    columns = equal_or_worse(np.random.default_rng(3), [0.0, 0.3, 0.1, 0.0, 0.2])
    runs = [run(f"run-{number}", column) for number, column in enumerate(columns)]
    compared = compare_runs(runs, ComparisonSettings(primary=METRIC, all_pairs=all_pairs))
    verdicts = [pair.metric(METRIC).verdict for pair in compared.pairs if pair.a.label == "A"]
    signs = [(verdict is ComparisonVerdict.B_BETTER) - (verdict is ComparisonVerdict.A_BETTER) for verdict in verdicts]
    assert family_verdicts(columns, all_pairs=all_pairs) == signs
    assert any(signs)


def test_enumerated_levels_are_those_of_comparisons() -> None:
    """Over all tables of 12 cases, verdicts and "equivalent" have the probability that is enumerated."""
    cases, disagreeing, margin = 12, 0.4, 0.3
    decided = equivalent = 0.0
    for lost in range(cases + 1):
        for won in range(cases + 1 - lost):
            a = np.array([[1.0] * lost + [0.0] * (cases - lost)])
            b = np.array([[0.0] * lost + [1.0] * won + [0.0] * (cases - lost - won)])
            (compared,) = compare(a, b, is_binary=True, bounds=(0.0, 1.0), margin=margin)
            counts = (lost, won, cases - lost - won)
            decided += decisions([compared])[0] * scipy.stats.multinomial.pmf(counts, cases, (0.2, 0.2, 0.6))
            assert (compared.verdict.value == "equivalent") is says_equivalent(lost, won, cases, margin)
            equivalent += says_equivalent(lost, won, cases, margin) * scipy.stats.multinomial.pmf(
                counts, cases, (0.35, 0.05, 0.6)
            )
    assert verdict_probability(cases, disagreeing, 0.0) == pytest.approx(decided)
    assert equivalent_probability(cases, margin, disagreeing) == pytest.approx(equivalent)


@pytest.mark.parametrize(
    ("cases", "disagreeing", "difference", "percent"),
    [
        (25, 0.25, 0.0, 1.38),
        (100, 0.25, 0.0, 2.97),
        (500, 0.25, 0.0, 4.05),
        (100, 0.05, 0.0, 0.88),
        (100, 0.5, 0.0, 3.67),
        (100, 0.25, 0.1, 43.99),
        (200, 0.25, 0.1, 78.68),
        (50, 0.25, 0.2, 80.83),
    ],
)
def test_exact_level_and_power(cases: int, disagreeing: float, difference: float, percent: float) -> None:
    """Figures of an independent enumeration."""
    assert round(100 * verdict_probability(cases, disagreeing, difference), 2) == percent


ROOT = Path(__file__).resolve().parents[3]
MEASURED = json.loads(RATES.read_text(encoding="utf-8"))["rates"]


def test_the_page_has_the_measured_tables() -> None:
    """`python -m benchmarks.error_rates.tables` would change nothing."""
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text, MEASURED) == text


def test_every_stored_rate_keeps_its_bound() -> None:
    """False verdicts, coverage and power of planned sizes are within three standard errors of what is stated."""
    broken = []
    for one in MEASURED:
        for stored in one["rates"]:
            rate = Rate(**{key: value for key, value in stored.items() if key != "error"})
            if not rate.is_kept():
                broken.append((one["theme"], one["setting"], stored))
    assert broken == []


def test_every_setting_is_stored() -> None:
    """No setting was added, renamed or removed without being measured."""
    assert [(one["theme"], one["setting"]) for one in MEASURED] == [(one.theme, one.name) for one in settings()]
    assert {one["theme"] for one in MEASURED} == set(THEMES)


def test_the_page_has_the_figures_of_the_examples() -> None:
    """Differences and counts of verdicts stand in the lines of their examples; equal agents kept the level."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    for one in json.loads((ROOT / "benchmarks/results/example_comparisons.json").read_text(encoding="utf-8")):
        ending = f"| {one['difference']:.2f} | {one['verdicts']} of {one['comparisons']} |"
        assert [line for line in lines if f"`{one['example']}`" in line and line.endswith(ending)], ending
        assert one["verdicts"] <= one["allowed"] if one["allowed"] else one["verdicts"] == one["comparisons"]
