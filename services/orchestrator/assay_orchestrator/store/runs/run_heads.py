"""The searchable and sortable fields of runs: lists read them for every run of a scope, and the rest for a page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.model.run import PauseCause, RunState
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.run_conditions import is_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.scope import Scope


@dataclass(frozen=True, slots=True)
class RunHead:
    """The short form of a stored run; times are ISO 8601 texts.

    Args:
        name: The spec's name; empty if the spec cannot be read.
        labels: The spec's labels, likewise.
        fair_share: The name in its spec's `team`.
        group_id: Its group of variants; empty for none.
        dataset: The name of its dataset when it was created.
        verdict: The verdict of an ended run; empty for none, and if figures are not requested.
        figures: Its figures by name (`run_figures`), if requested, and the shares of its rows so far: pass_rate of the
            decided ones, agent_errors and interrupted of all.
    """

    run_id: str
    created_at: str
    ended_at: str | None
    state: RunState
    pause_cause: PauseCause | None
    name: str
    labels: Mapping[str, str]
    fair_share: str
    group_id: str
    dataset_id: str
    dataset: str
    verdict: str
    figures: Mapping[str, float]


def read_heads(connection: sa.Connection, scope: Scope, *, with_figures: bool) -> list[RunHead]:
    """Return every run that a scope reaches, newest first.

    Args:
        connection: The store.
        scope: The scope of the reader.
        with_figures: Whether heads have the verdict and figures of ended runs.
    """
    runs = schema.runs
    query = (
        sa.select(
            runs.c.run_id,
            runs.c.created_at,
            runs.c.ended_at,
            runs.c.state,
            runs.c.pause_cause,
            schema.json_field(connection, runs.c.spec_json, "name").label("name"),
            schema.json_field(connection, runs.c.spec_json, "labels").label("labels"),
            runs.c.fair_share,
            runs.c.group_id,
            runs.c.dataset_id,
            runs.c.dataset_name.label("dataset"),
            (runs.c.figures_json if with_figures else sa.literal("{}")).label("figures"),
            runs.c.total_count,
            runs.c.passed_count,
            runs.c.failed_count,
            runs.c.agent_error_count,
            runs.c.interrupted_count,
        )
        .where(is_reached(scope))
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    )
    return [_head(row) for row in connection.execute(query)]


def _head(row: Any) -> RunHead:
    labels = json.loads(row.labels) if isinstance(row.labels, str) and row.labels.startswith("{") else {}
    figures = json.loads(row.figures)
    return RunHead(
        run_id=row.run_id,
        created_at=row.created_at,
        ended_at=row.ended_at,
        state=RunState(row.state),
        pause_cause=PauseCause(row.pause_cause) if row.pause_cause else None,
        name=str(row.name or ""),
        labels=labels,
        fair_share=row.fair_share,
        group_id=row.group_id,
        dataset_id=row.dataset_id,
        dataset=row.dataset,
        verdict=figures.get("verdict", ""),
        figures={**figures.get("values", {}), **_shares(row)},
    )


def _shares(row: Any) -> dict[str, float]:
    decided, total = row.passed_count + row.failed_count, row.total_count
    shares = {"pass_rate": row.passed_count / decided} if decided > 0 else {}
    if total > 0:
        shares |= {"agent_errors": row.agent_error_count / total, "interrupted": row.interrupted_count / total}
    return shares
