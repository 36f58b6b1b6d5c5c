"""The figures of docs/statistics.md are those that were simulated."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = json.loads((ROOT / "benchmarks/results/error_rates.json").read_text(encoding="utf-8"))["outcomes"]


def test_the_page_has_every_simulated_figure() -> None:
    """Each share of a test, rounded as the page rounds it, stands in a line of the page's tables."""
    text = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    cells = {cell.strip() for line in text.splitlines() if line.startswith("|") for cell in re.split(r"[|,]", line)}
    found = {f"{one['verdicts']:.1%}".replace("%", " %") for one in OUTCOMES}
    found |= {f"{one['unpaired_z']:.1%}".replace("%", " %") for one in OUTCOMES if one["unpaired_z"] is not None}
    found |= {f"saves {one['saved']:.1%}".replace("%", " %") for one in OUTCOMES if one["saved"] and one["difference"]}
    assert found - cells == set()
    simulated = {cell for cell in cells if re.search(r"\d\.\d %$", cell)}
    assert simulated - found == set()


def test_no_setting_has_too_many_false_alarms() -> None:
    """The stored figures keep the level within three standard errors; they are of 10,000 comparisons a setting."""
    tested = [one for one in OUTCOMES if one["allowed"] is not None]
    assert len(tested) > 25
    assert [one["setting"] for one in tested if one["verdicts"] > one["allowed"]] == []
    assert {one["simulations"] for one in OUTCOMES} == {10_000}


def test_the_page_has_the_figures_of_the_examples() -> None:
    """Differences and counts of verdicts stand in the lines of their examples; equal agents kept the level."""
    lines = [line for line in (ROOT / "docs/statistics.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    for one in json.loads((ROOT / "benchmarks/results/example_comparisons.json").read_text(encoding="utf-8")):
        ending = f"| {one['difference']:.2f} | {one['verdicts']} of {one['comparisons']} |"
        assert [line for line in lines if f"`{one['example']}`" in line and line.endswith(ending)], ending
        assert one["verdicts"] <= one["allowed"] if one["allowed"] else one["verdicts"] == one["comparisons"]
