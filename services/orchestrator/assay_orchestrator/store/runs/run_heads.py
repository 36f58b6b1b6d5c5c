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
        dataset: The name of its dataset.
        pass_rate: Passed rows as a share of decided rows so far; None if none is decided.
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
    pass_rate: float | None


def read_heads(connection: sa.Connection, scope: Scope) -> list[RunHead]:
    """Return every run that a scope reaches, newest first."""
    runs, datasets = schema.runs, schema.datasets
    own_dataset = sa.and_(datasets.c.team == runs.c.team, datasets.c.dataset_id == runs.c.dataset_id)
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
            datasets.c.name.label("dataset"),
            runs.c.passed_count,
            runs.c.failed_count,
        )
        .join(datasets, own_dataset)
        .where(is_reached(scope))
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    )
    return [_head(row) for row in connection.execute(query)]


def _head(row: Any) -> RunHead:
    labels = json.loads(row.labels) if isinstance(row.labels, str) and row.labels.startswith("{") else {}
    decided = row.passed_count + row.failed_count
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
        pass_rate=row.passed_count / decided if decided > 0 else None,
    )
