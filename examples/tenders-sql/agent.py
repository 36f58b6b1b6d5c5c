"""An assistant for questions in Arabic about public tenders and projects.

It reads a question by rules, asks an SQLite database in one parameterised SELECT on a connection that cannot
write, and tells in Arabic what came back. What is not about tenders or projects, it declines without a query.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from arabic_answers import insight
from arabic_questions import Vocabulary, read
from tenders_database import Database, open_database
from tenders_queries import query

if TYPE_CHECKING:
    from collections.abc import Sequence

DECLINED = "عذراً، أجيب عن الأسئلة المتعلقة بالمناقصات والمشاريع فقط، ولا تتوفر لدي بيانات عن هذا السؤال."


def answer(request: Any) -> dict[str, Any]:
    """Answer one question."""
    database, vocabulary = prepared()
    question = read(request.input, vocabulary)
    if question is None:
        return {"text": DECLINED, "status": "out_of_scope", "data_rows": 0}
    statement, values = query(question)
    sql, rows = run(database, statement, values)
    return {"text": insight(question, rows), "sql": sql, "data_rows": len(rows), "status": "success"}


def run(database: Database, statement: str, values: Sequence[Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return a statement as SQLite executed it, values filled in, and its rows."""
    executed: list[str] = []
    with database.connect() as connection:
        connection.set_trace_callback(executed.append)
        cursor = connection.execute(statement, values)
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return executed[0], rows


@cache  # called by several threads at first, each may prepare it: they find or make the same
def prepared() -> tuple[Database, Vocabulary]:
    """Return the database, made on first use, and the names in it."""
    database = open_database()
    with database.connect() as connection:
        entities = [name for (name,) in connection.execute("SELECT name FROM entities ORDER BY name")]
        projects = [name for (name,) in connection.execute("SELECT name FROM projects ORDER BY name")]
    return database, Vocabulary.of(entities, projects)
