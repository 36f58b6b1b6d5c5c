"""Descriptions of metrics, and the parameters that a spec may set."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MODEL = "all-MiniLM-L6-v2"
_MAX_TEXT_CHARS = 10_000
_MAX_TEXTS = 1_000
_MAX_LIST_CHARS = 100_000
SHARE = (0.0, 1.0)
"""The bounds of a share."""
_SCALES = {"0 to 1": SHARE, "0 or 1": SHARE, "1 to 5": (1.0, 5.0), "-1 to 1": (-1.0, 1.0)}
"""The bounds of values, by the beginning of their description."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a metric.

    Args:
        kind: "number", "integer", "boolean", "text", "text_list", "object" or "any".
        default: The value without an entry in the spec; None means "none". A threshold may always be None.
        help: One sentence.
        minimum: Smallest value of a number.
        maximum: Largest value of a number.
        choices: The allowed texts; empty for any text.
        required: Whether the spec must set it.
    """

    name: str
    kind: str
    default: Any
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    required: bool = False

    def problem(self, value: Any) -> str:
        """Return the problem of a value, or the empty string."""
        if value is None:
            return "" if self._may_be_none() else "is missing"
        match self.kind:
            case "number" | "integer":
                return self._number_problem(value)
            case "boolean" if not isinstance(value, bool):
                return f"must be true or false, not {value!r}"
            case "text" if not isinstance(value, str) or not value.strip():
                return f"must be a string, not {value!r}"
            case "text" if len(value) > _MAX_TEXT_CHARS:
                return f"has {len(value):,} characters, more than {_MAX_TEXT_CHARS:,}"
            case "text" if self.choices and value not in self.choices:
                return f"must be one of {', '.join(self.choices)}, not {value!r}"
            case "text_list" if not _is_text_list(value):
                return "must be a list of strings that are not blank"
            case "text_list" if len(value) > _MAX_TEXTS:
                return f"has {len(value):,} texts, more than {_MAX_TEXTS:,}"
            case "text_list" if sum(map(len, value)) > _MAX_LIST_CHARS:
                return f"has {sum(map(len, value)):,} characters, more than {_MAX_LIST_CHARS:,}"
            case "text_list" if self.required and not value:
                return "must hold at least one text"
            case "object" if not isinstance(value, dict):
                return f"must be a mapping, not {value!r}"
        return ""

    def _may_be_none(self) -> bool:
        return not self.required and (self.default is None or self.name in ("threshold", "goal"))

    def _number_problem(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            return f"must be a number, not {value!r}"
        if self.kind == "integer" and not isinstance(value, int):
            return f"must be a whole number, not {value!r}"
        if not self.minimum <= value <= self.maximum:
            return f"must be from {self.minimum:g} to {self.maximum:g}, not {value!r}"
        return ""


RULE_SIGNS = {"at_least": ">=", "more_than": ">", "at_most": "<="}
"""How texts print the rule of a threshold."""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric as people and validation see it; the module's docstring has the rest.

    Args:
        name: Its name in specs and reports.
        title: Its name in headings.
        summary: One sentence.
        parameters: The parameters that a spec may set.
        reads: The parts of a row that it reads, e.g. "answer", "references", "sources", "tokens", "verdict".
        values: The possible values of a row, e.g. "0 to 1".
        rule: How value and threshold compare: "at_least", "more_than" or "at_most".
        unit: Unit of the value: "s", "tokens", "USD", "%" for a share in [0, 1], or empty for a plain number.
        example: Parameters of an example, including all required ones.
        decides: Whether it gives rows a verdict: "always", with a "threshold", or "never".
        needs: The field of cases without which no row has a value, as `UNFED` names it; empty if it needs none.
        stats: Numbers of its aggregate's detail that a gate may compare; "precision.rouge1" is a nested number, and
            names of seconds lack their "_s".
        score_stats: The least and greatest values of those `stats` that are scores, for which higher is better.
    """

    name: str
    title: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    reads: tuple[str, ...] = ("answer",)
    values: str = ""
    rule: str = "at_least"
    unit: str = ""
    example: Mapping[str, Any] = field(default_factory=dict)
    decides: str = "threshold"
    needs: str = ""
    stats: tuple[str, ...] = ()
    score_stats: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def needs_embedder(self) -> bool:
        """Whether it needs vectors."""
        return any(parameter.name == "model" for parameter in self.parameters)

    @property
    def scale(self) -> tuple[float, float] | None:
        """The least and the greatest value; None without bounds."""
        return next((bounds for start, bounds in _SCALES.items() if self.values.startswith(start)), None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value, infinite without a bound."""
        return self.scale or (0.0 if self.values.startswith(("from 0", "above 0")) else -math.inf, math.inf)

    @property
    def needs_judge(self) -> bool:
        """Whether it is computed from a judge's verdict."""
        return "verdict" in self.reads


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item.strip() for item in value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False
