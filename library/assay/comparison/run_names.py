"""The names of runs in the sentences of a comparison."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import Variant

BASELINE, THIS_RUN = "the baseline", "this run"


def run_names(variants: Sequence[Variant], *, of_run: bool = False) -> dict[str, str]:
    """Return the name of each run by its label, no two of them alike.

    Args:
        variants: The runs.
        of_run: Whether they are the baseline of a run and that run, which are then named so.
    """
    if of_run:
        return {variant.label: name for variant, name in zip(variants, (BASELINE, THIS_RUN), strict=True)}
    counts = Counter(variant.name for variant in variants)
    names = {variant.label: variant.name if counts[variant.name] == 1 else variant.run_id for variant in variants}
    return names if len(set(names.values())) == len(names) else {variant.label: variant.run_id for variant in variants}
