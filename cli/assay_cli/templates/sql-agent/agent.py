"""An agent over a small in-memory database: it turns a question into SQL and the result into a sentence in Arabic.

Questions that the database cannot answer get the status `out_of_scope` and no SQL.
"""

from __future__ import annotations

import sqlite3
from typing import Any

EVENTS = [
    ("مهرجان الشعر", "الرياض", 40), ("معرض الكتاب", "الرياض", 20), ("ليلة الموسيقى", "جدة", 120),
    ("سباق المدينة", "الدمام", 60), ("سوق الحرف", "الرياض", 10),
]  # fmt: skip
VENUES = [("قاعة الواحة", 1200), ("قاعة النخيل", 450), ("المسرح الكبير", 3000)]
REFUSAL = "عذرا، لا أستطيع الإجابة عن هذا السؤال لأنه خارج نطاق بيانات الفعاليات والقاعات."
# Words of the question, the SQL that answers it, and the sentence for the result.
RULES = [
    (("الفعاليات", "الرياض"), "SELECT COUNT(*) FROM events WHERE city = 'الرياض'",
     "يبلغ عدد الفعاليات المسجلة في مدينة الرياض {} فعاليات."),
    (("متوسط", "سعر"), "SELECT AVG(price) FROM events", "يبلغ متوسط سعر تذاكر الفعاليات {} ريالا للتذكرة الواحدة."),
    (("الفعاليات",), "SELECT COUNT(*) FROM events", "يبلغ عدد الفعاليات المسجلة في قاعدة البيانات {} فعاليات."),
    (("أكبر", "قاعة"), "SELECT name, seats FROM venues ORDER BY seats DESC LIMIT 1",
     "أكبر قاعة من حيث السعة هي {} وتتسع لعدد {} من الزوار."),
    (("القاعات",), "SELECT COUNT(*) FROM venues", "يبلغ عدد القاعات المتاحة في قاعدة البيانات {} قاعات."),
]  # fmt: skip


def answer(request: Any) -> dict[str, Any]:
    """Answer one question."""
    for words, sql, sentence in RULES:
        if all(word in request.input for word in words):
            rows = run(sql)
            return {"text": sentence.format(*rows[0]), "sql": sql, "data_rows": len(rows)}
    return {"text": REFUSAL, "status": "out_of_scope"}


def run(sql: str) -> list[tuple[Any, ...]]:
    """Run a query on a new copy of the database, so that questions may be answered concurrently."""
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE TABLE events (name TEXT, city TEXT, price INTEGER)")
        database.execute("CREATE TABLE venues (name TEXT, seats INTEGER)")
        database.executemany("INSERT INTO events VALUES (?, ?, ?)", EVENTS)
        database.executemany("INSERT INTO venues VALUES (?, ?)", VENUES)
        return database.execute(sql).fetchall()
    finally:
        database.close()
