"""How large a case and its parts may be, and how often a run may repeat it."""

MAX_CASE_BYTES = 1024 * 1024
"""Largest case as JSON, its recorded answers aside: with an answer, its row must fit in one message."""

MAX_CASE_ID_CHARS = 200
"""Longest id of a case."""

MAX_JUDGE_CHARS = 300
"""Longest text that says who gave a recorded verdict, and longest name of its rubric."""

MAX_REPEATS = 100
"""How often a run may run each case."""

MAX_BYTES_PER_CHAR = 6
"""Most bytes that a character takes as JSON: \\u0001."""
