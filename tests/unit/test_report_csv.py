"""The CSV report: stable columns, cells that no spreadsheet computes, texts that every reader gets back."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.reports.report_documents import HOSTILE, agent_error, document, failed, metric, row, score, written

from assay.errors import SetupError
from assay.text.csv_text import csv_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SQL_COLUMNS = (
    "Query #,Timestamp,Question,Category,Expected Table,Status,SQL Generated,Data Rows,Insights,Retrieval Accuracy,"
    "Generation Fidelity,Latency (s),Overall Passed"
)
COLUMNS = (
    "Query #,Timestamp,Case,Question,Category,Status,Answer,Reference,similarity,Latency (s),Overall Passed,"
    "Expected,Message"
)
NINE = ["Total Queries", "Passed", "Failed", "Pass Rate", "Avg Retrieval Accuracy", "Avg Generation Fidelity",
        "Avg Latency (s)", "P50 Latency (s)", "P95 Latency (s)"]  # fmt: skip


def tables(folder: Path, found: Mapping[str, Any], **options: Any) -> tuple[list[list[str]], list[list[str]]]:
    """The lines of both files."""
    results, summary = written(folder, found, "csv", **options)
    assert results.name == "evaluation_results_20261123_164111.csv"
    assert summary.name == "evaluation_summary_20261123_164111.csv"
    return read(results.read_bytes()), read(summary.read_bytes())


def read(content: bytes) -> list[list[str]]:
    """The cells of a file."""
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))


def sql_document(**config: Any) -> dict[str, Any]:
    """A run of the preset sql-agent."""
    scores = {
        "retrieval_accuracy": score(1.0, passed=True, detail={"expected_tables": ["tenders", "projects"]}),
        "generation_fidelity": score(0.0, passed=False),
        "latency": score(1.2345),
        "extra": score(0.25),
    }
    rows = [row("c1", scores=scores, passed=False, category="count", response={"sql": "SELECT 1", "data_rows": 3})]
    units = {"retrieval_accuracy": "%", "generation_fidelity": "%", "latency": "s", "extra": ""}
    results = {name: metric(0.5, kind=name, unit=unit) for name, unit in units.items()}
    report = document(rows, results)
    report["config"] |= {"preset": "sql-agent", **config}
    return report


def test_columns_of_the_preset_sql_agent(tmp_path: Path) -> None:
    """The thirteen stable columns in their order, then those of further metrics; rates with one decimal."""
    rows, summary = tables(tmp_path, sql_document())
    assert ",".join(rows[0]) == SQL_COLUMNS + ",extra,Expected,Message"
    assert rows[1] == [
        "1", "2026-11-23T16:41:11.687Z", "What is it?", "count", "tenders, projects", "success", "SELECT 1", "3",
        "It is that.", "1", "0", "1.2345", "False", "0.25", "", "",
    ]  # fmt: skip
    assert [name for name, _ in summary] == ["Metric", *NINE, "Agent Errors", "No Verdict", "extra"]
    assert [value for _, value in summary[1:]] == [
        "1", "0", "1", "0.0%", "50.0%", "50.0%", "1.23", "1.20", "1.50", "0", "0", "0.5"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("latency_ms", "shown"), [(0.0, "0"), (0.05, "0.00005"), (2000.0, "2"), (1234.5678, "1.2345678"), (None, "")]
)
def test_a_row_has_its_latency_in_full(tmp_path: Path, latency_ms: float | None, shown: str) -> None:
    """No two latencies that differ look alike, and none has an exponent."""
    rows, _ = tables(tmp_path, document([row(latency_ms=latency_ms)]))
    assert rows[1][rows[0].index("Latency (s)")] == shown


def test_columns_of_other_runs(tmp_path: Path) -> None:
    """The common columns and one per metric; what is not known is empty, never 0."""
    undecided = row("c3", passed=None, latency_ms=None, started_at=None, scores={"similarity": score(None)})
    rows, summary = tables(tmp_path, document([row(), agent_error("c2"), undecided]))
    assert ",".join(rows[0]) == COLUMNS
    assert rows[3] == ["3", "", "c3", "What is it?", "", "success", "It is that.", "That.", "", "", "", "", ""]
    assert rows[2][8:] == ["", "", "False", "", "agent error (raised): no route"]
    expected = {"expected_sources": ["faq#9", "faq#8"], "expected_tools": [{"name": "f", "arguments": {"q": 1}}]}
    rows, _ = tables(tmp_path, document([row(expected=expected)]))
    assert rows[1][-2] == 'expected sources: faq#9\nfaq#8\nexpected tools: f({"q": 1})'
    values = {line[0]: line[1] for line in summary}
    assert values["Avg Retrieval Accuracy"] == ""
    assert (values["Agent Errors"], values["No Verdict"], values["similarity"]) == ("1", "1", "0.8")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.80714, "0.8071"),
        (0.0, "0"),
        (1e-17, "0"),
        (0.000012, "1.2e-05"),
        (1e9 + 35, "1000000035"),
        (2e200, "2e+200"),
    ],
)
def test_a_value_of_the_summary_may_have_any_size(tmp_path: Path, value: float, shown: str) -> None:
    """What a formula or a cost comes to is neither 0 because it is small nor a number of two hundred digits."""
    _, summary = tables(tmp_path, document([row()], {"similarity": metric(value)}))
    assert dict(summary)["similarity"] == shown


def test_repeats_share_the_number_of_their_query(tmp_path: Path) -> None:
    """A column Repeat distinguishes the runs of a case; runs without repeats do not have it."""
    rows, _ = tables(tmp_path, document([row("a"), row("a", repeat=2), row("b"), row("b", repeat=2)]))
    assert rows[0][:4] == ["Query #", "Timestamp", "Case", "Repeat"]
    assert [(line[0], line[2], line[3]) for line in rows[1:]] == [
        ("1", "a", "1"), ("1", "a", "2"), ("2", "b", "1"), ("2", "b", "2")
    ]  # fmt: skip
    sql = sql_document(repeats=2)
    assert tables(tmp_path, sql)[0][0][-4:] == ["extra", "Repeat", "Expected", "Message"]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "﹦", "−"])
@pytest.mark.parametrize("before", ["", " ", "\u00a0", "\u3000 ", "\u200b", "\x00"])
def test_no_cell_is_a_formula(sign: str, before: str) -> None:
    """What a spreadsheet may compute begins with an apostrophe, after spaces and invisible characters, too."""
    assert csv_text(f"{before}{sign}=cmd|'/c calc'!A1").startswith("'")


@pytest.mark.parametrize("number", ["-1.5", "+3", "-.5", "-1e-7", " -2"])
def test_numbers_stay_numbers(number: str) -> None:
    """A sign before digits alone is no formula; one before anything more is."""
    assert csv_text(number) == number
    assert csv_text(number + "+A1").startswith("'")


def test_names_of_metrics_and_answers_that_are_no_text_are_no_formulas(tmp_path: Path) -> None:
    """Headings and names of the summary are guarded like cells, and so is SQL that came as another type."""
    report = document([row("=c", scores={"=evil()": score(1.0)}, answer="=1+1")], {"=evil()": metric()})
    rows, summary = tables(tmp_path, report)
    assert "'=evil()" in rows[0]
    assert rows[1][2] == "'=c"
    assert rows[1][6] == "'=1+1"
    assert summary[-1][0] == "'=evil()"


def test_hostile_characters_reach_no_terminal(tmp_path: Path) -> None:
    """Escape sequences, NUL and bidi controls are not in the files; half a surrogate pair does not stop them."""
    report = document([row(HOSTILE, answer=HOSTILE + "\ud800", category=HOSTILE)])
    for path in written(tmp_path, report, "csv"):
        text = path.read_bytes().decode()
        assert not set(text) & set("\x1b\x00\u202e")


def test_the_mark_of_utf_8_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """With the option bom both files begin with it, and without they do not."""
    report = document([row(answer="مناقصة")])
    assert all(path.read_bytes().startswith(b"\xef\xbb\xbf") for path in written(tmp_path, report, "csv", bom=True))
    assert not any(path.read_bytes().startswith(b"\xef") for path in written(tmp_path, report, "csv"))


def test_a_run_without_rows_and_a_part_of_a_run(tmp_path: Path) -> None:
    """No row gives the heading alone; an unfinished run says how many of its rows are there."""
    rows, summary = tables(tmp_path, document([]))
    assert len(rows) == 1
    assert ["Pass Rate", ""] in summary
    partial = document([row()], partial=True, total_count=7)
    assert tables(tmp_path, partial)[1][-1] == ["Partial", "1 of 7 rows"]


def test_a_document_without_a_time_is_refused(tmp_path: Path) -> None:
    """The sentence names what is wrong."""
    with pytest.raises(SetupError, match="timestamp is 'now'"):
        written(tmp_path, {**document([row()]), "timestamp": "now"}, "csv")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n\t",;=+-@ \u202e\x00\x1b'), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_what_is_written_is_read(tmp_path: Path, texts: list[str]) -> None:
    """Python and pandas read every cell as it was written, with the line ends inside it; no cell is a formula."""
    rows = [row(f"c{index}", answer=text, references=[text]) for index, text in enumerate(texts)]
    path, _ = written(tmp_path, document(rows), "csv")
    content = path.read_bytes()
    expected = [csv_text(text) for text in texts]
    assert content.endswith(b"\r\n")
    lines = read(content)
    assert [line[6] for line in lines[1:]] == [line[7] for line in lines[1:]] == expected
    frame = pandas.read_csv(io.BytesIO(content), keep_default_na=False, dtype=str, lineterminator=None)
    assert list(frame["Answer"]) == expected
    assert not any(cell[:1] in ("=", "@", "\t", "\r", "\n") for line in lines for cell in line)


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice (soffice) is not installed: NOT CHECKED here")
def test_a_spreadsheet_reads_the_file(tmp_path: Path) -> None:
    """LibreOffice opens the file and writes the same cells again; a formula stays text."""
    report = document([row("c1", answer="=1+1"), failed("c2", answer='two\nlines, "quoted"')])
    path, _ = written(tmp_path, report, "csv")
    home = f"-env:UserInstallation=file://{tmp_path / 'profile'}"
    convert = ["soffice", home, "--headless", "--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1"]
    subprocess.run([*convert, "--outdir", str(tmp_path / "again"), str(path)], check=True, capture_output=True)
    again = read((tmp_path / "again" / path.name).read_bytes())
    assert [line[6] for line in again] == ["Answer", "'=1+1", 'two\nlines, "quoted"']
