"""Noise floors: two standard errors of a pair of equal runs and its flip rate, kept by spec and dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.comparison.comparing import compare_columns, disagreeing

from assay.client.comparison.noise_floors import find_floor, store_floor
from assay.local_stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path

HEAD: dict[str, Any] = {"config": {"metrics": ["exact_match"]}, "run": {"dataset": {"dataset_id": "d"}}}


def test_a_floor_is_stored_and_found(tmp_path: Path) -> None:
    """Not the one difference, 0.04, but 2·√(6/52² - (2/52)²/52), and 4 flips of 50; quality has the error 1/√49."""
    a, b = disagreeing(3, 1, 50)
    scores = [2.0, 4.0] * 25
    home = Home(tmp_path, tmp_path)
    comparison = compare_columns({"exact_match": a, "quality": [3.0] * 50}, {"exact_match": b, "quality": scores})
    path = store_floor(home, HEAD, comparison)
    found = find_floor(home, HEAD)
    floor = found["exact_match"]
    assert floor.difference == pytest.approx(2 * (6 / 52 / 52 - (2 / 52) ** 2 / 52) ** 0.5)
    assert (floor.flip_rate, floor.case_count) == (4 / 50, 50)
    assert found["quality"].difference == pytest.approx(2 / 49**0.5)
    assert found["quality"].flip_rate == 1.0
    assert find_floor(home, {**HEAD, "config": {}}) == {}
    path.write_text('{"floors": {"exact_match": 0.04}}')
    assert find_floor(home, HEAD) == {}, "what another version stored is not read"
