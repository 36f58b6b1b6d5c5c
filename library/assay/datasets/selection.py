"""Selecting the cases of a run: those that meet the conditions, counted while they are read."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from assay.model.case import Case
    from assay.model.run_spec import CaseSelection

_MOST_CANDIDATES = 10_000  # names that are searched for the nearest match to a wrong name
_MOST_LISTED = 20


class Selector:
    """Selects cases in a single pass over a dataset.

    Args:
        selection: The conditions and the limit.
        failed_cases: The ids of the cases that failed in the run that `selection.failed_of` names.
    """

    def __init__(self, selection: CaseSelection, failed_cases: Collection[str] = ()) -> None:
        self._selection = selection
        self._failed = frozenset(failed_cases)
        self._patterns = {text: re.compile(fnmatch.translate(text)) for text in dict.fromkeys(selection.cases)}
        self._tags, self._categories = frozenset(selection.tags), frozenset(selection.categories)
        self._unmet_patterns = set(self._patterns)
        self._found_failed: set[str] = set()
        # The dataset's values, as dict keys in order, for suggesting near misses.
        self._case_ids: dict[str, None] = {}
        self._seen_tags: dict[str, None] = {}
        self._seen_categories: dict[str, None] = {}
        self.total_count = 0
        self.matched_count = 0

    def takes(self, case: Case) -> bool:
        """Count the next case of the dataset; return whether it is selected."""
        self.total_count += 1
        self._note(case)
        conditions = self._selection
        matches = (
            (not self._patterns or self._fits(case.case_id))
            and (not self._tags or not self._tags.isdisjoint(case.tags))
            and (not self._categories or case.category in self._categories)
            and (not conditions.failed_of or case.case_id in self._failed)
        )
        self.matched_count += matches
        return matches and (conditions.limit is None or self.matched_count <= conditions.limit)

    def counted(self) -> CaseSelection:
        """Return the selection with its counts."""
        return replace(self._selection, matched_count=self.matched_count, total_count=self.total_count)

    def problems(self) -> list[str]:
        """Return why the conditions do not fit: values that no case has, or no case that meets all of them."""
        messages = [_unmet("id", text, self._case_ids) for text in self._patterns if text in self._unmet_patterns]
        messages += [
            _unmet("tag", tag, self._seen_tags)
            for tag in dict.fromkeys(self._selection.tags)
            if tag not in self._seen_tags
        ]
        messages += [
            _unmet("category", category, self._seen_categories)
            for category in dict.fromkeys(self._selection.categories)
            if category not in self._seen_categories
        ]
        run_id = self._selection.failed_of
        if run_id and not self._found_failed:
            messages.append(f"has none of the {_cases(len(self._failed))} that failed in run {run_id}")
        if not messages and not self.matched_count:
            messages.append(
                f"has no case that meets all conditions at once, of {_cases(self.total_count)}: leave a condition out"
            )
        return messages

    def warning(self) -> str:
        """Return the warning about the selection, or the empty text."""
        missing = len(self._failed - self._found_failed)
        if not missing:
            return ""
        failed = f"{_cases(len(self._failed))} that failed in run {self._selection.failed_of}"
        return f"{missing} of the {failed} {'is' if missing == 1 else 'are'} not in this dataset"

    def _note(self, case: Case) -> None:
        if case.case_id in self._failed:
            self._found_failed.add(case.case_id)
        for seen, names in (
            (self._case_ids, (case.case_id,)),
            (self._seen_tags, case.tags),
            (self._seen_categories, (case.category,)),
        ):
            seen.update(dict.fromkeys(names if len(seen) < _MOST_CANDIDATES else self._wanted(names)))

    def _wanted(self, names: Iterable[str]) -> Iterable[str]:
        return (name for name in names if name in self._tags or name in self._categories)

    def _fits(self, case_id: str) -> bool:
        fitting = [text for text, pattern in self._patterns.items() if text == case_id or pattern.match(case_id)]
        self._unmet_patterns.difference_update(fitting)
        return bool(fitting)


def _unmet(kind: str, missing: str, seen: Collection[str]) -> str:
    """Return the message for a value that no case has, with the nearest existing value or some of them."""
    known = [name for name in seen if name]
    message = f"has no case with the {kind} {missing[:60]!r}"
    if not known:
        return f"{message}: its cases have no {'categories' if kind == 'category' else 'tags'}"
    if (close := nearest(missing, known)) is not None:
        return f"{message}; did you mean {close!r}?"
    more = f", ... and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
    return f"{message}; it has: {', '.join(known[:_MOST_LISTED])}{more}"


def _cases(count: int) -> str:
    return f"{count:,} case" if count == 1 else f"{count:,} cases"
