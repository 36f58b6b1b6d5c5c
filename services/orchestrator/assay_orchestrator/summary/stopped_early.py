"""When a run stopped early, and the estimated saving: the mean usage of its rows for each unasked row."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from assay.model.stopping import StoppedEarly
from assay_orchestrator.store.rows import row_costs, stops

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import sqlalchemy as sa

    from assay.model.judging_summary import JudgingSummary
    from assay.model.run import Run


def stopped_early(connection: sa.Connection, run: Run, judging: JudgingSummary | None) -> StoppedEarly | None:
    """Return when a run stopped early; None if it has not.

    Args:
        connection: The store.
        run: The run.
        judging: The judging summary of its rows.
    """
    settings = run.spec.stopping
    stop = stops.read_stop(connection, run.run_id) if settings is not None else None
    if settings is None or stop is None:
        return None
    from assay.comparison.model import ComparisonVerdict  # imported here: few runs stop early

    counts = row_costs.read_counts(connection, run.run_id)
    unasked = settings.cases * run.spec.repeats - counts.rows
    share = unasked / counts.rows if counts.rows else 0.0
    tokens, usd = _used(row_costs.read_usage(connection, run.run_id), judging)
    elapsed_s = _seconds(run.started_at, counts.last_stored_at)
    return StoppedEarly(
        rule=stop.rule,
        metric=settings.metric,
        winner=settings.variants[stop.verdict is ComparisonVerdict.B_BETTER],
        case_count=stop.cases,
        pair_count=stop.n_pairs,
        look=stop.look,
        z=stop.z,
        bound=stop.bound,
        p=stop.p,
        standard_error=stop.standard_error,
        looks=stop.looks,
        asked_count=counts.cases,
        planned_count=settings.cases,
        saved_call_count=round(counts.answers * share),
        saved_tokens=None if tokens is None else tokens * share,
        saved_usd=None if usd is None else usd * share,
        saved_ms=None if elapsed_s is None else 1000 * elapsed_s * share,
    )


def _used(usages: Iterable[Mapping[str, Any]], judging: JudgingSummary | None) -> tuple[float | None, float | None]:
    """Return the tokens and the money that the rows used; None for a figure that no row reports."""
    from assay.reports.comparison.document.compared_run import implied_values

    tokens: list[float] = []
    money: list[float] = []
    for usage in usages:
        figures = implied_values({"status": "success", "latency_ms": None, "response": {"usage": usage}})
        tokens += [figure] if (figure := figures["tokens"]) is not None else []
        money += [figure] if (figure := figures["cost"]) is not None else []
    if judging is not None:
        tokens += [judging.input_tokens + judging.output_tokens] if judging.asked_count else []
        money += [judging.cost_usd] if judging.cost_usd is not None else []
    return (math.fsum(tokens) if tokens else None), (math.fsum(money) if money else None)


def _seconds(begun: str, ended: str) -> float | None:
    if not begun or not ended:
        return None
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds())
