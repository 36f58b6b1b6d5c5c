"""Tools that a run's approvals name and that no row stopped at."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.answers.agent_response import response_from_json
from assay.model.answers.approvals import UnusedApproval, unstopped_tools
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.datasets import stored_case, upload_of_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.approvals import Approval
    from assay.model.answers.interrupts import Interrupt
    from assay.model.run import Run


def find_unused_approvals(connection: sa.Connection, run: Run) -> tuple[UnusedApproval, ...]:
    """Return the tools that approvals name and that no row covered by them stopped at.

    Args:
        connection: The store.
        run: A run whose rows all have an answer.
    """
    reading = run.spec.dataset
    own = _approvals_of_cases(connection, run.run_id) if reading is not None and reading.approvals_count else {}
    if not own and not run.spec.approvals:
        return ()
    stops = _stops(connection, run.run_id)
    common = [stop for index, interrupts in stops.items() if index not in own for stop in interrupts]
    unused = [UnusedApproval(tool) for tool in unstopped_tools(run.spec.approvals, common)]
    cases: dict[str, list[str]] = defaultdict(list)
    for index, (case_id, approvals) in own.items():
        for tool in unstopped_tools(approvals, stops[index]):
            cases[tool].append(case_id)
    return (*unused, *(UnusedApproval(tool, len(ids), ids[0]) for tool, ids in cases.items()))


def _approvals_of_cases(connection: sa.Connection, run_id: str) -> dict[int, tuple[str, Sequence[Approval]]]:
    """Return the cases with approvals of their own, with their ids."""
    cases = schema.dataset_cases.c
    case_rows = connection.execute(
        sa.select(cases.case_index, cases.case_id, cases.case_json)
        .where(cases.upload_id == upload_of_run(run_id), cases.case_json.like('%"approvals"%'))
        .order_by(cases.case_index)
    )
    own = ((index, case_id, stored_case(case_id, text).case.approvals) for index, case_id, text in case_rows)
    return {index: (case_id, approvals) for index, case_id, approvals in own if approvals}


def _stops(connection: sa.Connection, run_id: str) -> dict[int, list[Interrupt]]:
    """Return the interrupts of each case's rows."""
    answers = schema.answers.c
    answer_rows = connection.execute(
        sa.select(answers.case_index, answers.response_json).where(
            answers.run_id == run_id, answers.response_json.like('%"interrupts"%')
        )
    )
    stops: dict[int, list[Interrupt]] = defaultdict(list)
    for index, text in answer_rows:
        fields = {name: value for name, value in json.loads(text).items() if name in ("status", "interrupts")}
        stops[index] += response_from_json({**fields, "text": ""}).interrupts
    return stops
