"""Turns what was understood into one SELECT with parameters; no text of a question becomes part of a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arabic_questions import Question

__all__ = ["MOST_ROWS", "query"]

MOST_ROWS = 10
_FROM = {
    "tenders": "tenders_full_details",
    "projects": "projects JOIN tenders USING (tender_id) JOIN entities USING (entity_id)"
    " JOIN regions USING (region_id) JOIN activities USING (activity_id)",
}
_COLUMNS = {
    "tenders": {
        "name": "title", "reference": "reference_no", "entity": "entity", "region": "region", "activity": "activity",
        "status": "status", "start": "published_on", "end": "deadline", "value": "estimated_value",
        "year": "substr(published_on, 1, 4)", "estimated_value": "estimated_value", "awarded_value": "awarded_value",
        "winner": "supplier",
    },
    "projects": {
        "name": "projects.name", "reference": "tenders.reference_no", "entity": "entities.name",
        "region": "regions.name", "activity": "activities.name", "status": "projects.status",
        "start": "projects.started_on", "end": "projects.planned_end", "value": "projects.contract_value",
        "year": "substr(projects.started_on, 1, 4)", "contract_value": "projects.contract_value",
        "progress_percent": "projects.progress_percent", "winner": "projects.contractor",
    },
}  # fmt: skip


def query(question: Question) -> tuple[str, list[Any]]:
    """Return a SELECT for a question and the values of its parameters."""
    columns = _COLUMNS[question.subject]
    conditions, values = _conditions(question, columns)
    measure = columns[question.measure]
    limit = ""
    match question.intent:
        case "count":
            wanted = "COUNT(*) AS total"
        case "sum":
            wanted = f"SUM({measure}) AS amount, COUNT({measure}) AS total"
        case "average":
            wanted = f"AVG({measure}) AS amount, COUNT({measure}) AS total"
        case "highest" | "lowest":
            conditions.append(f"{measure} IS NOT NULL")
            wanted = f"{measure} AS amount, {columns['name']} AS name, {columns['entity']} AS entity"
            limit = f" ORDER BY amount {'DESC' if question.intent == 'highest' else 'ASC'}, name LIMIT 1"
        case "distribution":
            wanted = f"{columns[question.by]} AS label, COUNT(*) AS total, SUM({columns['value']}) AS amount"
            limit = f" GROUP BY label ORDER BY total DESC, label LIMIT {5 if question.top else 20}"
        case _:
            wanted = _details(question, columns)
            limit = f" ORDER BY {columns['start']} DESC, {columns['reference']} LIMIT {MOST_ROWS}"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    # Only names from the tables above stand in the statement.
    return f"SELECT {wanted} FROM {_FROM[question.subject]}{where}{limit}", values  # noqa: S608


def _conditions(question: Question, columns: dict[str, str]) -> tuple[list[str], list[Any]]:
    low, high = question.bounds
    period = question.period
    day = columns["end" if period and period.of_end else "start"]
    wanted = [
        (f"{columns['reference']} = ?", question.reference),
        (f"{columns['name']} = ?", question.project),
        (f"{columns['entity']} = ?", question.entity),
        (f"{columns['region']} = ?", question.region),
        (f"{columns['activity']} = ?", question.activity),
        (f"{columns['status']} = ?", question.status),
        (f"{day} >= ?", period.start.isoformat() if period else None),
        (f"{day} <= ?", period.end.isoformat() if period else None),
        (f"{columns['value']} > ?", low),
        (f"{columns['value']} < ?", high),
    ]
    if question.intent == "lookup":
        wanted = wanted[:2]  # the name alone says which one is meant
    used = [(condition, value) for condition, value in wanted if value is not None]
    return [condition for condition, _ in used], [value for _, value in used]


def _details(question: Question, columns: dict[str, str]) -> str:
    names = ("reference", "name", "entity", "region", "status", "start", "end", "value", "winner")
    wanted = [f"{columns[name]} AS {name}" for name in names]
    if question.subject == "projects":
        wanted.append(f"{columns['progress_percent']} AS progress")
    return ", ".join([*wanted, "COUNT(*) OVER () AS total"])
