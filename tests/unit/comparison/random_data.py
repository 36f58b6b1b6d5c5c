"""Random data sets on which the tests between variants are compared with those of other libraries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA_SETS = int(os.environ.get("ASSAY_TEST_DATA_SETS", "150"))
"""For each comparison of a function; 1,000 take a minute."""
CLOSE = 1e-9


def generators() -> Iterator[np.random.Generator]:
    """Return a generator of random numbers for each data set."""
    return (np.random.default_rng([20, seed]) for seed in range(DATA_SETS))
