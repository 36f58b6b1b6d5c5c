"""The differences between the settings of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.comparison.model import Change

CODE = "code"
"""The path of the settings that describe the agent's code."""
_MOST_CHANGES = 200
_MOST_CHARS, _LEAST_CHARS = 4_000, 100  # of a text
_MOST_CHARS_OF_ALL = 200_000  # a comparison travels in one message


def changes(configs: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the settings that differ between runs, in the order of the first run.

    Lists of metrics are compared by name; None equals an absent setting of a metric. Long texts, such as prompts, are
    compared in full and returned shortened.

    Args:
        configs: The `config` of each run's document.
    """
    flat = [dict(_flat(config, "")) for config in configs]
    paths = dict.fromkeys(path for settings in flat for path in settings)
    columns = ((path, [settings.get(path) for settings in flat]) for path in paths)
    changed = [(path, values) for path, values in columns if any(value != values[0] for value in values)][
        :_MOST_CHANGES
    ]
    share = _MOST_CHARS_OF_ALL // max(1, len(changed) * len(configs))
    most = min(_MOST_CHARS, max(_LEAST_CHARS, share))
    return [Change(path, tuple(_shortened(value, most) for value in values)) for path, values in changed]


def _shortened(value: Any, most: int) -> Any:
    """Return a value, cut if it exceeds `most` characters as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return every setting below a path; named entries of a list have their names in the path."""
    if isinstance(value, Mapping):
        return [pair for key, entry in value.items() for pair in _flat(entry, f"{path}.{key}" if path else str(key))]
    if _is_list_of_named(value):
        return _flat({entry["name"]: _without_name(entry) for entry in value}, path)
    return [(path, value)]


def _without_name(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "name"}


def _is_list_of_named(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value)
