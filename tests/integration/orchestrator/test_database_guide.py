"""docs/database.md: its queries run on both databases, its tables name the views' columns."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import sqlalchemy as sa

from assay.model.answers.agent_response import AgentStatus
from assay.model.run import DatasetRef, RowResult, RunState, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.storage.database import Database

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "database.md").read_text(encoding="utf-8")
QUERIES = [block for block in re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL) if block.startswith("SELECT")]


def rows_of_run(passed: bool) -> list[RowResult]:
    """Return a row that passes or fails, and one with an error."""
    good = Score("exact_match", ScoreStatus.SCORED, float(passed), passed)
    bad = Score("judge_score", ScoreStatus.ERROR, reason="judge_unavailable")
    row = RowResult("c0", 0, 1, "names", AgentStatus.SUCCESS, passed, (good, bad), 12.5, "" if passed else "too short")
    return [row, dataclasses.replace(row, case_id="c1", case_index=1, status=AgentStatus.ERROR, passed=None, scores=())]


@pytest_asyncio.fixture
async def filled(open_store: Callable[[], Database], engine: sa.Engine) -> sa.Engine:
    """Return an engine for a database that holds two runs of one dataset: in the second, a case fails."""

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [("c0", "{}"), ("c1", "{}")])
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", 2))
        for run_id, passed in (("run-a", True), ("run-b", False)):
            runs.create_run(
                connection, RunRecord(run_id, run_id, "h", {"name": "guide"}, "d", 2, "0.1.0", "2026-05-01", "local")
            )
            runs.change_state(connection, run_id, RunState.RUNNING)
            results.put_rows(connection, run_id, [], rows_of_run(passed), {})

    database = open_store()
    try:
        await database.write(fill)
    finally:
        database.close()
    return engine


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query).partition("\n")[0])
def test_every_query_runs_and_finds_something(query: str, filled: sa.Engine) -> None:
    """Each query of the guide has rows on a database with two runs of which one fails."""
    with filled.connect() as connection:
        assert connection.exec_driver_sql(query).all()


def test_what_passed_before_is_found(filled: sa.Engine) -> None:
    """The comparison of two runs names the case that got worse, and why."""
    (query,) = [query for query in QUERIES if "result_rows AS b" in query]
    with filled.connect() as connection:
        assert [tuple(row) for row in connection.exec_driver_sql(query)] == [("c0", 1, "too short")]


def test_the_views_have_the_columns_that_the_guide_names(filled: sa.Engine) -> None:
    """The guide's tables and the views agree, in order."""
    inspector = sa.inspect(filled)
    for view in ("run_overview", "result_rows", "score_rows"):
        described = re.search(rf"`{view}`, one row.*?\n\n(.*?)\n\n", GUIDE, re.DOTALL)
        assert described is not None
        named = re.findall(r"^\| `(\w+)` \|", described[1], re.MULTILINE)
        assert named == [column["name"] for column in inspector.get_columns(view)]


def test_the_guide_names_every_setting_of_the_database() -> None:
    """Flags and patience are described as the orchestrator has them."""
    for name in ("database", "database-url", "database-patience-s"):
        assert f"`--{name}" in GUIDE
    assert f"{Settings(database=Path('none')).database_patience_s:g} |" in GUIDE
