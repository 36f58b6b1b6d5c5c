"""The codes and reasons that docs/errors.md says a method may end with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
NEVER = frozenset({"UNKNOWN", "INTERNAL", "DATA_LOSS"})
_ROW = re.compile(
    r"^\| (?:`(?P<method>[\w./]+)`|every method) \| `(?P<code>[A-Z_]+)` \| (?P<reasons>[^|]*)\|", re.MULTILINE
)
EVERY_METHOD = ""


def documented_ends() -> Mapping[str, frozenset[tuple[str, str]]]:
    """Return pairs of code and reason by method, "RunService.GetRun"; those of every method are in each,
    and alone under EVERY_METHOD."""
    found: dict[str, set[tuple[str, str]]] = {EVERY_METHOD: set()}
    for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")):
        ends = found.setdefault(row["method"] or EVERY_METHOD, set())
        ends |= {(row["code"], reason) for reason in re.findall(r"`([A-Z_]+)`", row["reasons"])}
    return {method: frozenset(ends | found[EVERY_METHOD]) for method, ends in found.items()}
