"""Reads an Arabic question about tenders and projects by rules: what is asked, of what, under which conditions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arabic_periods import Period, read_period
from arabic_text import NUMBER, UNIT, Text, amount, fold
from tenders_database import ACTIVITIES, PROJECT_STATUSES, REGIONS, TENDER_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Question", "Vocabulary", "read"]

LONGEST = 2000
TENDER = "مناقصه|مناقصات|مناقصتين|مناقصتان|عطاء|عطاءات"
PROJECT = "مشروع|مشروعا|مشاريع|مشروعات|مشروعين|مشروعان"
_REGION_WORDS = dict(zip(
    REGIONS,
    ("رياض", "مكه المكرمه|مكه|جده|طائف", "مدينه المنوره|ينبع", "قصيم|بريده|عنيزه",
     "شرقيه|دمام|خبر|جبيل|احساء|حفر الباطن", "عسير|ابها|خميس مشيط|بيشه", "تبوك", "حائل",
     "حدود الشماليه|عرعر|رفحاء", "جازان|جيزان|صبيا", "نجران|شروره", "باحه", "جوف|سكاكا"),
    strict=True,
))  # fmt: skip
_ACTIVITY_WORDS = dict(zip(
    ACTIVITIES,
    ("شبكات المياه|شبكه مياه|مياه", "صرف الصحي|صرف صحي|صرف", "طرق والجسور|طرق|طريق|جسور|جسر", "تصريف السيول|سيول",
     "نظافه العامه|نظافه|نفايات", "حدائق والتشجير|حدائق|حديقه|تشجير|متنزهات",
     "مباني التعليميه|تعليم|تعليميه|تعليمي|مدارس|مدرسه", "تجهيزات الطبيه|طبيه|صحه|صحيه|صحي|مستشفيات|مستشفي",
     "تقنيه المعلومات|تقنيه|برمجيات|رقمنه", "صيانه والتشغيل|صيانه|تشغيل", "طاقه المتجدده|متجدده|شمسيه",
     "شبكات الكهربائيه|كهرباء|كهربائيه|كهربائي|اناره", "نقل العام|نقل|حافلات"),
    strict=True,
))  # fmt: skip
_STATUS_WORDS = {
    "tenders": dict(zip(
        TENDER_STATUSES,
        ("مطروحه|مفتوحه|متاحه|قائمه|ساريه", "قيد التقييم|قيد الدراسه|قيد الفحص|تحت التقييم",
         "مرساه|تمت ترسيتها|رست|منتهيه الترسيه|ارسيت", "ملغاه|الغيت|ملغيه|الملغاه"),
        strict=True,
    )),
    "projects": dict(zip(
        PROJECT_STATUSES,
        ("قيد التنفيذ|جار تنفيذها|جاري تنفيذها|جاريه|قائمه|تحت التنفيذ|قيد الانشاء",
         "مكتمله|مكتمل|مكتملا|منجزه|اكتملت|انجزت", "متاخره|متاخر|متاخرا|متعثره|متعثر|متعثرا",
         "متوقفه|متوقف|متوقفا|معلقه"),
        strict=True,
    )),
}  # fmt: skip
DIMENSIONS = {
    "region": "منطقه|مناطق", "activity": "نشاط|انشطه|قطاع|قطاعات|مجال|مجالات", "entity": "جهه|جهات",
    "status": "حاله|حالات|حالتها", "year": "سنه|سنوات|عام|اعوام",
}  # fmt: skip
_SPREAD = r"توزيع|توزع|تتوزع|توزعت|موزعه"
_VALUE = r"قيمه|قيم|قيمتها|تكلفه|كلفه|ميزانيه|ميزانيات|مبلغ|مبالغ|عقود|عقد|ترسيه|سعر"
_LESS = r"(?:لا (?:ت|ي)(?:تجاوز|زيد)|اقل|ادني|دون|تحت|(?:ت|ي)قل)"
_MORE = r"(?:(?:ت|ي)(?:زيد|تجاوز|تخطي|فوق)|اكثر|اكبر|اعلي|فوق|تجاوزت|زادت)"
_AMOUNT = rf"(?:({NUMBER}) ?)?({UNIT})(?!\w)|(\d{{4,15}})(?= ?ريال)"
_BETWEEN = re.compile(rf"(?<!\w)بين ({NUMBER}) ?({UNIT})? و ?({NUMBER}) ?({UNIT})(?!\w)")


@dataclass(frozen=True)
class Vocabulary:
    """Names that the database knows, as they are written there."""

    entities: tuple[str, ...]
    projects: tuple[str, ...]
    folded: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, entities: Iterable[str], projects: Iterable[str]) -> Vocabulary:
        """Return the vocabulary; longer names come first, since they may hold shorter ones."""
        first = tuple(sorted(entities, key=len, reverse=True))
        second = tuple(sorted(projects, key=len, reverse=True))
        return cls(first, second, {name: fold(name) for name in (*first, *second)})


@dataclass(frozen=True)
class Question:
    """What a question asks for.

    Args:
        subject: "tenders" or "projects".
        intent: "count", "sum", "average", "highest", "lowest", "distribution", "lookup" or "list".
        measure: A column of amounts, or of progress.
        by: What a distribution is by: a key of DIMENSIONS.
        top: Whether only the head of the distribution is asked for.
        reference: The number of one tender.
        project: The name of one project, as in the database or as in the question where that has no such name.
        bounds: Least and greatest value in riyals; None leaves a side open.
    """

    subject: str
    intent: str
    measure: str
    by: str = "region"
    top: bool = False
    reference: str | None = None
    project: str | None = None
    entity: str | None = None
    region: str | None = None
    activity: str | None = None
    status: str | None = None
    period: Period | None = None
    bounds: tuple[float | None, float | None] = (None, None)


def read(question: str, vocabulary: Vocabulary) -> Question | None:
    """Return what a question asks for, or None where it is about something else (or longer than any question)."""
    if len(question) > LONGEST:
        return None
    question = "".join(char for char in question if char.isprintable() or char.isspace())
    text = Text(question)
    reference = text.take(r"t-\d{4}-\d{5}")
    project = _project(question, text, vocabulary)
    subject = "projects" if project or text.has(PROJECT) else "tenders" if reference or text.has(TENDER) else None
    if subject is None:
        return None
    entity = _known(text, vocabulary.entities, vocabulary)
    period = read_period(text)
    bounds = _bounds(text)
    intent, by, top = _intent(text, lookup=bool(reference or project))
    return Question(
        subject=subject,
        intent=intent,
        measure=_measure(text, subject),
        by=by,
        top=top,
        reference=reference[0].upper() if reference else None,
        project=project,
        entity=entity,
        status=_first(text, _STATUS_WORDS[subject]),
        region=_first(text, _REGION_WORDS),
        activity=_first(text, _ACTIVITY_WORDS),
        period=period,
        bounds=bounds,
    )


def _project(question: str, text: Text, vocabulary: Vocabulary) -> str | None:
    known = _known(text, vocabulary.projects, vocabulary)
    if known:
        return known
    quoted = re.search(r"[«\"“]([^«»\"“”]{3,120})[»\"”]", question)
    if quoted is None or not text.has(PROJECT):
        return None
    text.rest = text.rest.replace(fold(quoted[1]), "|")
    return quoted[1].strip()


def _known(text: Text, names: Iterable[str], vocabulary: Vocabulary) -> str | None:
    found = next((name for name in names if vocabulary.folded[name] in text.rest), None)
    return found if found and text.take(re.escape(vocabulary.folded[found])) else None


def _first(text: Text, words: dict[str, str]) -> str | None:
    # Names of several words first: "صرف صحي" is no hospital, although "صحي" alone is.
    alternatives = [(word, name) for name, pattern in words.items() for word in pattern.split("|")]
    alternatives.sort(key=lambda pair: -pair[0].count(" "))
    found = next(((word, name) for word, name in alternatives if text.has(word)), None)
    if found is None:
        return None
    text.take(found[0])
    return found[1]


def _intent(text: Text, *, lookup: bool) -> tuple[str, str, bool]:
    if lookup:
        return "lookup", "region", False
    for by, words in DIMENSIONS.items():
        if text.has(rf"(?:حسب|كل) (?:ال)?(?:{words})") or (text.has(_SPREAD) and text.has(words)):
            return "distribution", by, False
        if text.has(rf"(?:اي|ما|ما هي|ماهي|من هي|اكثر|اكبر) (?:ال)?(?:{words})"):
            return "distribution", by, True
    if text.has(rf"كم (?:{TENDER}|{PROJECT})|عدد"):
        return "count", "region", False
    if text.has("متوسط|معدل|وسطي|نسبه"):
        return "average", "region", False
    if text.has(_VALUE):
        if text.has("اجمالي|مجموع|كم|مجمل"):
            return "sum", "region", False
        if text.has("اعلي|اكبر|اضخم|اغلي"):
            return "highest", "region", False
        if text.has("ادني|اقل|اصغر|ارخص"):
            return "lowest", "region", False
    return "count" if text.has("كم") else "list", "region", False


def _measure(text: Text, subject: str) -> str:
    if subject == "projects":
        return "progress_percent" if text.has("نسبه|انجاز") else "contract_value"
    return "awarded_value" if text.has("ترسيه|مرساه|عقود|عقد") else "estimated_value"


def _bounds(text: Text) -> tuple[float | None, float | None]:
    between = _BETWEEN.search(text.rest)
    if between:
        text.rest = text.rest.replace(between[0], "|")
        low, low_unit, high, unit = between.groups()
        return amount(low, low_unit or unit), amount(high, unit)
    ends: list[float | None] = [None, None]
    for side, words in ((1, _LESS), (0, _MORE)):
        found = text.take(rf"{words}(?: \w+){{0,2}}? ?(?:من|علي|عن)? (?:{_AMOUNT})")
        if found:
            count, unit, plain = found.groups()
            ends[side] = float(plain) if plain else amount(count, unit)
    return ends[0], ends[1]
