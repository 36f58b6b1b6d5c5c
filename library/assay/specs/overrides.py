"""Command line changes to a spec: `--set key=value`, `--metrics a,b`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.metrics.python import names_function, own_name
from assay.parsing.yaml_nodes import YamlSyntaxError, parse_scalar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_WORD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PART = re.compile(r"([^.\[\]]+)((?:\[\d+\])*)")


def apply_override(data: dict[str, Any], override: str, problems: list[Problem]) -> None:
    """Set a value of a spec in place, e.g. "agent.timeout=5s" or "metrics.exact_match.threshold=0.9".

    Missing mappings on the path are created; a name after `metrics` selects the metric of that name.
    """
    key, sign, text = override.partition("=")
    where = f"--set {key.strip()}"
    if not sign or not key.strip():
        problems.append(Problem("must be KEY=VALUE, e.g. --set agent.timeout=5s", f"--set {override}"))
        return
    if not text.strip():
        problems.append(Problem(f"has no value: write {key.strip()}=VALUE, or {key.strip()}=null for none", where))
        return
    try:
        value = parse_scalar(text)
    except YamlSyntaxError as problem:
        problems.append(Problem(problem.message, where))
        return
    set_value(data, key.strip(), value, problems, where)


def set_value(data: dict[str, Any], key: str, value: Any, problems: list[Problem], where: str) -> None:
    """Set the value at a path of a spec in place; append problems of the path to `problems`.

    Args:
        key: The path, e.g. "agent.timeout".
        where: The user's name for the path, e.g. "--set agent.timeout".
    """
    parts = _split(key)
    if parts is None:
        problems.append(Problem("is not a path like agent.timeout or metrics[0]", where))
        return
    try:
        _set(data, parts, value)
    except (TypeError, IndexError):
        problems.append(Problem("leads through something that is neither a mapping nor a list", where))


def select_metrics(data: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Keep only the metrics with these names and their parameters; add those that are not listed.

    Returns:
        The names of the removed metrics.
    """
    metrics = data.get("metrics")
    listed = {_metric_name(item): item for item in metrics} if isinstance(metrics, list) else {}
    data["metrics"] = [listed.get(name, name) for name in names]
    return [name for name in listed if isinstance(name, str) and name not in names]


def gate_on_left_out(gate: str, left_out: Collection[str], chosen: Iterable[str]) -> str:
    """Return the problem of a gate on a metric that --metrics removed, or the empty string.

    Args:
        gate: The gate in the spec.
        left_out: Names of the removed metrics.
        chosen: Names of the kept metrics.
    """
    name = next((word for word in _WORD.findall(_QUOTED.sub("", gate)) if word in left_out), None)
    if name is None:
        return ""
    return (
        f"needs the metric {name}, which --metrics leaves out: add it (--metrics {','.join([*chosen, name])}), or run "
        "without the spec's gates (--set 'gates=[]')"
    )


def _split(key: str) -> list[str | int] | None:
    parts: list[str | int] = []
    for piece in key.split("."):
        match = _PART.fullmatch(piece)
        if match is None:
            return None
        parts.append(match[1])
        parts += [int(index) for index in re.findall(r"\d+", match[2])]
    return parts


def _set(target: Any, parts: list[str | int], value: Any) -> None:
    *way, last = parts
    for part in way:
        target = _step(target, part)
    if isinstance(last, str) and isinstance(target, list):
        target = _step(target, last)
        raise TypeError("a metric itself is not a value")
    if not isinstance(target, dict | list):
        raise TypeError("neither a mapping nor a list")
    target[last] = value  # type: ignore[index]  # a wrong kind of key raises TypeError, which the caller reports


def _step(target: Any, part: str | int) -> Any:
    if isinstance(target, list) and isinstance(part, str):
        return _metric(target, part)
    if isinstance(target, dict) and part not in target:
        target[part] = {}
    if isinstance(target, dict) and target[part] is None:
        target[part] = {}
    return target[part]


def _metric(metrics: list[Any], name: str) -> Any:
    for index, item in enumerate(metrics):
        if _metric_name(item) == name:
            if not isinstance(item, dict) or not isinstance(item[name], dict):
                metrics[index] = {name: {}}
            return metrics[index][name]
    metrics.append({name: {}})
    return metrics[-1][name]


def _metric_name(item: Any) -> Any:
    if isinstance(item, dict):
        return next(iter(item), None)
    return own_name(item) if names_function(item) else item if isinstance(item, str) else None
