"""Tells in Arabic what a query returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arabic_periods import MONTHS
from arabic_text import counted
from tenders_database import TODAY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from arabic_questions import Question

__all__ = ["insight"]

_NOUNS = {"tenders": ("مناقصة", "مناقصتان", "مناقصات", "مناقصة"), "projects": ("مشروع", "مشروعان", "مشاريع", "مشروعاً")}
_ALL = {"tenders": "المناقصات", "projects": "المشاريع"}
_MEASURES = {
    "estimated_value": "القيمة التقديرية", "awarded_value": "قيمة الترسية", "contract_value": "قيمة العقود",
    "progress_percent": "نسبة الإنجاز",
}  # fmt: skip
_BY = {"region": "المناطق", "activity": "الأنشطة", "entity": "الجهات", "status": "الحالات", "year": "السنوات"}
_AGGREGATES = {"sum": "إجمالي", "average": "متوسط", "highest": "أعلى", "lowest": "أدنى"}
_SHOWN = 3


def insight(question: Question, rows: Sequence[dict[str, Any]]) -> str:
    """Return the answer to a question: one or two sentences with the figures."""
    if question.intent == "count":
        total = rows[0]["total"]
        return f"عدد {_scope(question)}: {counted(total, *_NOUNS[question.subject])}، حتى {_day(TODAY)}."
    if not rows or rows[0].get("amount", 0) is None:
        return _nothing(question)
    if question.intent in _AGGREGATES:
        return _aggregate(question, rows[0])
    if question.intent == "distribution":
        return _distribution(question, rows)
    return _one(question, rows[0]) if question.intent == "lookup" else _list(question, rows)


def _nothing(question: Question) -> str:
    if question.project:
        return "لم أجد مشروعاً بهذا الاسم."
    return "لم أجد مناقصة بهذا الرقم." if question.reference else f"لم أجد نتائج تطابق {_scope(question)}."


def _aggregate(question: Question, row: dict[str, Any]) -> str:
    what = f"{_AGGREGATES[question.intent]} {_MEASURES[question.measure]}"
    shown = _measured(question.measure, row["amount"])
    if question.intent in ("highest", "lowest"):
        return f"{what} ضمن {_scope(question)}: {shown}، وهي لـ«{row['name']}» لدى {row['entity']}."
    base = counted(row["total"], *_NOUNS[question.subject])
    return f"{what} ضمن {_scope(question)}: {shown}، محسوباً على {base}."


def _distribution(question: Question, rows: Sequence[dict[str, Any]]) -> str:
    nouns = _NOUNS[question.subject]
    shares = "، ".join(f"{row['label']}: {counted(row['total'], *nouns)} ({_money(row['amount'])})" for row in rows)
    by = _BY[question.by]
    if question.top:
        return f"أعلى {by} عدداً ضمن {_scope(question)}: {shares}."
    return f"تتوزع {_scope(question)} على {by} كما يلي: {shares}."


def _one(question: Question, row: dict[str, Any]) -> str:
    kind = "المشروع" if question.subject == "projects" else "المناقصة"
    parts = [
        f"{kind} «{row['name']}» ({row['reference']}) لدى {row['entity']}",
        f"حالته {row['status']}" if question.subject == "projects" else f"حالتها {row['status']}",
        f"القيمة {_money(row['value'])}",
        f"من {row['start']} إلى {row['end']}",
    ]
    if row.get("progress") is not None:
        parts.append(f"نسبة الإنجاز {row['progress']}%")
    if row["winner"]:
        parts.append(f"المنفذ {row['winner']}")
    return "، ".join(parts) + "."


def _list(question: Question, rows: Sequence[dict[str, Any]]) -> str:
    shown = "؛ ".join(f"«{row['name']}» ({row['reference']}، {_money(row['value'])})" for row in rows[:_SHOWN])
    found = counted(rows[0]["total"], *_NOUNS[question.subject])
    return f"{_scope(question)}: {found}، أحدثها {shown}."


def _scope(question: Question) -> str:
    parts = [_ALL[question.subject]]
    if question.status:
        parts.append(f"بحالة «{question.status}»")
    if question.activity:
        parts.append(f"في نشاط {question.activity}")
    if question.entity:
        parts.append(f"لدى {question.entity}")
    if question.region:
        parts.append("في المنطقة الشرقية" if question.region == "الشرقية" else f"في منطقة {question.region}")
    if question.period:
        verb = "المنتهية" if question.period.of_end else "المؤرخة"
        parts.append(f"{verb} من {_day(question.period.start)} إلى {_day(question.period.end)}")
    low, high = question.bounds
    if low is not None:
        parts.append(f"بقيمة تزيد على {_money(low)}")
    if high is not None:
        parts.append(f"بقيمة تقل عن {_money(high)}")
    return " ".join(parts)


def _measured(measure: str, value: float) -> str:
    return f"{value:.1f}%" if measure == "progress_percent" else _money(value)


def _money(value: float) -> str:
    for size, name in ((1e9, "مليار"), (1e6, "مليون")):
        if value >= size:
            return f"{value / size:,.2f} {name} ريال"
    return f"{value:,.0f} ريال"


def _day(day: date) -> str:
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"
