"""An invented database of public tenders and projects, made on first use and the same on every machine.

It is kept in a file beside this one; where that cannot be written it stays in memory. Its "today" is fixed, so
that questions such as "the last three months" have the same answer next year.
"""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import zlib
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ACTIVITIES", "PROJECT_STATUSES", "REGIONS", "TENDER_STATUSES", "TODAY", "Database", "open_database"]

TODAY = date(2026, 3, 31)
FILE = Path(__file__).with_name("tenders.db")
SEED, TENDERS, PROJECTS = 20260331, 4000, 800

REGIONS = ("الرياض", "مكة المكرمة", "المدينة المنورة", "القصيم", "الشرقية", "عسير", "تبوك", "حائل",
           "الحدود الشمالية", "جازان", "نجران", "الباحة", "الجوف")  # fmt: skip
TENDER_STATUSES = OPEN, REVIEWED, AWARDED, CANCELLED = ("مطروحة", "قيد التقييم", "مرساة", "ملغاة")
PROJECT_STATUSES = RUNNING, DONE, LATE, STOPPED = ("قيد التنفيذ", "مكتمل", "متأخر", "متوقف")

# Activity: a usual value in riyals, and the works that are put out to tender.
ACTIVITIES = {
    "شبكات المياه": (9_000_000, ("تمديد شبكة مياه", "تأهيل محطة ضخ", "إنشاء خزان مياه")),
    "الصرف الصحي": (14_000_000, ("إنشاء شبكة صرف", "تأهيل محطة معالجة", "استكمال توصيلات الصرف في")),
    "الطرق والجسور": (22_000_000, ("إنشاء طريق", "تأهيل طريق", "إنشاء جسر")),
    "تصريف السيول": (12_000_000, ("إنشاء قناة تصريف", "درء أخطار السيول عن", "تنظيف عبّارات")),
    "النظافة العامة": (6_000_000, ("نظافة", "جمع ونقل نفايات")),
    "الحدائق والتشجير": (3_000_000, ("إنشاء حديقة", "تشجير", "صيانة متنزه")),
    "المباني التعليمية": (8_000_000, ("إنشاء مدرسة", "توسعة مجمع تعليمي في", "ترميم مدارس")),
    "التجهيزات الطبية": (11_000_000, ("تجهيز مركز صحي في", "تجهيز مستشفى", "توريد أجهزة أشعة لمستشفى")),
    "تقنية المعلومات": (4_000_000, ("رقمنة أرشيف", "تطوير بوابة", "ربط شبكي لمباني")),
    "الصيانة والتشغيل": (5_000_000, ("صيانة مباني", "تشغيل وصيانة مرافق")),
    "الطاقة المتجددة": (18_000_000, ("إنشاء محطة شمسية في", "تركيب ألواح شمسية في")),
    "الشبكات الكهربائية": (10_000_000, ("إنارة شوارع", "تمديد كابلات", "إنشاء محطة تحويل")),
    "النقل العام": (16_000_000, ("تشغيل حافلات", "إنشاء مواقف حافلات في")),
}
ENTITY_KINDS = {
    "أمانة": ("الطرق والجسور", "تصريف السيول", "النظافة العامة", "الحدائق والتشجير", "الصيانة والتشغيل"),
    "مديرية المياه": ("شبكات المياه", "الصرف الصحي"),
    "إدارة التعليم": ("المباني التعليمية", "تقنية المعلومات", "الصيانة والتشغيل"),
    "مديرية الشؤون الصحية": ("التجهيزات الطبية", "تقنية المعلومات", "الصيانة والتشغيل"),
    "إدارة النقل": ("الطرق والجسور", "النقل العام"),
    "مديرية الطاقة": ("الطاقة المتجددة", "الشبكات الكهربائية"),
}
PLACES = (
    "حي النخيل,حي الروابي,حي الياسمين,حي المروج,حي الفيحاء,حي السلام,حي الواحة,حي الربيع,حي الندى,حي القدس,"
    "وادي السدر,وادي العرعر,وادي الغضا,وادي الأثل,وادي النعام,ضاحية الغدير,ضاحية الأصيل,ضاحية البيان,"
    "قرية أم الطلح,قرية أبو سمرة,قرية العين الزرقاء,قرية الصفراء,مخطط الأمل,مخطط المستقبل,مخطط النسيم,"
    "المدينة الصناعية الأولى,المدينة الصناعية الثانية,الحي الجامعي,السوق القديم,الواجهة البحرية,"
    "الميدان الكبير,الطريق الدائري,المدخل الشمالي,المدخل الجنوبي,البلدة القديمة,روضة الخزامى"
).split(",")
SUPPLIERS = [f"شركة {name} {trade}"
             for name in ("الأفق", "السواعد", "الرمال", "النبراس", "الشاهين", "المدار", "الركن", "السنابل")
             for trade in ("للمقاولات", "للتشغيل والصيانة", "للأنظمة", "المتحدة")]  # fmt: skip

SCHEMA = """
CREATE TABLE regions (region_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE activities (activity_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE entities (entity_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    region_id INTEGER NOT NULL REFERENCES regions);
CREATE TABLE tenders (tender_id INTEGER PRIMARY KEY, reference_no TEXT NOT NULL UNIQUE, title TEXT NOT NULL,
    entity_id INTEGER NOT NULL REFERENCES entities, activity_id INTEGER NOT NULL REFERENCES activities,
    status TEXT NOT NULL, published_on TEXT NOT NULL, deadline TEXT NOT NULL, estimated_value INTEGER NOT NULL,
    bids INTEGER NOT NULL, awarded_value INTEGER, supplier TEXT);
CREATE TABLE projects (project_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    tender_id INTEGER NOT NULL UNIQUE REFERENCES tenders, status TEXT NOT NULL, started_on TEXT NOT NULL,
    planned_end TEXT NOT NULL, contract_value INTEGER NOT NULL, contractor TEXT NOT NULL,
    progress_percent INTEGER NOT NULL);
"""
WIDE_TABLE = """
CREATE TABLE tenders_full_details AS
SELECT tenders.reference_no, tenders.title, entities.name AS entity, entities.kind AS entity_kind,
    regions.name AS region, activities.name AS activity, tenders.status, tenders.published_on, tenders.deadline,
    tenders.estimated_value, tenders.bids, tenders.awarded_value, tenders.supplier,
    projects.name AS project_name, projects.status AS project_status, projects.progress_percent
FROM tenders JOIN entities USING (entity_id) JOIN regions USING (region_id) JOIN activities USING (activity_id)
LEFT JOIN projects USING (tender_id) ORDER BY tenders.tender_id;
"""
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)


@dataclass(frozen=True)
class Database:
    """A finished database: a file, or the same bytes in memory."""

    file: Path | None
    image: bytes = b""

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """Open a connection of one's own that can do nothing but read."""
        where = ":memory:" if self.file is None else f"{self.file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(where, uri=self.file is not None)) as connection:
            if self.file is None:
                connection.deserialize(self.image)
            connection.set_authorizer(_only_reading)
            yield connection


def open_database(file: Path = FILE) -> Database:
    """Return the database in `file`; make it where it is missing, broken or of another version of this script."""
    file = file.resolve()
    if _is_current(file):
        return Database(file)
    image = build()
    try:
        _write(file, image)
    except OSError:  # a read-only folder or a full disk
        return Database(None, image)
    return Database(file)


def build() -> bytes:
    """Return the whole database as the bytes of an SQLite file."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        _fill(connection)
        connection.executescript(WIDE_TABLE)
        connection.execute(f"PRAGMA user_version = {_version()}")
        connection.commit()
        return connection.serialize()


def _version() -> int:
    return zlib.crc32(Path(__file__).read_bytes()) & 0x7FFFFFFF


def _is_current(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            return bool(version == _version() and connection.execute("PRAGMA quick_check").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


def _write(file: Path, image: bytes) -> None:
    # Several processes may do this at once: each replaces the file as a whole by the same bytes.
    handle, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(image)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _only_reading(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


class _Chance:
    """Draws that are the same in every version of Python: `random()` is the one that promises it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - invented data, nothing secret

    def share(self) -> float:
        return self._random.random()

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]


def _fill(connection: sqlite3.Connection) -> None:
    chance = _Chance(SEED)
    connection.executemany("INSERT INTO regions VALUES (?, ?)", enumerate(REGIONS, 1))
    connection.executemany("INSERT INTO activities VALUES (?, ?)", enumerate(ACTIVITIES, 1))
    entities = [
        (kind, region_id, f"{kind} {'بالمنطقة' if region == 'الشرقية' else 'بمنطقة'} {region}")
        for region_id, region in enumerate(REGIONS, 1)
        for kind in ENTITY_KINDS
    ]
    connection.executemany(
        "INSERT INTO entities VALUES (?, ?, ?, ?)",
        [(number, name, kind, region_id) for number, (kind, region_id, name) in enumerate(entities, 1)],
    )
    tenders = _tenders(chance, entities)
    connection.executemany("INSERT INTO tenders VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", tenders)
    connection.executemany("INSERT INTO projects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _projects(chance, tenders))


def _tenders(chance: _Chance, entities: Sequence[tuple[str, int, str]]) -> list[tuple[Any, ...]]:
    days = sorted(chance.below(1095) for _ in range(TENDERS))
    numbers: dict[int, int] = {}
    rows = []
    for tender_id, day in enumerate(days, 1):
        published = TODAY - timedelta(days=1094 - day)
        number = numbers[published.year] = numbers.get(published.year, 0) + 1
        # The larger regions, which come first, put more out to tender.
        entity_id = 1 + int(len(entities) * chance.share() * (0.4 + 0.6 * chance.share()))
        activity = chance.pick(ENTITY_KINDS[entities[entity_id - 1][0]])
        usual, works = ACTIVITIES[activity]
        title = f"{chance.pick(works)} {chance.pick(PLACES)}"
        deadline = published + timedelta(days=20 + chance.below(55))
        estimated = int(usual * (0.15 + 6 * chance.share() ** 4)) // 1000 * 1000
        status = _tender_status(chance, deadline)
        awarded = int(estimated * (0.82 + 0.25 * chance.share())) // 1000 * 1000 if status == AWARDED else None
        supplier = chance.pick(SUPPLIERS) if status == AWARDED else None
        reference = f"T-{published.year}-{number:05d}"
        rows.append((
            tender_id, reference, title, entity_id, list(ACTIVITIES).index(activity) + 1, status,
            published.isoformat(), deadline.isoformat(), estimated, 1 + chance.below(12), awarded, supplier,
        ))  # fmt: skip
    return rows


def _tender_status(chance: _Chance, deadline: date) -> str:
    draw = chance.share()
    if deadline >= TODAY:
        return OPEN if draw < 0.96 else CANCELLED
    if (TODAY - deadline).days < 60:
        return REVIEWED if draw < 0.8 else AWARDED
    return AWARDED if draw < 0.87 else CANCELLED


def _projects(chance: _Chance, tenders: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    awarded = [row for row in tenders if row[5] == AWARDED and row[7] < (TODAY - timedelta(days=150)).isoformat()]
    chosen = sorted(sorted((chance.share(), row[0]) for row in awarded)[:PROJECTS], key=lambda pair: pair[1])
    seen: dict[str, int] = {}
    for project_id, (_, tender_id) in enumerate(chosen, 1):
        row = tenders[tender_id - 1]
        phase = seen[row[2]] = seen.get(row[2], 0) + 1
        started = date.fromisoformat(row[7]) + timedelta(days=40 + chance.below(90))
        length = 120 + chance.below(700)
        planned_end = started + timedelta(days=length)
        status, progress = _progress(chance, (TODAY - started).days / length)
        name = row[2] if phase == 1 else f"{row[2]} المرحلة {phase}"
        yield (project_id, name, tender_id, status, started.isoformat(), planned_end.isoformat(), row[10], row[11],
               progress)  # fmt: skip


def _progress(chance: _Chance, elapsed: float) -> tuple[str, int]:
    draw = chance.share()
    if elapsed >= 1:
        return (DONE, 100) if draw < 0.8 else (LATE, 60 + chance.below(38))
    if draw < 0.06:
        return STOPPED, int(70 * elapsed * chance.share())
    if draw < 0.2:
        return LATE, int(60 * elapsed)
    return RUNNING, max(1, min(99, int(100 * elapsed * (0.8 + 0.3 * chance.share()))))
