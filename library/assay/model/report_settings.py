"""Report formats, and the settings of a requested report."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

REPORTS: Mapping[str, Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "json": {},
        "jsonl": {},
        "csv": {"bom": (False, True)},
        "markdown": {},
        "junit": {},
        "parquet": {},
        "charts": {"plot_format": ("png", "svg")},
        "html": {},
    }
)
"""The options of every format; an option's first value is its default."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """A report to write.

    Args:
        format: One of REPORTS.
        options: The options set by the user; all others have their defaults.
        is_optional: Whether a missing package skips it with a note, because the user did not request it by name.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_optional: bool = False


def by_default(*formats: str) -> tuple[ReportSettings, ...]:
    """Return default reports, which the user did not request by name."""
    return tuple(ReportSettings(name, is_optional=True) for name in formats)


DEFAULT_REPORTS = by_default("json", "html")
"""The reports written if neither the spec nor its preset names any."""
