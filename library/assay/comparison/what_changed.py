"""In what the settings of runs differ, setting by setting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.comparison.model import Change

CODE = "code"
"""The setting below which it stands which code the agent was."""
_MOST_CHANGES = 200
_MOST_CHARS, _LEAST_CHARS = 4_000, 100  # of a text
_MOST_CHARS_OF_ALL = 200_000  # a comparison travels in one message


def changes(configs: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the settings that are not the same in all runs, in the order of the first run's.

    Lists of metrics are compared by the metrics' names; settings of metrics that are None and absent are equal. Long
    texts, such as prompts, are compared whole and returned without their ends.

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
    """Return a value, cut where it is longer as JSON than `most` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return every setting below a path; entries of a list that have names stand under them."""
    if isinstance(value, Mapping):
        return [pair for key, entry in value.items() for pair in _flat(entry, f"{path}.{key}" if path else str(key))]
    if _is_list_of_named(value):
        return _flat({entry["name"]: _settings_of(entry) for entry in value}, path)
    return [(path, value)]


def _settings_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an entry of a list; a metric that names no kind is of the kind that it is called."""
    settings = {key: value for key, value in named.items() if key != "name"}
    return {**settings, "metric": named["name"]} if settings.get("metric") == "" else settings


def _is_list_of_named(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value)
