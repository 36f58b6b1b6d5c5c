"""Which mutants are tried: of each area about as many, chosen by a seed."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

from tools.mutants.areas import files_of_areas
from tools.mutants.operators import mutants_of

if TYPE_CHECKING:
    from pathlib import Path

    from tools.mutants.operators import Mutant


@cache
def all_mutants(root: Path) -> dict[str, list[Mutant]]:
    """Return the mutants of each area: over 15,000, found once in a process."""
    return {
        area: [each for path in paths for each in mutants_of(str(path.relative_to(root)), path.read_bytes())]
        for area, paths in files_of_areas(root).items()
    }


def chosen_mutants(mutants: dict[str, list[Mutant]], count: int, seed: int) -> dict[str, list[Mutant]]:
    """Return a sample of each area; small areas leave their places to the others.

    A mutant's place in the order depends on its name and the seed alone, so that a change of one function leaves the
    choice among the others as it was.
    """
    chosen: dict[str, list[Mutant]] = {}
    left = count
    areas = sorted(mutants, key=lambda area: len(mutants[area]))
    for place, area in enumerate(areas):
        share = -(-left // (len(areas) - place))
        chosen[area] = sorted(mutants[area], key=lambda each: _rank(each, seed))[:share]
        left -= len(chosen[area])
    return {area: chosen[area] for area in mutants}


def _rank(mutant: Mutant, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{mutant.name}".encode()).hexdigest()
