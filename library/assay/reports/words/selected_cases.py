"""Selection of cases, as every report states it beside the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import CaseSelection, Run

_MOST_VALUES = 4
_VALUE_CHARS = 60


@dataclass(frozen=True, slots=True)
class SelectedCases:
    """Selection of a run over a part of its dataset.

    Args:
        selected: Cases of the run.
        total: Cases of the dataset, bad ones that were left out included; None where the file could not be counted.
        why: How the cases were selected, e.g. "only the first 10"; clean text.
    """

    selected: int
    total: int | None
    why: str

    @property
    def sentence(self) -> str:
        """Counts and selection, e.g. "10 of 40 cases: only the first 10"; clean text."""
        of = f"of {self.total:,} cases" if self.total is not None else "cases of a file that is not readable to its end"
        return f"{self.selected:,} {of}: {self.why}"


def selected_cases(run: Run) -> SelectedCases | None:
    """Return the part of its dataset that a run covers; None if it covers all of it."""
    selection, reading, count = run.spec.selection, run.spec.dataset, run.dataset.case_count
    left_out = reading.left_out_count if reading is not None else 0
    total = selection.total_count if selection is not None else count
    total = None if total is None else total + left_out
    if total == count:
        return None
    conditions = selection_text(selection)
    bad = f"{left_out:,} bad {'record' if left_out == 1 else 'records'} left out" if left_out else ""
    return SelectedCases(count, total, ", ".join(filter(None, (conditions, bad))))


def selected_document(run: Run) -> dict[str, Any] | None:
    """Return the selection as JSON; null for a run over all cases."""
    selected = selected_cases(run)
    return (
        None
        if selected is None
        else {"selected_count": selected.selected, "total_count": selected.total, "sentence": selected.sentence}
    )


def selection_sentence(head: Mapping[str, Any]) -> str:
    """Return the part of its dataset that the run of a document covers; empty if it covers all of it."""
    return str((head["summary"].get("selection") or {}).get("sentence", ""))


def selection_document(selection: CaseSelection | None) -> dict[str, Any] | None:
    """Return the conditions by which cases were selected; null for all cases."""
    return None if selection is None else {**asdict(selection), "failed_of": selection.failed_of or None}


def selection_text(selection: CaseSelection | None) -> str:
    """Return the conditions of a selection in words; empty without any."""
    if selection is None:
        return ""
    parts = [_named_cases(selection.cases)] if selection.cases else []
    labels = (("tag", selection.tags), ("category", selection.categories))
    parts += [f"{noun} {' or '.join(_first(values))}" for noun, values in labels if values]
    if selection.failed_of:
        parts.append(f"failed in {shorten(selection.failed_of, _VALUE_CHARS)}")
    limit, matched = selection.limit, selection.matched_count
    if limit is not None and (matched is None or limit < matched):
        parts.append(f"only the first {limit:,}")
    return ", ".join(parts)


def _named_cases(case_ids: Sequence[str]) -> str:
    *most, last = _first(case_ids)
    return f"cases {', '.join(most)} and {last}" if most else f"case {last}"


def _first(values: Sequence[str]) -> list[str]:
    """Return the first few values and the number of further ones."""
    named = [shorten(value, _VALUE_CHARS) for value in values[:_MOST_VALUES]]
    return [*named, f"{len(values) - _MOST_VALUES} more"] if len(values) > _MOST_VALUES else named
