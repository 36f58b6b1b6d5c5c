"""The Levenshtein distance of two texts."""

from __future__ import annotations

_MOST_WORK = 100_000_000  # pairs of characters; a fifth of a second


def edit_distance(first: str, second: str) -> int | None:
    """Return the number of insertions, deletions and replacements that turn one text into the other.

    Returns None if the texts are too long to compare. Each character of the shorter text takes one bit, and each
    character of the longer text a few operations on all bits at once.
    Source: H. Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", 2003.
    """
    shorter, longer = sorted((first, second), key=len)
    if not shorter:
        return len(longer)
    if len(shorter) * len(longer) > _MOST_WORK:
        return None
    places: dict[str, int] = {}
    for position, char in enumerate(shorter):
        places[char] = places.get(char, 0) | 1 << position
    every = (1 << len(shorter)) - 1
    last = 1 << (len(shorter) - 1)
    # Bit i says whether the distance grows, or shrinks, from row i to row i + 1 in the current column of the table.
    grows, shrinks, distance = every, 0, len(shorter)
    for char in longer:
        equal = places.get(char, 0)
        diagonal = (((equal & grows) + grows) ^ grows) | equal | shrinks
        right_grows = shrinks | (every & ~(diagonal | grows))
        right_shrinks = grows & diagonal
        distance += bool(right_grows & last) - bool(right_shrinks & last)
        right_grows = (right_grows << 1 | 1) & every
        right_shrinks = right_shrinks << 1 & every
        grows = right_shrinks | (every & ~(diagonal | right_grows))
        shrinks = right_grows & diagonal
    return distance


def edit_work(first: str, second: str) -> int:
    """Return an upper bound of the work of comparing two texts; see `row_work`."""
    return min(len(first) * len(second), _MOST_WORK) // 5 + 20 * (len(first) + len(second))
