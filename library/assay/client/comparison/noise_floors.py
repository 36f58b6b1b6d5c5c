"""Noise floors: the difference between two runs of the same variant, stored by spec and dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

from assay.comparison.model import NoiseFloor
from assay.reports.atomic import atomic_writer
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.comparison.model import Comparison, MetricComparison
    from assay.local_stack.home import Home

_FOLDER = "noise_floors"
_NOT_PART = ("name", "team", "weight", "group_id", "gates", "stopping")
"""Settings that do not affect scores."""


def store_floor(home: Home, head: Mapping[str, Any], comparison: Comparison) -> Path:
    """Store the difference between two runs of a spec; return the file.

    Args:
        home: State directory.
        head: Document of the first run, without its rows.
        comparison: Comparison of the two runs.

    Raises:
        SetupError: The file cannot be written.
    """
    pair = comparison.pairs[0]
    floors = {entry.metric: floor for entry in pair.metrics if (floor := noise_floor(entry)) is not None}
    document = {
        "runs": [entry.run_id for entry in comparison.variants],
        "cases": pair.common_case_count,
        "floors": {name: dataclasses.asdict(floor) for name, floor in floors.items()},
    }
    path = _path(home, head)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_writer(path, option="ASSAY_HOME") as file:
        file.write(json_text(document, indent=1) + "\n")
    return path


def noise_floor(metric: MetricComparison) -> NoiseFloor | None:
    """Return the noise floor of a metric from two runs of a spec; None if too few cases have a value.

    The difference itself is a single draw, which another pair of runs would exceed half of the time, so the floor uses
    its standard error.
    """
    if metric.standard_error is None:
        return None
    return NoiseFloor(
        2 * metric.standard_error, (metric.win_count + metric.loss_count) / metric.pair_count, metric.pair_count
    )


def find_floor(home: Home, head: Mapping[str, Any]) -> dict[str, NoiseFloor]:
    """Return the floors of a run's spec and dataset by metric; empty if none were measured here."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError):
        floors = json.loads(_path(home, head).read_text("utf-8"))["floors"].items()
        return {name: NoiseFloor(**floor) for name, floor in floors}
    return {}


def _path(home: Home, head: Mapping[str, Any]) -> Path:
    config = {key: value for key, value in head["config"].items() if key not in _NOT_PART}
    config["judges"] = [
        {key: value for key, value in judge.items() if key != "sample_offset"} for judge in config.get("judges") or ()
    ]
    dataset = head["run"]["dataset"]
    content = json.dumps([config, dataset.get("sha256") or dataset["dataset_id"]], sort_keys=True, default=str)
    return home.path / _FOLDER / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
