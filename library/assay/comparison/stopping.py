"""Early stopping of a comparison of two runs, as a pure function of the rows that both stored.

Cases are asked in a shuffled order that the comparison records. A look sees the cases finished in both runs up to the
first unfinished case of that order, so neither the speed of an agent nor a killed process changes a decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from assay.comparison.model import ComparisonVerdict
from assay.model.stopping import StoppingRule
from assay.statistics.paired import difference
from assay.statistics.sequential import (
    LEAST_LOOKED_AT,
    LOOK_BOUNDS,
    Evidence,
    first_crossing,
    look_at,
    look_sizes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIVE_LOOKS_ALPHA = 0.05
"""The level of the bounds of planned looks."""


@dataclass(frozen=True, slots=True)
class StoppingPlan:
    """The plan, fixed before the first case is asked.

    Args:
        rule: The rule of early stopping.
        cases: Cases of each run.
        repeats: Runs of each case; its value is their mean.
        scale: Bounds of the primary metric; None if it has none, which the always-valid rule refuses.
        higher_is_better: Whether higher values of the primary metric are better.
        alpha: Level over all looks.
    """

    rule: StoppingRule
    cases: int
    repeats: int = 1
    scale: tuple[float, float] | None = None
    higher_is_better: bool = True
    alpha: float = 0.05

    def problems(self) -> list[str]:
        """Return sentences on why the rule cannot keep its level; empty if it can."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.rule is StoppingRule.ALWAYS_VALID:
            if self.scale is None:
                yield (
                    f"{self.rule} needs a metric with bounds, which the primary one has not: stop by "
                    f"{StoppingRule.FIVE_LOOKS}, or choose another with --primary"
                )
            return
        if self.cases < LEAST_LOOKED_AT:
            yield f"{self.rule} needs at least {LEAST_LOOKED_AT} cases, not {self.cases}: run all of them"
        if self.alpha != FIVE_LOOKS_ALPHA:
            yield (
                f"{self.rule} is made for --alpha {FIVE_LOOKS_ALPHA:g}, not {self.alpha:g}: leave it out, or stop by "
                f"{StoppingRule.ALWAYS_VALID}"
            )


@dataclass(frozen=True, slots=True)
class Stop:
    """The decision of a comparison that stops early.

    Args:
        rule: The rule that decided.
        cases: The number of cases in the order after which it decided; all are finished in both runs.
        n_pairs: The number of these cases with a value in both runs.
        verdict: The better run.
        look: The number of the planned look, from 1; None for the always-valid rule.
        z: Its statistic; None likewise.
        bound: The bound that |z| reached; None likewise.
        p: The always-valid p-value; None for planned looks.
        standard_error: The standard error of the mean difference at the look; None for the always-valid rule.
        looks: The pairs with a value in both runs at each planned look so far; empty likewise.
    """

    rule: StoppingRule
    cases: int
    n_pairs: int
    verdict: ComparisonVerdict
    look: int | None = None
    z: float | None = None
    bound: float | None = None
    p: float | None = None
    standard_error: float | None = None
    looks: tuple[int, ...] = ()


class Stopping:
    """Decides a comparison from its cases, which come in their order.

    Args:
        plan: The plan.

    Raises:
        ValueError: The plan has problems.
    """

    def __init__(self, plan: StoppingPlan) -> None:
        if problems := plan.problems():
            raise ValueError("; ".join(problems))
        self._plan = plan
        self._differences: list[float] = []
        self._is_binary = plan.repeats == 1
        self._finished = 0
        self._looks: list[int] = []
        self._sizes = look_sizes(plan.cases) if plan.rule is StoppingRule.FIVE_LOOKS else ()
        self._evidence = Evidence(plan.cases)
        self.stop: Stop | None = None

    def take(self, cases: Sequence[tuple[float | None, float | None]]) -> Stop | None:
        """Add the next finished cases of the order; return the decision, which later cases do not change.

        Args:
            cases: The values of A and B of each case, None for a missing value.

        Raises:
            ValueError: There are more cases than planned, or a value is out of the metric's bounds.
        """
        if self._finished + len(cases) > self._plan.cases:
            raise ValueError(f"more cases come than the {self._plan.cases:,} that were planned")
        if self.stop is None:
            look = self._look_at_any if self._plan.rule is StoppingRule.ALWAYS_VALID else self._look_as_planned
            self.stop = look(cases)
        self._finished += len(cases)
        return self.stop

    def _look_at_any(self, cases: Sequence[tuple[float | None, float | None]]) -> Stop | None:
        low, high = self._plan.scale or (0.0, 1.0)
        places = [place for place, (a, b) in enumerate(cases) if a is not None and b is not None]
        differences = [_difference(cases[place]) for place in places]
        path = self._evidence.take([difference / (high - low) for difference in differences])
        reached = first_crossing(path, alpha=self._plan.alpha)
        self._differences += differences[:reached]
        if reached is None:
            return None
        return Stop(
            self._plan.rule,
            self._finished + places[reached - 1] + 1,
            len(self._differences),
            self._verdict(),
            p=math.exp(-float(path[reached - 1])),
        )

    def _look_as_planned(self, cases: Sequence[tuple[float | None, float | None]]) -> Stop | None:
        for place, case in enumerate(cases, start=self._finished + 1):
            if None not in case:
                self._is_binary = self._is_binary and all(value in (0.0, 1.0) for value in case)
                self._differences.append(_difference(case))
            if place not in self._sizes:
                continue
            number = self._sizes.index(place)
            self._looks.append(len(self._differences))
            seen = look_at(self._differences, is_binary=self._is_binary)
            if abs(seen.z) >= LOOK_BOUNDS[number]:
                return Stop(
                    self._plan.rule,
                    place,
                    len(self._differences),
                    self._verdict(),
                    look=number + 1,
                    z=seen.z,
                    bound=LOOK_BOUNDS[number],
                    standard_error=seen.standard_error,
                    looks=tuple(self._looks),
                )
        return None

    def _verdict(self) -> ComparisonVerdict:
        is_b = (math.fsum(self._differences) > 0) is self._plan.higher_is_better
        return ComparisonVerdict.B_BETTER if is_b else ComparisonVerdict.A_BETTER


def _difference(case: tuple[float | None, float | None]) -> float:
    a, b = case
    assert a is not None
    assert b is not None
    return difference(a, b)


def first_stop(plan: StoppingPlan, cases: Sequence[tuple[float | None, float | None] | None]) -> Stop | None:
    """Return the decision by the stored rows of two runs; None if there is none yet.

    Args:
        plan: The plan.
        cases: In the recorded order, the values of A and B of each case, None for a missing value; None in place of the
            pair for a case that is not finished in both runs. Cases after the first unfinished one do not count.

    Raises:
        ValueError: The plan has problems, or cases or values are outside the plan.
    """
    finished = []
    for case in cases:
        if case is None:
            break
        finished.append(case)
    return Stopping(plan).take(finished)


def shuffled(case_ids: Sequence[str], seed: int) -> list[int]:
    """Return the places of cases in the order of asking, which is that of a digest of seed and case id.

    The order depends on the ids, not on their order in the dataset or on a version of a random generator.
    """
    key = f"assay order {seed}".encode()
    digests = [blake2b(case_id.encode("utf-8", "surrogatepass"), key=key).digest() for case_id in case_ids]
    return sorted(range(len(case_ids)), key=lambda place: (digests[place], place))
