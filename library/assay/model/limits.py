"""Limits of cases and runs."""

from __future__ import annotations

MAX_CASE_BYTES = 1024 * 1024
"""Maximum size of a case as JSON without its recorded answers: with an answer, its row must fit in a message."""

MAX_CASE_ID_CHARS = 200
"""Maximum length of a case's id."""

MAX_JUDGE_CHARS = 300
"""Maximum length of the judge's name in a recorded verdict, and of its rubric's name."""

MAX_REPEATS = 100
"""Maximum number of repeats of each case in a run."""

MAX_BYTES_PER_CHAR = 6
"""Maximum bytes of a character as JSON: \\u0001."""

MAX_TEAM_CHARS = 64
"""Maximum length of a team's name."""

MAX_GROUP_CHARS = 64
"""Maximum length of the id of a group of runs."""

LARGEST_INTEGER = 2**53 - 1
"""Largest integer that is stored, sent or written to JSON: JavaScript represents no larger one exactly."""

MAX_COMPARED_RUNS = 26
"""Maximum number of runs in a comparison: each has a letter."""

MAX_COMPARED_ROWS = 1_000_000
"""Maximum number of rows of all runs that the orchestrator compares."""

MAX_COMPARED_FIGURES = 13_000
"""Maximum number of pairs of runs times metrics that it compares: at about 300 bytes each they fit in a message."""

MIN_RUN_WEIGHT = 0.01
MAX_RUN_WEIGHT = 100
