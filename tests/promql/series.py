"""Series as the unit tests of promtool write them, and their samples."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_EXPANDED = re.compile(rf"({_NUMBER})([-+]{_NUMBER.removeprefix('[-+]?')})?x(\d+)")
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class Series:
    """Samples under a name with labels.

    Args:
        name: Its metric.
        labels: Its labels, sorted.
        samples: Times in seconds and values, ascending; NaN marks that the series has ended.
    """

    name: str
    labels: Labels
    samples: tuple[tuple[float, float], ...]

    def at(self, time: float, lookback: float = 300.0) -> float | None:
        """Return the newest value that is younger than the lookback."""
        found = [value for moment, value in self.samples if time - lookback < moment <= time]
        return found[-1] if found and not math.isnan(found[-1]) else None

    def between(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return the samples after a moment, up to another one."""
        return [(moment, value) for moment, value in self.samples if start < moment <= end and not math.isnan(value)]


def seconds(text: str) -> float:
    """Return a duration, e.g. `1h30m`, in seconds."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def read_series(name: str, values: str, interval_s: float) -> Series:
    """Return a series of a fixture.

    Args:
        name: The metric and its labels, `name{label="value"}`.
        values: Values by the interval: `1 2 _ 3`, `0+10x5`, `7x3`; `_` is a missing one, `stale` the end.
        interval_s: Time between two values.
    """
    found = _SELECTOR.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no series")
    samples = ((at * interval_s, value) for at, value in enumerate(_values(values)) if value is not None)
    return Series(found[1], tuple(sorted(_labels(found[2] or "").items())), tuple(samples))


def _labels(text: str) -> Mapping[str, str]:
    labels, at = {}, 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError(f"{text!r} are no labels")
        labels[found[1]], at = found[2], found.end()
    return labels


def _values(text: str) -> Iterator[float | None]:
    for word in text.split():
        expanded = _EXPANDED.fullmatch(word)
        if word == "_":
            yield None
        elif word == "stale":
            yield math.nan
        elif re.fullmatch(r"_x\d+", word):
            yield from [None] * int(word[2:])
        elif expanded is not None:
            first, step, count = float(expanded[1]), float(expanded[2] or 0), int(expanded[3])
            yield from (first + step * at for at in range(count + 1))
        else:
            yield float(word)
