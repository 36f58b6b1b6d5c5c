"""The figures of docs/statistics.md are those that were measured, and they keep their bounds."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.error_rates.rates import Rate
from benchmarks.error_rates.tables import PAGE, RATES, with_tables
from benchmarks.error_rates.themes import THEMES, settings

ROOT = Path(__file__).resolve().parents[2]
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
