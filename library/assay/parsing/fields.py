"""Typed access to the fields of a user's mapping; an invalid value is reported and replaced by the default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import Problem
from assay.parsing.names import unknown_name
from assay.parsing.quantities import read_duration_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class Fields:
    """Reads a mapping; an absent or null field has its default.

    Args:
        data: The mapping.
        report: Receives a field's name and its problem.
    """

    def __init__(self, data: Mapping[Any, Any], report: Callable[[str, str], None]) -> None:
        self._data = data
        self._report = report

    @classmethod
    def of_agent(cls, options: Mapping[str, Any], problems: list[Problem]) -> Fields:
        """Return a reader of an agent's options that appends their problems to `problems`."""
        return cls(options, lambda name, message: problems.append(Problem(message, f"agent.{name}")))

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self._get(name, default)
        return value if isinstance(value, str) else self._wrong(name, default, f"must be a string, not {value!r}")

    def flag(self, name: str) -> bool:
        """Return true or false; false if absent."""
        value = self._get(name, False)
        return value if isinstance(value, bool) else self._wrong(name, False, f"must be true or false, not {value!r}")

    def whole(self, name: str, default: int, least: int | None = None, most: int | None = None) -> int:
        """Return an integer."""
        value = self._get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not _is_within(value, least, most):
            return self._wrong(name, default, f"must be a whole number{_range(least, most)}, not {value!r}")
        return value

    def number(
        self, name: str, default: float | None = None, least: float | None = None, most: float | None = None
    ) -> float | None:
        """Return a number; None if absent without a default."""
        value = self._get(name, default)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not _is_within(value, least, most):
            return self._wrong(name, default, f"must be a number{_range(least, most)}, not {value!r}")
        return float(value)

    def duration_s(self, name: str, default: float, least: float, most: float, expected: str) -> float:
        """Return a duration in seconds; `expected` describes valid input in the error message."""
        value = self._get(name, None)
        seconds = default if value is None else read_duration_s(value)
        if math.isnan(seconds) or not least <= seconds <= most:
            return self._wrong(name, default, f"must be {expected}, not {value!r}")
        return seconds

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some texts; the first if absent."""
        value = self._get(name, choices[0])
        if value not in choices:
            either = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
            return self._wrong(name, choices[0], f"must be {either}, not {value!r}")
        return str(value)

    def unknown(self, known: Sequence[str], kind: str = "field") -> None:
        """Report unknown fields."""
        for name in self._data:
            if name not in known:
                self._report(str(name), unknown_name(kind, name, known))

    def _get(self, name: str, default: Any) -> Any:
        value = self._data.get(name)
        return default if value is None else value

    def _wrong(self, name: str, default: T, message: str) -> T:
        self._report(name, message)
        return default


def _is_within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _range(least: float | None, most: float | None) -> str:
    """Return a phrase for a pair of bounds; empty without bounds."""
    if least is None or most is None:
        return ""
    return f" from {_shown(least)} to {_shown(most)}"


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
