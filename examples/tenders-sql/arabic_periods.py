"""Periods that Arabic questions name: "خلال آخر ثلاثة أشهر", "في الربع الأول من 2025", "الأسبوع القادم"."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from arabic_text import NUMBER, number
from tenders_database import TODAY

if TYPE_CHECKING:
    from arabic_text import Text

__all__ = ["MONTHS", "Period", "read_period"]

MONTHS = ("يناير", "فبراير", "مارس", "أبريل", "مايو", "يونيو", "يوليو", "أغسطس", "سبتمبر", "أكتوبر", "نوفمبر", "ديسمبر")
_FOLDED_MONTHS = ("يناير", "فبراير", "مارس", "ابريل", "مايو", "يونيو", "يوليو", "اغسطس", "سبتمبر", "اكتوبر", "نوفمبر",
                  "ديسمبر")  # fmt: skip
_QUARTERS = {"اول": 1, "ثاني": 2, "ثالث": 3, "رابع": 4, "اخير": 4}
_SINGLE = {"يوم": "day", "اسبوع": "week", "شهر": "month", "سنه": "year", "عام": "year"}
_DOUBLE = {"يومين": "day", "اسبوعين": "week", "شهرين": "month", "سنتين": "year", "عامين": "year"}
_PLURAL = {"ايام": "day", "يوما": "day", "اسابيع": "week", "اسبوعا": "week", "اشهر": "month", "شهور": "month",
           "شهرا": "month", "سنوات": "year", "سنين": "year", "اعوام": "year"}  # fmt: skip
_UNITS = "|".join([*_DOUBLE, *_PLURAL, *_SINGLE])
_PAST = "ماضيه|ماضي|ماضيين|ماضيتين|سابق|سابقه|منصرم|منصرمه|اخير|اخيره|اخيرين"
_FUTURE = "قادمه|قادم|قادمين|مقبل|مقبله|مقبلين|تاليه"
_ENDS = "تغلق|يغلق|اغلاق|اغلاقها|تنتهي|ينتهي|انتهاء|اخر موعد|موعد|تقفل"


@dataclass(frozen=True)
class Period:
    """Days from `start` to `end`, both included; `of_end` says whether the end of a thing falls there."""

    start: date
    end: date
    of_end: bool = False


def read_period(text: Text) -> Period | None:
    """Return the period that a question names, taken out of the text."""
    of_end = text.has(_ENDS)
    days = _relative(text) or _named(text)
    return Period(*days, of_end) if days else None


def _relative(text: Text) -> tuple[date, date] | None:
    found = text.take(rf"اخر (?:({NUMBER}) )?(?:ال)?({_UNITS})")
    if found:
        return _back(found[1], found[2])
    found = text.take(rf"(?:({NUMBER}) )?(?:ال)?({_UNITS}) (?:(?:ال)?({NUMBER}) )?(?:ال)?({_PAST}|{_FUTURE})")
    if found:
        count = found[1] or found[3]
        if found[4] in _FUTURE.split("|"):
            return TODAY, _shift(*_length(count, found[2]))
        if count is None and found[2] in ("شهر", "سنه", "عام"):
            return _whole(_SINGLE[found[2]], before=1)
        return _back(count, found[2])
    found = text.take(r"هذا ال(?:شهر|عام)|هذه السنه|(?:شهر|عام|سنه) (?:ال)?حالي(?:ه)?")
    if found:
        return _whole("month" if "شهر" in found[0] else "year", before=0)
    return None


def _named(text: Text) -> tuple[date, date] | None:
    quarter = text.take(rf"ربع (?:ال)?({'|'.join(_QUARTERS)})")
    month = text.take(rf"(?:شهر )?({'|'.join(_FOLDED_MONTHS)})")
    year = text.take(r"(?:(?:عام|سنه) )?(20\d\d)")
    if not (quarter or month or year):
        return None
    of_year = int(year[1]) if year else TODAY.year
    first, last = 1, 12
    if quarter:
        last = 3 * _QUARTERS[quarter[1]]
        first = last - 2
    if month:
        first = last = _FOLDED_MONTHS.index(month[1]) + 1
    return date(of_year, first, 1), _last_day(of_year, last)


def _length(count: str | None, word: str) -> tuple[float, str]:
    if word in _DOUBLE:
        return 2, _DOUBLE[word]
    return (number(count) if count else 1), _SINGLE.get(word) or _PLURAL[word]


def _back(count: str | None, word: str) -> tuple[date, date]:
    length, unit = _length(count, word)
    return _shift(-length, unit), TODAY


def _shift(length: float, unit: str) -> date:
    # No question means centuries, and dates end somewhere.
    length = max(-1200.0, min(1200.0, length))
    if unit in ("day", "week"):
        return TODAY + timedelta(days=length * (7 if unit == "week" else 1))
    months = TODAY.year * 12 + TODAY.month - 1 + round(length * (12 if unit == "year" else 1))
    year, month = max(1, min(9999, months // 12)), months % 12 + 1
    return date(year, month, min(TODAY.day, calendar.monthrange(year, month)[1]))


def _whole(unit: str, *, before: int) -> tuple[date, date]:
    if unit == "year":
        return date(TODAY.year - before, 1, 1), date(TODAY.year - before, 12, 31)
    end = TODAY if before == 0 else TODAY.replace(day=1) - timedelta(days=1)
    return end.replace(day=1), _last_day(end.year, end.month)


def _last_day(year: int, month: int) -> date:
    return date(year, month, calendar.monthrange(year, month)[1])
