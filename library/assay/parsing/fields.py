"""The fields of a mapping that a person wrote, by kind: a wrong value is reported and its default takes its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from assay.parsing.names import unknown_name
from assay.parsing.quantities import read_duration_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class Fields:
    """Reads one mapping; a field that is absent or null has its default.

    Args:
        data: The mapping.
        report: Takes the name of a field and what is wrong with it.
    """

    def __init__(self, data: Mapping[Any, Any], report: Callable[[str, str], None]) -> None:
        self._data = data
        self._report = report

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self._get(name, default)
        return value if isinstance(value, str) else self._wrong(name, default, f"must be a string, not {value!r}")

    def flag(self, name: str) -> bool:
        """Return true or false; false where it is absent."""
        value = self._get(name, False)
        return value if isinstance(value, bool) else self._wrong(name, False, f"must be true or false, not {value!r}")

    def whole(self, name: str, default: int, least: int | None = None, most: int | None = None) -> int:
        """Return a whole number."""
        value = self._get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not _is_within(value, least, most):
            return self._wrong(name, default, f"must be a whole number{_range(least, most)}, not {value!r}")
        return value

    def number(
        self, name: str, default: float | None = None, least: float | None = None, most: float | None = None
    ) -> float | None:
        """Return a number; None where it is absent and has no default."""
        value = self._get(name, default)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not _is_within(value, least, most):
            return self._wrong(name, default, f"must be a number{_range(least, most)}, not {value!r}")
        return float(value)

    def duration_s(self, name: str, default: float, least: float, most: float, said: str) -> float:
        """Return a duration in seconds; `said` is what is due, for people."""
        value = self._get(name, None)
        seconds = default if value is None else read_duration_s(value)
        if math.isnan(seconds) or not least <= seconds <= most:
            return self._wrong(name, default, f"must be {said}, not {value!r}")
        return seconds

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some texts, the first where it is absent."""
        value = self._get(name, choices[0])
        if value not in choices:
            either = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
            return self._wrong(name, choices[0], f"must be {either}, not {value!r}")
        return str(value)

    def unknown(self, known: Sequence[str], kind: str = "field") -> None:
        """Report the fields that there are not."""
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
    """Return how bounds are said; there are both or none."""
    if least is None or most is None:
        return ""
    return f" from {_shown(least)} to {_shown(most)}"


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
