"""Time to query rows of a run with 100,000 rows, on SQLite and on PostgreSQL.

Medians of several rounds, in milliseconds, of the queries behind ListRows and GetCase.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from benchmarks.engine import postgres

from assay.filters.row_filter import FAILING_ROWS
from assay.filters.row_text import parse_row_filter, parse_row_order
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import history
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.rows import found_rows, results
from assay_orchestrator.store.rows.found_rows import Position, RowQuery
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.storage.database import Database

_BATCH = 1_000
_PAGE = 100
_WORDS = ("refund", "parcel", "broken", "late", "kettle", "cable", "warranty", "return", "order", "shipping", "account")

FILTERS = {
    "failed": "failed",
    "category": "category:c3",
    "tag": "tag:t7",
    "one metric": "judge_score<0.5",
    "two metrics": "judge_score<0.5 rouge>0.9",
    "latency": "latency>1500ms",
    "rare text in answers": 'answer~"needle"',
    "frequent text in answers": "answer~refund",
    "rare text in questions": "question~needle",
    "rare text anywhere": "text~needle",
}
ORDERS = {"latency": "-latency", "metric": "judge_score", "case": "case"}
LAST = {
    "latency": Position(1.0, (0, 0)),
    "metric": Position(0.9995, (0, 0)),
    "case": Position("case-099949", (99_949, 0)),
}
"""Keys after which less than a page of 100,000 rows follows."""


def main() -> None:
    """Print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the run")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per query")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    figures = {}
    with TemporaryDirectory(prefix="assay-rows-") as folder:
        figures["sqlite"] = _measured(Path(folder), "", options.rows, options.rounds)
        with postgres() as url:
            figures["postgres"] = _measured(Path(folder), url, options.rows, options.rounds)
    if options.json is not None:
        options.json.write_text(json.dumps({"rows": options.rows, **figures}, indent=2) + "\n", encoding="utf-8")


def _measured(folder: Path, url: str, count: int, rounds: int) -> dict[str, float]:
    import asyncio

    database = open_database(Settings(database=folder / "assay.db", database_url=url))
    try:
        return asyncio.run(_figures(database, url, count, rounds))
    finally:
        database.close()


async def _figures(database: Database, url: str, count: int, rounds: int) -> dict[str, float]:
    name = "postgres" if url else "sqlite"
    begun = time.perf_counter()
    await database.write(_begin(count))
    for first in range(0, count, _BATCH):
        await database.write(_batch(first))
    figures = {"storing, rows/s": count / (time.perf_counter() - begun)}
    print(f"{name}: {figures}", flush=True)
    if url:
        _vacuum(url)
    for title, query in _queries().items():
        taken = []
        for _ in range(rounds):
            begun = time.perf_counter()
            await database.read(query)
            taken.append((time.perf_counter() - begun) * 1000)
        figures[title] = round(statistics.median(taken), 1)
        print(f"{name:<9} {title:<45} {figures[title]:>8.1f} ms", flush=True)
    return figures


def _vacuum(url: str) -> None:
    """Vacuum and analyze the tables, as PostgreSQL itself does within a minute of storing so many rows."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _queries() -> dict[str, Callable[[sa.Connection], object]]:
    queries: dict[str, Callable[[sa.Connection], object]] = {
        "first page, with answers": _page(RowQuery()),
        "first page, without answers": _page(RowQuery(), with_answers=False),
        "page of failed rows": _page(RowQuery(parse_row_filter(FAILING_ROWS))),
        "neighbours": lambda c: found_rows.find_neighbours(c, LOCAL, "r", RowQuery(), 50_000),
        "facets of all rows": lambda c: found_rows.count_facets(c, LOCAL, "r", RowQuery()),
    }
    for title, text in FILTERS.items():
        query = RowQuery(parse_row_filter(text))
        queries[f"{title}: page"] = _page(query, with_answers=False)
        queries[f"{title}: count"] = _count(query)
    for title, text in ORDERS.items():
        ordered = RowQuery(order=parse_row_order(text))
        queries[f"order by {title}: page"] = _page(ordered, with_answers=False)
        queries[f"order by {title}: last page"] = _page(ordered, with_answers=False, after=LAST[title])
    ordered = RowQuery(parse_row_filter("failed"), parse_row_order("judge_score"))
    queries["failed by metric: page"] = _page(ordered, with_answers=False)
    queries["failed by metric: neighbours"] = lambda c: found_rows.find_neighbours(c, LOCAL, "r", ordered, 50_000)
    return queries


def _page(
    query: RowQuery, *, with_answers: bool = True, after: Position | None = None
) -> Callable[[sa.Connection], object]:
    return lambda c: history.read_page(c, LOCAL, "r", query, after, _PAGE, with_answers=with_answers)


def _count(query: RowQuery) -> Callable[[sa.Connection], object]:
    return lambda c: found_rows.count_rows(c, LOCAL, "r", query)


def _begin(count: int) -> Callable[[sa.Connection], None]:
    def begin(connection: sa.Connection) -> None:
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", count))
        record = RunRecord("r", "q", "h", {"name": "n"}, "d", count, "0.1.0", "2026-05-01T00:00:00.000Z", "local")
        runs.create_run(connection, record)

    return begin


def _batch(first: int) -> Callable[[sa.Connection], None]:
    rng = random.Random(first)
    cases, answers, rows = [], [], []
    for index in range(first, first + _BATCH):
        cases.append(_case(index, rng))
        answers.append(AnswerRecord(index, 0, 0, AgentResponse(text=_text(index, rng, 80), latency_ms=1.0)))
        rows.append(_row(cases[-1], index, rng))

    def store(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", first, [(case.case_id, datasets.case_text(case)) for case in cases])
        results.put_rows(connection, "r", answers, rows, {})

    return store


def _case(index: int, rng: random.Random) -> Case:
    turn = Turn(_text(index, rng, 20), references=(_text(index, rng, 30),))
    tags = (f"t{rng.randrange(20)}", f"t{rng.randrange(20, 40)}")
    return Case(f"case-{index:06}", (turn,), category=f"c{rng.randrange(10)}", tags=tags)


def _row(case: Case, index: int, rng: random.Random) -> RowResult:
    detail: dict[str, Any] = {"version": "1", "model": "openai:gpt-4o-mini", "reasoning": _text(index, rng, 40)}
    values = {"rouge": rng.random(), "exact_match": float(rng.random() < 0.5), "judge_score": rng.random()}
    passed = values["judge_score"] >= 0.5
    scores = [Score(name, ScoreStatus.SCORED, value, passed, detail=detail) for name, value in values.items()]
    return RowResult(
        case.case_id, index, 1, case.category, AgentStatus.SUCCESS, passed, scores, rng.random() * 2000, "",
        tags=case.tags,
    )  # fmt: skip


def _text(index: int, rng: random.Random, words: int) -> str:
    chosen = rng.choices(_WORDS, k=words)
    if index % 10_000 == 77:
        chosen.append("needle")
    return " ".join(chosen)


if __name__ == "__main__":
    main()
