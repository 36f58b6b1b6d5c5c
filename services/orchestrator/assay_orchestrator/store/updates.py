"""Changes of a stored run: its labels, note, weight and spend cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.storage.texts import json_text
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import Command, require_transition
from assay_orchestrator.store.teams import audit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sqlalchemy as sa

    from assay.model.run import SpendCap
    from assay.model.scope import Scope


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """The new values of a run; None leaves a value unchanged."""

    labels: Mapping[str, str] | None = None
    note: str | None = None
    weight: float | None = None
    spend_cap: SpendCap | None = None


def update_run(connection: sa.Connection, scope: Scope, run_id: str, update: RunUpdate) -> bool:
    """Change a run; return False if there is no such run. A repeated change changes nothing.

    Raises:
        WrongStateError: The spend cap differs, and the run is active: its workers hold the current one.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return False
    values = {"labels": update.labels, "note": update.note, "weight": update.weight}
    spec = run.spec | {name: value for name, value in values.items() if value is not None}
    if update.spend_cap is not None and update.spend_cap.nano_usd != spec.get("spend_cap_nano_usd"):
        require_transition(run_id, run.phase, Command.CHANGE_CAP)
        spec["spend_cap_nano_usd"] = update.spend_cap.nano_usd
    columns: dict[str, Any] = {"spec_json": json_text(spec)}
    if update.weight is not None:
        columns["weight"] = update.weight
    connection.execute(schema.runs.update().where(schema.runs.c.run_id == run_id).values(columns))
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return True
