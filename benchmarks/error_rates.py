"""False alarms and power of verdicts, over simulated comparisons of which the truth is known.

Each setting is simulated many times with its own seed, decided by the functions that comparisons use, and counted.
Where the variants do not differ, a verdict is a false alarm; more than 5 % and three standard errors of the simulation
end the script with 1. `--json FILE` saves the figures. docs/statistics.md explains them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.comparison.stopping import StoppingPlan, StoppingRule, first_stop
from assay.statistics.paired import mcnemar
from assay.statistics.sign_flips import SignFlip, sign_flip, sign_flips

ALPHA = 0.05
_BATCH = 100  # sign-flip tests whose signs are drawn at once
_SCALE = (1.0, 5.0)
_CLUSTER_CASES = 5

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator], tuple[Values, Values]]


@dataclass(frozen=True)
class Outcome:
    """How often a setting gave a verdict.

    Args:
        setting: What was drawn.
        decided_by: Which test gave the verdict.
        cases: Of each comparison.
        difference: True difference of the means, B - A.
        simulations: Comparisons drawn.
        verdicts: Share of them with a verdict: false alarms where the difference is 0, else the power.
        allowed: The most false alarms that the simulation's own error explains; None where there is a difference, and
            where the test is shown to be the wrong one.
        unpaired_z: Share in which the unpaired z-test is below 5 %, on the same data; None beside rules that stop.
        saved: Share of the cases that were not needed; None where all are asked.
    """

    setting: str
    decided_by: str
    cases: int
    difference: float
    simulations: int
    verdicts: float
    allowed: float | None
    unpaired_z: float | None = None
    saved: float | None = None


def main() -> None:
    """Simulate every setting and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for number, simulate in enumerate(settings()):
        rng = np.random.default_rng([given.seed, number])
        for outcome in simulate(rng, given.simulations):
            found.append(outcome)
            print(line(outcome), flush=True)
    if given.json:
        figures = {"seed": given.seed, "outcomes": [asdict(one) for one in found]}
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    too_many = [one for one in found if one.allowed is not None and one.verdicts > one.allowed]
    for one in too_many:
        print(f"too many false alarms: {line(one)}", file=sys.stderr)
    sys.exit(bool(too_many))


def line(one: Outcome) -> str:
    """Return an outcome as a line of the table."""
    beside = "" if one.unpaired_z is None else f"  unpaired z {one.unpaired_z:6.1%}"
    saved = "" if one.saved is None else f"  saved {one.saved:5.1%}"
    what = "power" if one.difference else "false alarms"
    return f"{one.setting:<44} {one.cases:>5} cases  {one.decided_by:<22} {what:<12} {one.verdicts:6.1%}{beside}{saved}"


Simulate = Callable[[np.random.Generator, int], Iterator[Outcome]]


def settings() -> Iterator[Simulate]:
    """Return every setting."""
    for cases, disagreeing in ((25, 0.25), (100, 0.05), (100, 0.25), (100, 0.5), (500, 0.25)):
        yield fixed(f"rates, {disagreeing:.0%} disagree", cases, 0.0, rates(cases, disagreeing, 0.0))
    for cases, difference in ((100, 0.1), (200, 0.1), (500, 0.1), (50, 0.2)):
        yield fixed("rates, 25% disagree", cases, difference, rates(cases, 0.25, difference))
    for cases, difference in ((12, 0.0), (50, 0.0), (200, 0.0), (50, 0.23), (200, 0.23)):
        yield fixed("scores 1 to 5", cases, difference, scores(cases, difference))
    for cases, difference in ((50, 0.0), (50, 0.1)):
        yield fixed("pass rates of 3 repeats", cases, difference, repeated(cases, 3, difference))
    for clusters in (5, 12, 40):
        yield clustered("rates in clusters of 5 cases", clusters, 0.0, clustered_rates(clusters, 0.0))
        yield clustered("scores in clusters of 5 cases", clusters, 0.0, clustered_scores(clusters, 0.0))
    yield clustered("rates in clusters of 5 cases", 40, 0.15, clustered_rates(40, 0.15))
    for cases, disagreeing, difference in ((20, 0.5, 0.0), (300, 0.2, 0.0), (1000, 0.2, 0.0)):
        yield stopped(f"rates, {disagreeing:.0%} disagree", cases, difference, rates(cases, disagreeing, difference))
    for cases, difference in ((500, 0.1), (200, 0.2)):
        yield stopped("rates, 25% disagree", cases, difference, rates(cases, 0.25, difference))
    for cases, difference in ((20, 0.0), (300, 0.0), (300, 0.23)):
        yield stopped("scores 1 to 5", cases, difference, scores(cases, difference), scale=_SCALE)


def rates(cases: int, disagreeing: float, difference: float) -> Draw:
    """Return 0 and 1 of variants of which A is right in 70 % of the cases."""
    lost, won = (disagreeing - difference) / 2, (disagreeing + difference) / 2
    both = max(0.0, 0.7 - lost)

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        kind = rng.choice(4, cases, p=(both, lost, won, 1 - both - lost - won))
        return (kind < 2).astype(float), (kind % 2 == 0).astype(float)

    return draw


def scores(cases: int, difference: float) -> Draw:
    """Return rounded scores 1 to 5, of variants that correlate by 0.64 before rounding."""

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        case = rng.normal(3.3, 0.8, cases)
        return likert(case + rng.normal(0, 0.6, cases)), likert(case + difference + rng.normal(0, 0.6, cases))

    return draw


def likert(values: Values) -> Values:
    """Return values as whole scores from 1 to 5."""
    return np.clip(np.rint(values), *_SCALE)


def repeated(cases: int, repeats: int, difference: float) -> Draw:
    """Return pass rates of cases that are easy or hard for both variants."""

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        chance = rng.beta(2, 1.5, cases) * (1 - difference)
        return rng.binomial(repeats, chance) / repeats, rng.binomial(repeats, chance + difference) / repeats

    return draw


def clustered_rates(clusters: int, difference: float) -> Draw:
    """Return 0 and 1 of cases of which those of one document mostly change for better or worse together."""

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        shared = np.repeat(rng.random(clusters) < 0.5 + difference, _CLUSTER_CASES)
        own = rng.random(len(shared)) < 0.5 + difference
        is_won = np.where(rng.random(len(shared)) < 0.7, shared, own)
        a = rng.random(len(shared)) < 0.6
        changes = rng.random(len(shared)) < 0.5
        return np.where(changes, ~is_won, a).astype(float), np.where(changes, is_won, a).astype(float)

    return draw


def clustered_scores(clusters: int, difference: float) -> Draw:
    """Return scores of cases of which those of one document have a difference in common."""

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        shared = np.repeat(rng.normal(difference, 0.5, clusters), _CLUSTER_CASES)
        a = rng.normal(3, 0.8, len(shared))
        return a, a + shared + rng.normal(0, 0.6, len(shared))

    return draw


def fixed(setting: str, cases: int, difference: float, draw: Draw) -> Simulate:
    """Return the simulation of a comparison over all cases."""

    def simulate(rng: np.random.Generator, simulations: int) -> Iterator[Outcome]:
        drawn = [draw(rng) for _ in range(simulations)]
        name, verdicts = default_verdicts(drawn)
        yield Outcome(
            setting,
            name,
            cases,
            difference,
            simulations,
            share(verdicts),
            allowed(simulations) if not difference else None,
            unpaired_z=share([unpaired(a, b) for a, b in drawn]),
        )

    return simulate


def clustered(setting: str, clusters: int, difference: float, draw: Draw) -> Simulate:
    """Return the simulation of a comparison of clustered cases, with the cluster key and without it."""

    def simulate(rng: np.random.Generator, simulations: int) -> Iterator[Outcome]:
        drawn = [draw(rng) for _ in range(simulations)]
        cases = clusters * _CLUSTER_CASES
        keys = np.repeat(np.arange(clusters), _CLUSTER_CASES).tolist()
        name, verdicts = default_verdicts(drawn)
        beside = share([unpaired(a, b) for a, b in drawn])
        with_key = [clustered_verdict(a, b, keys) for a, b in drawn]
        limit = allowed(simulations) if not difference else None
        yield Outcome(
            f"{setting}, with key",
            "sign flips of clusters",
            cases,
            difference,
            simulations,
            share(with_key),
            limit,
            beside,
        )
        yield Outcome(f"{setting}, without", name, cases, difference, simulations, share(verdicts), None, beside)

    return simulate


def clustered_verdict(a: Values, b: Values, keys: Sequence[int]) -> bool:
    """Return whether a comparison of clustered cases decides: by sign flips of the clusters' sums."""
    return below(sign_flip(np.bincount(keys, weights=b - a).tolist()).p)


def stopped(
    setting: str, cases: int, difference: float, draw: Draw, *, scale: tuple[float, float] = (0.0, 1.0)
) -> Simulate:
    """Return the simulation of a comparison that may stop early, by both rules, beside the one over all cases."""

    def simulate(rng: np.random.Generator, simulations: int) -> Iterator[Outcome]:
        drawn = [draw(rng) for _ in range(simulations)]
        limit = allowed(simulations) if not difference else None
        for rule in StoppingRule:
            plan = StoppingPlan(rule, cases, scale=scale)
            stops = [first_stop(plan, list(zip(a.tolist(), b.tolist(), strict=True))) for a, b in drawn]
            unused = [0.0 if stop is None else 1 - stop.cases / cases for stop in stops]
            verdicts = share([stop is not None for stop in stops])
            saved = math.fsum(unused) / simulations
            yield Outcome(setting, rule.value, cases, difference, simulations, verdicts, limit, saved=saved)
        name, all_cases = default_verdicts(drawn)
        yield Outcome(setting, name, cases, difference, simulations, share(all_cases), limit)

    return simulate


def default_verdicts(drawn: Sequence[tuple[Values, Values]]) -> tuple[str, list[bool]]:
    """Return the default test of such values, and which comparisons it decides."""
    if all(((values == 0) | (values == 1)).all() for pair in drawn for values in pair):
        counts = [(int((a > b).sum()), int((b > a).sum()), len(a)) for a, b in drawn]
        return "exact McNemar", [mcnemar_decides(*each) for each in counts]
    tests: list[SignFlip] = []
    for begin in range(0, len(drawn), _BATCH):
        tests += sign_flips([(b - a).tolist() for a, b in drawn[begin : begin + _BATCH]], seed=begin)
    return "sign flips", [below(test.p) for test in tests]


@cache
def mcnemar_decides(lost: int, won: int, cases: int) -> bool:
    """Whether exact McNemar gives a verdict."""
    return below(mcnemar(cases - lost - won, lost, won, 0).p)


def unpaired(a: Values, b: Values) -> bool:
    """Whether the z-test, which takes the runs as independent samples, is below the level."""
    error = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))
    return error > 0 and math.erfc(abs(float(b.mean() - a.mean())) / error / math.sqrt(2)) < ALPHA


def below(p: float | None) -> bool:
    """Whether a p-value is below the level."""
    return p is not None and p < ALPHA


def share(verdicts: Sequence[bool]) -> float:
    """Return how many of the simulations gave a verdict."""
    return sum(verdicts) / len(verdicts)


def allowed(simulations: int) -> float:
    """Return 5 % and three standard errors of a simulated rate of 5 %."""
    return ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / simulations)


if __name__ == "__main__":
    main()
