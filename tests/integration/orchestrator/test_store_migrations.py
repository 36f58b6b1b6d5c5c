"""Upgrades of the tables and views, on SQLite and on PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from assay.errors import StorageError
from assay.filters.row_text import parse_row_filter, parse_row_order
from assay.model.scope import LOCAL
from assay.storage import revisions
from assay_orchestrator.store import datasets, found_rows, results, runs, schema, views
from assay_orchestrator.store.found_rows import RowQuery
from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.storage.database import Database

    Open = Callable[[], Database]

on_new_databases = pytest.mark.parametrize("database_url", ["sqlite", "new postgres"], indirect=True)

# What each earlier version would have stored: one run with one answered and scored case.
_SCORES = '[{"metric": "exact_match", "status": "scored", "value": 1.0, "passed": true}]'
_FIRST = (
    "INSERT INTO datasets VALUES ('d', 'u', 'names', 'plain/json', 1, 't')",
    'INSERT INTO dataset_cases VALUES (\'u\', 0, \'c\', \'{"case_id": "c", "turns": [{"input": "q"}]}\')',
    """
    INSERT INTO runs (run_id, request_id, request_hash, spec_json, dataset_id, state, total_count, finished_count,
                      passed_count, assay_version, created_at)
    VALUES ('r', 'q', 'h', '{"name": "old"}', 'd', 'succeeded', 1, 1, 1, '0.1.0', 't')
    """,
    "INSERT INTO run_events VALUES ('r', 1, 'running', '', 't')",
)
_STORED: dict[str, tuple[str, ...]] = {
    "0001": (
        *_FIRST,
        'INSERT INTO answers VALUES (\'r\', 0, 0, \'{"status": "success", "text": "yes"}\', \'t\')',
        f"INSERT INTO results VALUES ('r', 0, 0, 2, 'c', '', 'success', TRUE, 2.5, '', '{_SCORES}', 't')",
    ),
    "0002": (
        *_FIRST,
        'INSERT INTO answers VALUES (\'r\', 0, 0, 0, \'{"status": "success", "text": "yes"}\', \'t\')',
        f"""
        INSERT INTO results (run_id, case_index, repeat_index, sequence, case_id, category, status, passed,
                             latency_ms, reason, scores_json, created_at)
        VALUES ('r', 0, 0, 2, 'c', '', 'success', TRUE, 2.5, '', '{_SCORES}', 't')
        """,
    ),
}
_STORED |= dict.fromkeys((f"{number:04}" for number in range(3, 15)), _STORED["0002"])
_STORED["0015"] = tuple(  # names belong to teams
    statement.replace(
        "INTO datasets VALUES",
        "INTO datasets (dataset_id, upload_id, name, format, case_count, created_at, team) VALUES",
    )
    .replace("plain/json', 1, 't')", "plain/json', 1, 't', 'local')")
    .replace("assay_version, created_at)", "assay_version, created_at, team)")
    .replace("'0.1.0', 't')", "'0.1.0', 't', 'local')")
    for statement in _STORED["0002"]
)
_STORED["0016"] = tuple(  # rows have the values of their scores
    statement.replace("scores_json, created_at)", "scores_json, created_at, values_json)").replace(
        f"'{_SCORES}', 't')", f"""'{_SCORES}', 't', '{{"exact_match": 1.0}}')"""
    )
    for statement in _STORED["0015"]
)
_STORED |= dict.fromkeys(("0017", "0018"), _STORED["0016"])
_STORED["0019"] = (  # texts and values that rows are found by have columns
    *(
        statement.replace('[{"input": "q"}]}\')', '[{"input": "q"}]}\', \'q\')').replace(
            '"text": "yes"}\', \'t\')', "\"text\": \"yes\"}', 't', 'yes')"
        )
        for statement in _STORED["0016"]
    ),
    "INSERT INTO score_values VALUES ('r', 'exact_match', 0, 0, 1.0)",
)
_STORED |= dict.fromkeys((f"{number:04}" for number in range(20, 29)), _STORED["0019"])


def described(engine: sa.Engine) -> dict[str, object]:
    """Return tables, columns, keys, indexes and views as the database holds them."""
    inspector = sa.inspect(engine)
    # Each of these asks once for all tables; table by table, PostgreSQL is asked for seconds.
    columns, keys = inspector.get_multi_columns(), inspector.get_multi_pk_constraint()
    options = inspector.get_multi_table_options()
    unique, indexes = inspector.get_multi_unique_constraints(), inspector.get_multi_indexes()
    foreign = inspector.get_multi_foreign_keys()
    tables: dict[str, object] = {
        str(name[1]): (
            [(column["name"], str(column["type"]), column["nullable"]) for column in found],
            keys[name]["constrained_columns"],
            options[name],
            sorted(str(one["column_names"]) for one in unique[name]),
            sorted(str(one["column_names"]) for one in indexes[name]),
            [(one["constrained_columns"], one["referred_columns"]) for one in foreign[name]],
            [column["default"] for column in found],
        )
        for name, found in columns.items()
        if name[1] != "alembic_version" and not name[1].startswith("procrastinate_")
    }
    for view in sorted(inspector.get_view_names()):
        # PostgreSQL writes the schema of a table that is not on the search path of whoever asks.
        tables[view] = re.sub(r"test_[0-9a-f]+\.", "", str(inspector.get_view_definition(view)))
    return tables


def test_every_earlier_version_is_tested() -> None:
    """Whoever adds a revision adds what it would have stored, and which views it has."""
    assert [f"{number:04}" for number in range(1, int(HEAD_REVISION))] == list(_STORED)
    assert views.NEWEST <= HEAD_REVISION


@pytest.fixture
def declared(engine: sa.Engine) -> dict[str, object]:
    """Return the tables and views that the schema declares; the database is empty again."""
    with engine.begin() as connection:
        schema.create_all(connection)
        views.create_views(connection)
    found = described(engine)
    with engine.begin() as connection:
        for view in sa.inspect(connection).get_view_names():
            connection.exec_driver_sql(f"DROP VIEW {view}")
        schema.metadata.drop_all(connection)
    return found


@on_new_databases
def test_new_tables_are_those_of_the_schema(open_store: Open, engine: sa.Engine, declared: dict[str, object]) -> None:
    """A new database has the tables and views that the schema declares."""
    open_store().close()
    with engine.connect() as connection:
        assert revisions.read_revision(connection, TABLES) == HEAD_REVISION
    found = described(engine)
    assert {"run_overview", "result_rows", "score_rows"} <= set(found)
    assert found == declared


@on_new_databases
@pytest.mark.parametrize("revision", list(_STORED))
async def test_an_upgrade_keeps_what_is_stored(
    revision: str, open_store: Open, engine: sa.Engine, declared: dict[str, object]
) -> None:
    """What an earlier version stored is read as before, and shown by the views; the tables are those of a new one."""
    with engine.connect() as connection:
        revisions.upgrade(connection, TABLES, revision)
        for statement in _STORED[revision]:
            connection.exec_driver_sql(statement)
        connection.commit()
    database = open_store()
    try:
        cases = [
            datasets.stored_case(*found).case
            for found in await database.read(lambda c: datasets.read_cases(c, "r", 0, 9))
        ]
        run = await database.read(lambda c: runs.load_run(c, "r"))
        answers = await database.read(lambda c: results.stored_answers(c, "r", 0, 1))
        rows = await database.read(lambda c: results.read_sequence(c, "r", 0, 9))
        filters = [parse_row_filter(text) for text in ("exact_match==1", "answer~YES", "question~Q", "text~n")]
        counts = [
            await database.read(lambda c, w=wanted: found_rows.count_rows(c, LOCAL, "r", RowQuery(w)))  # type: ignore[misc]  # mypy does not infer w
            for wanted in filters
        ]
        by_metric = RowQuery(order=parse_row_order("exact_match"))
        sorted_rows = await database.read(lambda c: found_rows.find_rows(c, LOCAL, "r", by_metric, None, 9))
        shown = await database.read(
            lambda c: c.exec_driver_sql("SELECT run_id, case_id, metric, value, passed FROM score_rows").all()
        )
    finally:
        database.close()
    with engine.connect() as connection:
        assert revisions.read_revision(connection, TABLES) == HEAD_REVISION
    assert described(engine) == declared
    assert [case.case_id for case in cases] == ["c"]
    assert counts == [1, 1, 1, 0]
    assert [position.value for _, position in sorted_rows] == [1.0]
    assert run is not None
    assert (run.spec, run.finished_count) == ({"name": "old"}, 1)
    assert {key: [answer.text for answer in turns] for key, turns in answers.items()} == {(0, 0): ["yes"]}
    assert [(row.case_id, row.passed, row.tags, row.weight, row.answer_vector) for row in rows] == [
        ("c", True, (), 1.0, b"")
    ]
    assert [(row.started_at, row.duration_ms) for row in rows] == [("", None)]
    assert [tuple(row) for row in shown] == [("r", "c", "exact_match", 1.0, True)]


@on_new_databases
async def test_an_upgrade_counts_runs_that_were_retried_anew(open_store: Open, engine: sa.Engine) -> None:
    """Counts that two processes corrupted by retrying the same errors at once are those of the stored rows again."""
    with engine.connect() as connection:
        revisions.upgrade(connection, TABLES, "0009")
        for statement in _STORED["0009"]:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("UPDATE runs SET finished_count = 0, failed_count = -25, agent_error_count = -169")
        connection.exec_driver_sql(
            "INSERT INTO row_history (run_id, case_index, repeat_index, attempt_index, outcome, created_at) "
            "VALUES ('r', 0, 0, 0, 'retried', 't')"
        )
        connection.commit()
    database = open_store()
    try:
        run = await database.read(lambda c: runs.load_run(c, "r"))
    finally:
        database.close()
    assert run is not None
    assert (run.finished_count, run.passed_count, run.failed_count, run.agent_error_count) == (1, 1, 0, 0)


@on_new_databases
def test_a_newer_database_is_refused(open_store: Open, engine: sa.Engine) -> None:
    """Tables that a newer version wrote are left alone, with a sentence that says what to do."""
    open_store().close()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StorageError, match=r"newer version of Assay.*9999.*upgrade Assay, or choose another"):
        open_store()
    with engine.connect() as connection:
        assert revisions.read_revision(connection, TABLES) == "9999"
