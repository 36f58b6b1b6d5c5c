"""In what the settings of runs differ, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.comparison.model import Change

_MOST_CHANGES = 200


def changes(configs: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the settings that are not the same in all runs, in the order of the first run's.

    Lists of metrics are compared by the metrics' names; settings of metrics that are None and absent are equal.

    Args:
        configs: The `config` of each run's document.
    """
    flat = [dict(_flat(config, "")) for config in configs]
    paths = dict.fromkeys(path for one in flat for path in one)
    found = []
    for path in paths:
        values = tuple(one.get(path) for one in flat)
        if any(value != values[0] for value in values):
            found.append(Change(path, values))
    return found[:_MOST_CHANGES]


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return every setting below a path; entries of a list that have names stand under them."""
    if isinstance(value, Mapping):
        return [pair for key, one in value.items() for pair in _flat(one, f"{path}.{key}" if path else str(key))]
    if _is_list_of_named(value):
        named = {one["name"]: {key: each for key, each in one.items() if key != "name"} for one in value}
        return _flat(named, path)
    return [(path, value)]


def _is_list_of_named(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in value)
