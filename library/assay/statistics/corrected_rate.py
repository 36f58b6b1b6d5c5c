"""The pass rate that people would have given, from a judge's pass rate and labels of people.

Labels drawn at random or by the human verdict: Rogan and Gladen's estimate

    θ = (p + q0 - 1) / (q0 + q1 - 1)

q1 is the share of what people passed that the judge passes, q0 the share of what people failed that it fails. The
interval is that of Lang and Reiczigel: z² / 2 passes and as many fails are added to p, one right and one wrong verdict
to q0 and to q1, and with θ', p', q0', q1' from these

    θ' + 2 z² (θ' v1 - (1 - θ') v0)  ±  z sqrt(p' (1 - p') / n' + θ'² v1 + (1 - θ')² v0) / (q0' + q1' - 1)

where v = q' (1 - q') / m'. It covers 93 % or more from five labels of each kind on; with fewer there is no value. Where
fewer than 20 of one kind meet more than four times as many of the other, it covers that much only if the labels have
the true rate of the rows, as labels drawn at random from them do; otherwise as little as 88 %.

Labels drawn by the judge's verdict: q0 and q1 among them differ from those of all rows. Their shares of the drawing
give the number of rows that each label represents, and the judge's mistakes are summed over the strata h of equal
shares:

    θ = p + Σ W_h mean_h(y - f),    se² = p (1 - p) / N + Σ W_h² s_h² / n_h

f is the judge's verdict and y that of people, 1 or 0, and W_h a stratum's share of all rows. In the interval, too, one
right and one wrong verdict are added to each kind of verdict of a stratum: where none of its labels is wrong, s_h would
be 0. It covers 93 % or more while strata of fewer than ten labels stand for at most 5 % of the rows, and as little as
88 % where they stand for more: there is no value then.

Sources: W. J. Rogan and B. Gladen, "Estimating prevalence from the results of a screening test", 1978; Z. Lang and
J. Reiczigel, "Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity",
Preventive Veterinary Medicine 113, 2014; A. N. Angelopoulos et al., "Prediction-powered inference", 2023.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.figure import NOTHING, Figure
from assay.statistics.intervals import Z_95

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_BETTER_THAN_CHANCE = "no_better_than_chance"
TOO_FEW_OF_A_KIND = "too_few_of_a_kind"
LEAST_OF_A_KIND = 5
"""The labels of each kind, passed and failed by people, from which on the interval keeps its level."""
TOO_UNEVEN, TOO_FEW_OF_A_WEIGHT = "too_uneven", "too_few_of_a_weight"
MOST_TO_ONE, ENOUGH_OF_A_KIND = 4, 20
"""The most labels of one kind per label of the other, if there are fewer than 20 of the other."""
LEAST_OF_A_WEIGHT, MOST_OF_SMALL_STRATA = 10, 0.05
"""The least labels of a stratum, and the share of the rows that smaller strata may represent."""

RANDOM, HUMAN_VERDICT, JUDGE_VERDICT = "random", "human_verdict", "judge_verdict"
WEIGHTED, UNKNOWN = "weighted", "unknown"
"""How labelled items were drawn: at random; so many of those that people pass and so many of those that they fail; the
same by the judge's verdict; with different chances that are known; not known."""

LABELS_WITHOUT_WEIGHTS, DRAWING_UNKNOWN = "labels_without_weights", "drawing_unknown"
"""Why there is no corrected rate: the judge chose what people labelled, or may have done."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The drawing of the labelled items.

    Args:
        how: One of the words above.
        weights: The number of rows that each item represents, on any scale; None unless `how` is "weighted".
    """

    how: str = RANDOM
    weights: tuple[float, ...] | None = None


AT_RANDOM = Drawing()

_LEAST_OF_A_STRATUM = 2


def is_uneven(n_failed: int, n_passed: int) -> bool:
    """Whether few labels are of one kind and so many of the other that their true rate must be that of the rows."""
    few, many = sorted((n_failed, n_passed))
    return few < ENOUGH_OF_A_KIND and many > MOST_TO_ONE * few


def corrected_pass_rate(
    observed: float,
    n: int,
    *,
    specificity: float,
    n_failed: int,
    sensitivity: float,
    n_passed: int,
    drawn: str = RANDOM,
) -> Figure:
    """Return the corrected pass rate with its 95 % interval, from labels drawn at random or by the human verdict.

    Args:
        observed: The judge's pass rate, from 0 to 1.
        n: The rows behind it.
        specificity: q0, from 0 to 1.
        n_failed: The items behind q0, which people failed.
        sensitivity: q1, from 0 to 1.
        n_passed: The items behind q1, which people passed.
        drawn: How the items were drawn.

    Returns:
        No value if q0 + q1 is at most 1, since such a judge's verdict carries no information; with fewer than five
        items that people passed, or failed; with uneven items drawn by the human verdict; and if the judge chose the
        labelled items, or may have.
    """
    if reason := {JUDGE_VERDICT: LABELS_WITHOUT_WEIGHTS, UNKNOWN: DRAWING_UNKNOWN}.get(drawn):
        return Figure(None, n, reason=reason)
    if not (n and n_failed and n_passed):
        return Figure(None, n, reason=NOTHING)
    lift = specificity + sensitivity - 1
    if lift <= 1e-12:
        return Figure(None, n, reason=NO_BETTER_THAN_CHANCE)
    if min(n_failed, n_passed) < LEAST_OF_A_KIND:
        return Figure(None, n, reason=TOO_FEW_OF_A_KIND)
    if drawn == HUMAN_VERDICT and is_uneven(n_failed, n_passed):
        return Figure(None, n, reason=TOO_UNEVEN)
    theta = _clipped((observed + specificity - 1) / lift)
    p, spread = _adjusted_rate(observed, n)
    q0, v0 = _one_more_of_each(specificity, n_failed)
    q1, v1 = _one_more_of_each(sensitivity, n_passed)
    if q0 + q1 - 1 <= 1e-12:  # with so few labels the judge may as well be guessing
        return Figure(theta, n, (0.0, 1.0))
    centre = (p + q0 - 1) / (q0 + q1 - 1)
    error = math.sqrt(spread + centre**2 * v1 + (1 - centre) ** 2 * v0) / (q0 + q1 - 1)
    centre += 2 * Z_95**2 * (centre * v1 - (1 - centre) * v0)
    return Figure(theta, n, _around(theta, centre, error))


@dataclass(frozen=True, slots=True)
class DrawnLabel:
    """A labelled answer.

    Args:
        judge_passes: Whether the judge passes it.
        people_pass: Whether people pass it.
        weight: The number of rows that it represents: 1 / its chance of being drawn, on any scale.
    """

    judge_passes: bool
    people_pass: bool
    weight: float


def weighted_pass_rate(observed: float, n: int, labels: Sequence[DrawnLabel]) -> Figure:
    """Return the corrected pass rate with its 95 % interval, from labels that represent different numbers of rows.

    Args:
        observed: The judge's pass rate, from 0 to 1.
        n: The rows behind it.
        labels: Labels of equal weight form a stratum; a stratum of one label joins the stratum of the next weight.

    Returns:
        No value with fewer than two labels, or if small strata represent too many of the rows.
    """
    strata = _strata(labels)
    if not n or sum(map(len, strata)) < _LEAST_OF_A_STRATUM:
        return Figure(None, n, reason=NOTHING)
    total = math.fsum(label.weight for label in labels)
    shares = [math.fsum(label.weight for label in stratum) / total for stratum in strata]
    small = [share for share, stratum in zip(shares, strata, strict=True) if len(stratum) < LEAST_OF_A_WEIGHT]
    if math.fsum(small) > MOST_OF_SMALL_STRATA:
        return Figure(None, n, reason=TOO_FEW_OF_A_WEIGHT)
    theta, (centre, variance) = observed, _adjusted_rate(observed, n)
    for share, stratum in zip(shares, strata, strict=True):
        mistakes = [label.people_pass - label.judge_passes for label in stratum]
        theta += share * sum(mistakes) / len(mistakes)
        for judge_passes in {label.judge_passes for label in stratum}:
            mistakes += [0, -1 if judge_passes else 1]
        count = len(mistakes)
        mean = sum(mistakes) / count
        centre += share * mean
        variance += share**2 * (sum(map(abs, mistakes)) / count - mean**2) / count
    theta = _clipped(theta)
    return Figure(theta, n, _around(theta, centre, math.sqrt(variance)))


def _strata(labels: Iterable[DrawnLabel]) -> list[list[DrawnLabel]]:
    """Return the strata of labels, the lightest first; none with a single label if there are others."""
    by_weight: dict[float, list[DrawnLabel]] = defaultdict(list)
    for label in labels:
        by_weight[label.weight].append(label)
    strata: list[list[DrawnLabel]] = []
    for _, stratum in sorted(by_weight.items()):
        if strata and min(len(strata[-1]), len(stratum)) < _LEAST_OF_A_STRATUM:
            strata[-1] += stratum
        else:
            strata.append(stratum)
    return strata


def _adjusted_rate(rate: float, n: int) -> tuple[float, float]:
    """Return a rate with z² / 2 passes and z² / 2 fails added, and its variance."""
    more = n + Z_95**2
    adjusted = (rate * n + Z_95**2 / 2) / more
    return adjusted, adjusted * (1 - adjusted) / more


def _one_more_of_each(rate: float, n: int) -> tuple[float, float]:
    """Return a rate with one right and one wrong verdict added, and its variance."""
    adjusted = (rate * n + 1) / (n + 2)
    return adjusted, adjusted * (1 - adjusted) / (n + 2)


def _around(theta: float, centre: float, error: float) -> tuple[float, float]:
    """Return the interval, extended to include the estimate itself."""
    half = Z_95 * error
    return min(theta, _clipped(centre - half)), max(theta, _clipped(centre + half))


def _clipped(value: float) -> float:
    return max(0.0, min(1.0, value))
