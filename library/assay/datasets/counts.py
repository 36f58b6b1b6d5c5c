"""Counts of what the cases of a dataset contain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.model.case import Case

MAX_NAMES = 1000
"""Maximum number of categories, and of tags, that are counted individually."""


@dataclass(slots=True)
class CaseCounts:
    """Numbers of cases by content.

    Args:
        turns: Turns over all cases.
        multi_turn: Cases with several turns.
        references: Cases with a non-blank reference in any turn.
        recorded: Cases with a recorded answer.
        expected_sources: Cases with expected sources, in any turn.
        expected_tools: Cases with expected tool calls, in any turn.
        assertions: Cases with checks of their own.
        human_labels: Cases with human labels.
        variables: Cases with template variables.
        choices: Cases with choices.
        categories: Cases by category; the empty name counts cases without one.
        tags: Cases by tag.
        uncounted_categories: Cases with a category beyond the first MAX_NAMES.
        uncounted_tags: Occurrences of tags beyond the first MAX_NAMES.
    """

    cases: int = 0
    turns: int = 0
    multi_turn: int = 0
    references: int = 0
    recorded: int = 0
    expected_sources: int = 0
    expected_tools: int = 0
    assertions: int = 0
    human_labels: int = 0
    variables: int = 0
    choices: int = 0
    categories: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    uncounted_categories: int = 0
    uncounted_tags: int = 0

    def add(self, case: Case) -> None:
        """Count a case."""
        self.cases += 1
        self.turns += len(case.turns)
        self.multi_turn += len(case.turns) > 1
        self.references += any(not is_blank(text) for turn in case.turns for text in turn.references)
        self.recorded += case.recorded is not None
        self.expected_sources += any(turn.expected_sources for turn in case.turns)
        self.expected_tools += any(turn.expected_tools for turn in case.turns)
        self.assertions += bool(case.assertions)
        self.human_labels += bool(case.human_labels)
        self.variables += bool(case.variables)
        self.choices += bool(case.choices)
        self.uncounted_categories += not _noted(self.categories, case.category)
        for tag in dict.fromkeys(case.tags):
            self.uncounted_tags += not _noted(self.tags, tag)


def _noted(counted: dict[str, int], name: str) -> bool:
    """Count a name unless there are too many; return whether it was counted."""
    if name not in counted and len(counted) >= MAX_NAMES:
        return False
    counted[name] = counted.get(name, 0) + 1
    return True


def count_cases(cases: Iterable[Case]) -> tuple[CaseCounts, Case | None]:
    """Return the counts of the cases, and the first case; memory use does not grow with their number."""
    counts, first = CaseCounts(), None
    for case in cases:
        first = first or case
        counts.add(case)
    return counts, first
