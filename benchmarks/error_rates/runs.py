"""Whole runs of drawn rows, compared as `assay compare` does."""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarks.error_rates.rates import Values

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun
from assay.comparison.facts import MetricFacts, RunFacts
from assay.comparison.joined import JoinedRuns
from assay.comparison.metric_pairs import PairedValues
from assay.comparison.model import ComparisonSettings
from assay.model.answers.agent_response import AgentStatus

METRIC = "score"
UNIT = (0.0, 1.0)


def run(
    name: str,
    values: Values,
    *,
    scale: tuple[float, float] | None = UNIT,
    facts: RunFacts | None = None,
) -> ComparedRun:
    """Return a run with one metric for which higher is better.

    Args:
        name: Id of the run.
        values: Value per case, or per repeat of a case; NaN if the agent failed.
        scale: Bounds of the metric; None for an unbounded metric.
        facts: Further facts of the run.
    """
    rows = values if values.ndim == 2 else values[:, None]
    scores = CaseScores((METRIC,))
    for case, repeats in enumerate(rows.tolist()):
        for repeat, value in enumerate(repeats):
            is_error = math.isnan(value)
            status = AgentStatus.ERROR if is_error else AgentStatus.SUCCESS
            known, errors = ({METRIC: None}, [METRIC]) if is_error else ({METRIC: value}, [])
            scores.take(f"c{case}", known, passed=None, status=status, errors=errors, repeat=repeat)
    count = rows.size
    metrics = {METRIC: MetricFacts(METRIC, METRIC, scale=scale)}
    known_facts = facts or RunFacts(name, name)
    return ComparedRun(replace(known_facts, metrics=metrics, finished=count, total=count), scores)


def paired(a: Values, b: Values) -> PairedValues:
    """Return the values of two runs of the same cases as their comparison joins them, errors among them."""
    joined = JoinedRuns(0, 1, [run("a", a).cases, run("b", b).cases], ComparisonSettings())
    return joined.values(MetricFacts(METRIC, METRIC, scale=UNIT), is_primary=True, withheld=None)
