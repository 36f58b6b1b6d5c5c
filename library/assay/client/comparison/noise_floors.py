"""Noise floors: how far a variant is from itself, measured once and kept by spec and dataset."""

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
"""Settings that do not move a score."""


def store_floor(home: Home, head: Mapping[str, Any], comparison: Comparison) -> Path:
    """Keep how far the two runs of one spec are apart; return the file.

    Args:
        home: The state directory.
        head: The document of the first run, without its rows.
        comparison: Of the first run with the second.

    Raises:
        SetupError: The file cannot be written.
    """
    pair = comparison.pairs[0]
    known = {one.metric: floor for one in pair.metrics if (floor := noise_floor(one)) is not None}
    found = {
        "runs": [one.run_id for one in comparison.variants],
        "cases": pair.n_common,
        "floors": {name: dataclasses.asdict(floor) for name, floor in known.items()},
    }
    path = _path(home, head)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_writer(path, option="ASSAY_HOME") as file:
        file.write(json_text(found, indent=1) + "\n")
    return path


def noise_floor(one: MetricComparison) -> NoiseFloor | None:
    """Return how far two runs of one spec are apart by a metric; None where too few cases have a value.

    Their difference itself is one draw: a second pair would exceed it half of the time. Its standard error says how
    far pairs are apart.
    """
    if one.standard_error is None:
        return None
    return NoiseFloor(2 * one.standard_error, (one.wins + one.losses) / one.n_pairs, one.n_pairs)


def find_floor(home: Home, head: Mapping[str, Any]) -> dict[str, NoiseFloor]:
    """Return the floor of each metric of a run's spec and dataset; empty where none was measured here."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError):
        floors = json.loads(_path(home, head).read_text("utf-8"))["floors"].items()
        return {name: NoiseFloor(**floor) for name, floor in floors}
    return {}


def _path(home: Home, head: Mapping[str, Any]) -> Path:
    config = {key: value for key, value in head["config"].items() if key not in _NOT_PART}
    judge = config.get("judge")
    if isinstance(judge, dict):
        config["judge"] = {key: value for key, value in judge.items() if key != "sample_offset"}
    dataset = head["run"]["dataset"]
    content = json.dumps([config, dataset.get("sha256") or dataset["dataset_id"]], sort_keys=True, default=str)
    return home.path / _FOLDER / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
