"""Planning a comparison that stops early: its settings, checked before anything is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.facts import default_primary, facts_of_settings
from assay.comparison.stopping import StoppingPlan
from assay.errors import InvalidInputError, Problem
from assay.model.limits import LARGEST_INTEGER
from assay.model.stopping import StoppingRule, StoppingSettings
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.facts import MetricFacts
    from assay.comparison.model import ComparisonSettings
    from assay.model.run_spec import RunSpec

_OF_A_RUN = frozenset({"consistency"})
"""Kinds of metrics without values of cases."""
_OPTION = "--stop-early"


def plan_of(stopping: StoppingSettings, repeats: int) -> StoppingPlan:
    """Return the plan of settings with a known rule.

    Args:
        stopping: The settings.
        repeats: Runs of each case.
    """
    return StoppingPlan(
        StoppingRule(stopping.rule),
        stopping.cases,
        repeats,
        stopping.scale,
        stopping.higher_is_better,
        stopping.alpha,
    )


def planned_stopping(
    rule: str, runs: Sequence[RunSpec], variants: Sequence[str], cases: int, comparison: ComparisonSettings
) -> StoppingSettings:
    """Return the settings by which the runs of variants stop early.

    Args:
        rule: A value of `StoppingRule`.
        runs: The settings of each run, the baseline first.
        variants: The names of the runs.
        cases: Cases of the dataset.
        comparison: The settings of the comparison.

    Raises:
        InvalidInputError: The comparison cannot stop early; the error lists every problem.
    """
    problems = _comparison_problems(len(variants), comparison)
    metrics = _with_case_values(runs[0])
    metric = comparison.primary or default_primary(metrics)
    facts = metrics.get(metric)
    if rule not in set(StoppingRule):
        problems.append(Problem(unknown_name("rule", rule, [known.value for known in StoppingRule]), _OPTION))
    if facts is None:
        problems.append(Problem(_metric_problem(runs[0], metric, metrics), "--primary"))
    elif rule in set(StoppingRule):
        plan = StoppingPlan(StoppingRule(rule), cases, runs[0].repeats, facts.scale, alpha=comparison.alpha)
        problems += [Problem(problem, _OPTION) for problem in plan.problems()]
    if problems or facts is None:
        raise InvalidInputError(problems)
    low, high = facts.scale or (None, None)
    return StoppingSettings(
        rule=rule,
        metric=metric,
        variants=tuple(variants),
        cases=cases,
        seed=comparison.seed,
        alpha=comparison.alpha,
        low=low,
        high=high,
        higher_is_better=facts.higher_is_better,
    )


def _comparison_problems(count: int, comparison: ComparisonSettings) -> list[Problem]:
    problems = []
    if count != 2:
        problems.append(
            Problem(
                f"compares two variants, not {count}: pairs of more would stop at different cases. Name two, or run "
                "all cases",
                _OPTION,
            )
        )
    if comparison.cluster:
        problems.append(
            Problem("cannot be combined with --stop-early, whose rules count independent cases: leave out one of the "
                    "two", "--cluster")
        )  # fmt: skip
    if comparison.where:
        problems.append(
            Problem("cannot be combined with --stop-early, which decides from all cases: leave out one of the two",
                    "--where")
        )  # fmt: skip
    return problems


def stopping_problems(settings: RunSpec, variant: str) -> list[Problem]:
    """Return the problems of a run's stopping settings.

    Args:
        settings: The settings of the run, with checked metrics.
        variant: The run's variant, from its labels.
    """
    stopping = settings.stopping
    if stopping is None:
        return []
    problems = []
    if not settings.group_id:
        problems.append(Problem("needs a group: set group_id, the same for both runs", "stopping"))
    if len(set(stopping.variants)) != 2:
        problems.append(Problem(f"must be two names, not {len(set(stopping.variants))}", "stopping.variants"))
    elif variant not in stopping.variants:
        problems.append(Problem("must hold the run's own label `variant`", "stopping.variants"))
    if settings.cluster:
        problems.append(
            Problem("cannot be combined with stopping early, whose rules count independent cases", "cluster")
        )
    if not 0 < stopping.alpha < 0.5:
        problems.append(Problem(f"must be above 0 and below 0.5, not {stopping.alpha!r}", "stopping.alpha"))
    if stopping.seed > LARGEST_INTEGER:
        problems.append(Problem(f"must be at most {LARGEST_INTEGER}, not {stopping.seed}", "stopping.seed"))
    metrics = _with_case_values(settings)
    facts = metrics.get(stopping.metric)
    if facts is None:
        problems.append(Problem(_metric_problem(settings, stopping.metric, metrics), "stopping.metric"))
    elif (stopping.scale, stopping.higher_is_better) != (facts.scale, facts.higher_is_better):
        problems.append(
            Problem(
                f"low, high and higher_is_better must be those of {stopping.metric}: {facts.scale or 'no bounds'}, "
                f"{facts.higher_is_better}",
                "stopping",
            )
        )
    if stopping.rule not in set(StoppingRule):
        known = [rule.value for rule in StoppingRule]
        problems.append(Problem(unknown_name("rule", stopping.rule, known), "stopping.rule"))
    else:
        problems += [Problem(problem, "stopping") for problem in plan_of(stopping, settings.repeats).problems()]
    return problems


def _with_case_values(settings: RunSpec) -> dict[str, MetricFacts]:
    """Return the metrics with a value for each case, and the pass rate."""
    return {name: facts for name, facts in facts_of_settings(settings).items() if facts.kind not in _OF_A_RUN}


def _metric_problem(settings: RunSpec, metric: str, metrics: dict[str, MetricFacts]) -> str:
    if metric in facts_of_settings(settings):
        return f"{metric} has one value for the whole run, and a stopping rule needs one of each case: choose another"
    problem = unknown_name("metric", metric, tuple(metrics))
    return f"{problem}. A comparison that stops early decides by a metric of the spec: add it there, or choose another"
