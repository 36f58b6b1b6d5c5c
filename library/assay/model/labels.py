"""Labels and notes, by which users find their runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.parsing.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LABELS = 32
"""Maximum number of labels per run."""

VARIANT_LABEL = "variant"
"""The label for the name of a run's variant."""

MAX_NOTE_CHARS = 2000
"""Maximum length of a run's note."""

_MAX_VALUE_CHARS = 200
_KEY = re.compile(r"[A-Za-z0-9][\w./-]{0,63}", re.ASCII)


def label_problems(labels: Mapping[str, str], note: str) -> list[Problem]:
    """Return the problems of a run's labels and note."""
    problems = []
    if len(labels) > MAX_LABELS:
        problems.append(Problem(f"has {len(labels)} labels: a run may have {MAX_LABELS}", "labels"))
    for key, value in list(labels.items())[: MAX_LABELS + 1]:
        if not _KEY.fullmatch(key):
            problems.append(
                Problem(
                    "a label's key has 1 to 64 letters, digits, _, -, . and /, and begins with a letter or digit: "
                    f"{key[:80]!a}",
                    "labels",
                )
            )
        elif problem := name_problem(value, _MAX_VALUE_CHARS, required=False):
            problems.append(Problem(problem, f"labels.{key}"))
    if problem := name_problem(note.replace("\n", " ").replace("\t", " "), MAX_NOTE_CHARS, required=False):
        problems.append(Problem(problem, "note"))
    return problems
