"""Which reports there are, and one that is wanted."""

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
"""Every format with its options; the first of an option's values is its default."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """One report to write.

    Args:
        format: One of REPORTS.
        options: Those that were given; all others have their defaults.
        is_optional: Whether it is left out, with a note, where its package is missing: it was not asked for by name.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_optional: bool = False


def by_default(*formats: str) -> tuple[ReportSettings, ...]:
    """Return reports that were not asked for by name."""
    return tuple(ReportSettings(name, is_optional=True) for name in formats)


DEFAULT_REPORTS = by_default("json", "html")
"""What is written where neither a spec nor its preset says."""
