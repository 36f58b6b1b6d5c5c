"""The Arabic SQL assistant of examples/tenders-sql: what it understands, what it survives, what it may do."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.loader import load_agent
from assay.model.answers.agent_response import AgentStatus, response_from_json
from assay.text.folding import contains_word, fold

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "tenders-sql"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "dataset.json").read_text(encoding="utf-8"))
CATEGORIES = {"count": 3, "region_filter": 2, "aggregation": 3, "distribution": 3, "lookup": 3, "time_filter": 2,
              "value_filter": 1, "out_of_scope": 3}  # fmt: skip
WRONG = {
    "كم أنفقنا على إنارة الشوارع خلال عام 2025؟",
    "أي القطاعات تستحوذ على النصيب الأكبر من المنافسات الحكومية؟",
    "كم مشروعاً فضائياً أطلقته اليابان هذا العام؟",
}


@pytest.fixture(scope="module")
def ask(clean_imports: None) -> Callable[[str], dict[str, Any]]:
    """Return the agent as a function of the question's text."""
    answer = load_agent("agent.py:answer", FOLDER)
    return lambda text: answer(SimpleNamespace(input=text))


@pytest.fixture(scope="module")
def database(ask: Callable[[str], dict[str, Any]]) -> Any:
    """Return the module that makes the database."""
    return importlib.import_module("tenders_database")


def test_the_dataset_has_the_eight_categories() -> None:
    """Twenty cases, each with a table or, out of scope, a refusal."""
    assert Counter(case["category"] for case in CASES) == CATEGORIES
    assert all(("expected_response" if case["category"] == "out_of_scope" else "expected_table") in case
               for case in CASES)  # fmt: skip
    assert len({case["question"] for case in CASES}) == 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["question"][:30])
def test_every_case_is_answered_in_its_way(case: dict[str, Any], ask: Callable[[str], dict[str, Any]]) -> None:
    """In scope the right table is asked, out of scope nothing is; the three known misreadings do the reverse."""
    response = response_from_json(ask(case["question"]))
    in_scope = (case["category"] != "out_of_scope") != (case["question"] in WRONG)
    assert response.status is (AgentStatus.SUCCESS if in_scope else AgentStatus.OUT_OF_SCOPE)
    if in_scope:
        assert response.sql is not None
        assert case.get("expected_table", "projects") in response.sql
    else:
        assert (response.sql, response.data_rows) == (None, 0)
        assert contains_word(fold(response.text), "عذرا")


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("كم عدد المناقصات؟", "SELECT COUNT(*) FROM tenders"),
        ("كم عدد المُناقَصـــات المُلغاة في القصيم",
         "SELECT COUNT(*) FROM tenders JOIN entities USING (entity_id) WHERE status = 'ملغاة' AND region_id = 4"),
        ("كم مناقصة طرحت في مارس 2025", "SELECT COUNT(*) FROM tenders WHERE published_on LIKE '2025-03-%'"),
        ("كم مناقصة طرحت في الربع الأول من عام ٢٠٢٤؟",
         "SELECT COUNT(*) FROM tenders WHERE published_on BETWEEN '2024-01-01' AND '2024-03-31'"),
        ("كم مناقصة طُرحت العام الماضي؟", "SELECT COUNT(*) FROM tenders WHERE published_on LIKE '2025-%'"),
        ("كم مناقصة طُرحت خلال الأسبوعين الماضيين؟",
         "SELECT COUNT(*) FROM tenders WHERE published_on BETWEEN '2026-03-17' AND '2026-03-31'"),
        ("كم مناقصة تغلق خلال الأيام العشرة القادمة؟",
         "SELECT COUNT(*) FROM tenders WHERE deadline BETWEEN '2026-03-31' AND '2026-04-10'"),
        ("كم مناقصة تتجاوز قيمتها نصف مليار؟", "SELECT COUNT(*) FROM tenders WHERE estimated_value > 500000000"),
        ("كم مناقصة قيمتها أكثر من ٥٠٬٠٠٠٬٠٠٠ ريال؟",
         "SELECT COUNT(*) FROM tenders WHERE estimated_value > 50000000"),
        ("كم عدد المناقصات التي لا تزيد قيمتها على مليوني ريال؟",
         "SELECT COUNT(*) FROM tenders WHERE estimated_value < 2000000"),
        ("كم عدد المناقصات بين 5 و10 ملايين ريال؟",
         "SELECT COUNT(*) FROM tenders WHERE estimated_value > 5000000 AND estimated_value < 10000000"),
        ("كم مشروعاً مكتملاً؟", "SELECT COUNT(*) FROM projects WHERE status = 'مكتمل'"),
        ("كم عدد المشاريع لدى إدارة التعليم بمنطقة القصيم؟",
         "SELECT COUNT(*) FROM projects WHERE tender_id IN (SELECT tender_id FROM tenders WHERE entity_id = 21)"),
    ],
)  # fmt: skip
def test_counts_are_the_true_ones(question: str, sql: str, ask: Callable[[str], dict[str, Any]], database: Any) -> None:
    """The agent's figure is that of a query written by hand against the normalised tables."""
    with database.open_database().connect() as connection:
        count = connection.execute(sql).fetchone()[0]
        value = connection.execute(ask(question)["sql"]).fetchone()[0]
    assert value == count
    assert f"{count:,}" in ask(question)["text"]


def test_a_lookup_tells_what_the_row_holds(ask: Callable[[str], dict[str, Any]], database: Any) -> None:
    """The status, the progress and the contractor of a project stand in the answer about it."""
    with database.open_database().connect() as connection:
        row = connection.execute(
            "SELECT name, status, progress_percent, contractor FROM projects WHERE project_id = 77"
        ).fetchone()
    reply = ask(f"ما آخر أخبار مشروع {row[0]}؟")
    assert reply["data_rows"] == 1
    assert all(str(part) in reply["text"] for part in row)


HOSTILE = [
    "",
    " \n\t ",
    "؟؟؟",
    "🚧🏗️ مناقصة 🚀",
    "\u202eكم عدد المناقصات\u202c\u200f",
    "كم عدد المناقصات'; DROP TABLE tenders; --",
    'تفاصيل مشروع «x" OR 1=1; DELETE FROM projects; --»',
    "تفاصيل مشروع «' UNION SELECT sql FROM sqlite_master --»",
    "مشروع «\x00\ud800 اسم»",
    "المناقصات في عام 99999999999999999999",
    "كم مناقصة خلال آخر 999999999999999 سنة",
    "كم مناقصة خلال 999999999999999 سنة القادمة",
    "مناقصات أكثر من 999999999999999 مليار",
    "مناقصات بين و بين 5 و مليون",
    "((((مناقصة [*+?{1,9}",
    "مناقصة " * 200_000,
    "ا" * 1_000_000,
    "مناقصة اكثر " * 150,
    "1" * 1900 + " مناقصة",
]


@pytest.mark.parametrize("question", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_questions_get_an_answer_and_change_nothing(
    question: str, ask: Callable[[str], dict[str, Any]], database: Any
) -> None:
    """Whatever is asked, there is an answer of the right shape, one SELECT at most, and the data stays."""
    response = response_from_json(ask(question))
    assert response.status in (AgentStatus.SUCCESS, AgentStatus.OUT_OF_SCOPE)
    assert response.text
    if response.sql is not None:
        assert response.sql.startswith("SELECT ")
    with database.open_database().connect() as connection:
        assert connection.execute("SELECT COUNT(*) FROM tenders").fetchone() == (4000,)
        assert connection.execute("SELECT COUNT(*) FROM projects").fetchone() == (800,)


def test_a_quoted_name_is_a_value_and_no_sql(ask: Callable[[str], dict[str, Any]]) -> None:
    """A quote in a name is doubled in the reported statement, which still runs and finds nothing."""
    reply = ask("تفاصيل مشروع «x' OR '1'='1»")
    assert "'x'' OR ''1''=''1'" in reply["sql"]
    assert reply["data_rows"] == 0


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_connection_can_only_read(in_memory: bool, database: Any, tmp_path: Path) -> None:
    """Writing, attaching and pragmas are refused by the connection itself, for a file and in memory."""
    made = database.Database(None, database.build()) if in_memory else database.open_database(tmp_path / "t.db")
    with made.connect() as connection:
        for statement in ("DELETE FROM tenders", "DROP TABLE tenders", "CREATE TABLE x (y)", "ATTACH ':memory:' AS x",
                          "PRAGMA query_only = 0", "UPDATE tenders SET status = ''"):  # fmt: skip
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute(statement)
        assert connection.execute("SELECT COUNT(*) FROM tenders_full_details").fetchone() == (4000,)


def test_answers_do_not_change_from_call_to_call_or_thread_to_thread(ask: Callable[[str], dict[str, Any]]) -> None:
    """The same question has the same answer, asked once or by eight threads at a time."""
    questions = [case["question"] for case in CASES]
    alone = [ask(question) for question in questions]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, questions * 4))
    assert together == alone * 4


def test_the_database_is_the_same_whenever_it_is_made(database: Any) -> None:
    """Two builds agree to the last byte."""
    assert database.build() == database.build()


def test_a_missing_broken_or_older_file_is_made_anew(database: Any, tmp_path: Path) -> None:
    """A file that is not this version's database is replaced, and no temporary file is left."""
    file = tmp_path / "أ #?%20.db"
    for content in (None, b"", b"not a database", database.build()[:100_000]):
        if content is not None:
            file.write_bytes(content)
        assert database.open_database(file).file == file
        assert file.read_bytes() == database.build()
    with closing(sqlite3.connect(file)) as older:
        older.execute("PRAGMA user_version = 1")
        older.commit()
    database.open_database(file)
    assert file.read_bytes() == database.build()
    assert list(tmp_path.iterdir()) == [file]


def test_where_no_file_can_be_written_the_database_stays_in_memory(database: Any, tmp_path: Path) -> None:
    """A folder that refuses files does not matter."""
    (tmp_path / "file").write_text("")
    opened = database.open_database(tmp_path / "file" / "tenders.db")
    assert opened.file is None
    with opened.connect() as connection:
        assert connection.execute("SELECT COUNT(*) FROM projects").fetchone() == (800,)


def test_processes_that_start_at_once_all_find_a_whole_database(database: Any, tmp_path: Path) -> None:
    """Four processes make the same file at the same time; each reads 4,000 tenders, and one file is left."""
    file = tmp_path / "tenders.db"
    code = (
        "import sys; from pathlib import Path; from tenders_database import open_database\n"
        "sys.stdin.readline()\n"
        "with open_database(Path(sys.argv[1])).connect() as c:\n"
        "    print(c.execute('SELECT COUNT(*) FROM tenders').fetchone()[0])\n"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(FOLDER)},
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate()[0].strip() for process in racing] == ["4000"] * 4
    assert [process.returncode for process in racing] == [0] * 4
    assert list(tmp_path.iterdir()) == [file]
