"""The classical weighted ranking of variants, and the share of resamples in which each is best."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

WEIGHTS = {"accuracy": 0.4, "consistency": 0.3, "quality": 0.3}
"""The weights of metrics; quality counts as a share of 5."""

_MOST_QUALITY = 5.0
_RESAMPLES = 10_000
_BLOCK = 200  # resamples at a time
_NORMAL_FROM = 1_000  # cases from which means are drawn from their normal limit


def ranking_score(metrics: Mapping[str, float | None]) -> float | None:
    """Return the weighted mean of the available ones of accuracy, consistency and quality; None without any."""
    parts = {name: value for name in WEIGHTS if (value := metrics.get(name)) is not None}
    if not parts:
        return None
    shares = {name: value / _MOST_QUALITY if name == "quality" else value for name, value in parts.items()}
    return sum(WEIGHTS[name] * share for name, share in shares.items()) / sum(WEIGHTS[name] for name in shares)


def ranked(scores: Mapping[str, float | None]) -> list[tuple[str, float | None]]:
    """Return variants and their scores, the best first; equal variants by name, variants without a score last."""
    return sorted(scores.items(), key=lambda item: (item[1] is None, -(item[1] or 0.0), item[0]))


def best_shares(rows: Sequence[Sequence[float]] | NDArray[np.float64], *, seed: int = 0) -> list[float]:
    """Return for each variant the share of 10,000 resamples of the cases in which its mean is the highest.

    From 1,000 cases on, the means are drawn from their normal limit, so that the work does not grow with the cases.

    Args:
        rows: A row per case, with the score of each variant; at least one. Variants with equal means share a resample.
        seed: The seed of the resampling.
    """
    import numpy as np

    values = np.asarray(rows, dtype=float)
    values = values[np.lexsort(values.T)]  # so that the order of the cases does not count
    rng, n, votes = np.random.default_rng(seed), len(values), np.zeros(values.shape[1])
    is_normal = n >= _NORMAL_FROM
    if is_normal:
        # Equal variants get the same draws: draws of their singular covariance differ by rounding.
        differing, columns = np.unique(values, axis=1, return_inverse=True)
        spread = np.atleast_2d(np.cov(differing, rowvar=False, ddof=0)) / n
        drawn = rng.multivariate_normal(differing.mean(axis=0), spread, size=_RESAMPLES, method="eigh")
        drawn = drawn[:, columns.ravel()]
    for begin in range(0, _RESAMPLES, _BLOCK):
        count = min(_BLOCK, _RESAMPLES - begin)
        if is_normal:
            means = drawn[begin : begin + count]
        else:
            places = rng.integers(0, n, size=(count, n)) + np.arange(count)[:, None] * n
            means = np.bincount(places.ravel(), minlength=count * n).reshape(count, n) @ values / n
        best = means >= means.max(axis=1, keepdims=True) - 1e-12
        votes += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return [float(share) for share in votes / _RESAMPLES]
