"""A report that is read back from its file: the same report, or a sentence that says what is wrong with the file."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reports.report_documents import validator
from tests.unit.test_report_document import ROWS, finished

from assay.errors import InvalidInputError
from assay.model.report_settings import REPORTS, ReportSettings
from assay.reports.document.report import report_of_file
from assay.reports.document.schema import problems_of_head, problems_of_row, results_schema
from assay.reports.folder import ReportFolder
from assay.reports.writing import FORMATS, write_formats, write_reports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from assay.model.run import RowResult, Run

JSON = (ReportSettings("json"),)


async def stored_rows() -> AsyncIterator[RowResult]:
    """The rows of the run."""
    for row in ROWS:
        yield row


def write(run: Run, folder: Path, rows: Callable[[], AsyncIterator[RowResult]] = stored_rows) -> ReportFolder:
    """Write the JSON report of a run."""
    return asyncio.run(write_reports(run, rows(), JSON, folder))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The results.json of a run."""
    write(finished(), tmp_path / "first")
    return tmp_path / "first" / "results.json"


def again(path: Path, folder: Path) -> Path:
    """Write the JSON report of a file anew."""
    with report_of_file(path) as report:
        write_formats(report, JSON, ReportFolder(folder, report.run_id))
    return folder / "results.json"


def refused(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(InvalidInputError) as caught, report_of_file(path):
        pass
    return str(caught.value)


def test_every_format_that_a_spec_may_name_has_a_writer() -> None:
    """The names that specs and options take are those of the formats."""
    assert list(REPORTS) == list(FORMATS)


def test_a_report_that_is_read_back_is_the_same(written: Path, tmp_path: Path) -> None:
    """Byte for byte, also where another program has laid the file out anew, with a byte order mark or on one line."""
    assert again(written, tmp_path / "a").read_bytes() == written.read_bytes()
    for index, (indent, encoding) in enumerate([(None, "utf-8"), (4, "utf-8-sig")]):
        other = tmp_path / f"{index}.json"
        other.write_text(json.dumps(json.loads(written.read_text("utf-8")), indent=indent), encoding=encoding)
        assert again(other, tmp_path / f"b{index}").read_bytes() == written.read_bytes()


def test_a_report_without_rows_is_read_back(tmp_path: Path) -> None:
    """No row is no fault."""

    async def nothing() -> AsyncIterator[RowResult]:
        for row in ROWS[:0]:
            yield row

    write(finished(), tmp_path / "a", nothing)
    with report_of_file(tmp_path / "a" / "results.json") as report:
        assert (report.row_count, list(report.rows())) == (0, [])


def test_rows_are_read_side_by_side(written: Path) -> None:
    """Two readings of the rows do not disturb each other."""
    with report_of_file(written) as report:
        pairs = list(zip(report.rows(), report.rows(), strict=True))
    assert [one["case_id"] for one, _ in pairs] == [other["case_id"] for _, other in pairs] == ["c0", "c1", "c2"]


def test_a_file_that_is_cut_off_anywhere_is_refused(written: Path, tmp_path: Path) -> None:
    """Whatever its length, a shortened file gives a sentence with its name, and no report of fewer rows."""
    whole = written.read_bytes()
    cut = tmp_path / "cut.json"
    for length in (*range(0, len(whole) - 6, 97), len(whole) - 6):
        cut.write_bytes(whole[:length])
        assert str(cut) in refused(cut)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(schema="assay/results/2"), "of the form 'assay/results/2'"),
        (lambda document: document.pop("schema"), "no report of a run"),
        (lambda document: document.pop("rows"), "rows is missing"),
        (lambda document: document.pop("summary"), "summary is missing"),
        (lambda document: document["rows"][1].pop("case_id"), "rows[1].case_id is missing"),
        (lambda document: document["rows"][0].update(passed="yes"), "rows[0].passed: must be boolean or null"),
        (lambda document: document["summary"].update(pass_rate="high"), "summary.pass_rate: must be number or null"),
        (
            lambda document: document["run"].update(run_id="x/../../PWNED"),
            "run.run_id: a run's id has 1 to 128 letters",
        ),
        (lambda document: document["run"].update(run_id="x\n::stop-commands::t"), r"not 'x\n::stop-commands::t'"),
    ],
)
def test_a_file_of_another_form_is_refused(written: Path, tmp_path: Path, change: Any, message: str) -> None:
    """The sentence names the field, and of another version what to do."""
    document = json.loads(written.read_text("utf-8"))
    change(document)
    (tmp_path / "other.json").write_text(json.dumps(document), encoding="utf-8")
    assert message in refused(tmp_path / "other.json")


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"schema": 3}', "\x00", "NaN", "\ufeff"])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    """Any other file gives a sentence, never a traceback."""
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    assert str(tmp_path / "x.json") in refused(tmp_path / "x.json")


def test_numbers_that_json_does_not_have_are_refused(written: Path, tmp_path: Path) -> None:
    """NaN in a row is refused with the row's position."""
    text = written.read_text("utf-8").replace('"latency_ms": null', '"latency_ms": NaN', 1)
    (tmp_path / "nan.json").write_text(re.sub(r',\n "digest": "[^"]+"', "", text), encoding="utf-8")
    assert "row 0 is not JSON (NaN is not JSON)" in refused(tmp_path / "nan.json")


def test_a_changed_value_is_refused_by_the_digest(written: Path, tmp_path: Path) -> None:
    """A damaged file may still have the form of reports; without its digest, an intended change is read."""
    text = written.read_text("utf-8").replace('"case_id": "c1"', '"case_id": "c7"', 1)
    changed = tmp_path / "changed.json"
    changed.write_text(text, encoding="utf-8")
    assert "its digest does not match" in refused(changed)
    changed.write_text(re.sub(r',\n "digest": "[^"]+"', "", text), encoding="utf-8")
    with report_of_file(changed) as report:
        assert [row["case_id"] for row in report.rows()] == ["c0", "c7", "c2"]


@pytest.mark.parametrize("before", [0, 200])
def test_rows_with_a_matching_digest_are_checked_when_they_are_read(written: Path, before: int) -> None:
    """The digest shows that nothing was damaged, not that the writer knew the form of this version.

    The first rows are checked when the file is opened.
    """
    content, _, _ = written.read_bytes().partition(b' "digest": ')
    head, start, rows = content.partition(b' "rows": [\n')
    row = rows.splitlines()[0] + b"\n"
    wrong = row.replace(b'"case_id": "c0"', b'"case_id": 7')
    content = head + start + row * before + wrong + rows
    end = f' "digest": "sha256:{hashlib.sha256(content).hexdigest()}"\n}}\n'
    written.write_bytes(content + end.encode())
    message = rf"rows\[{before}\].case_id: must be string"
    if before:
        with report_of_file(written) as report, pytest.raises(InvalidInputError, match=message):
            list(report.rows())
    else:
        with pytest.raises(InvalidInputError, match=message), report_of_file(written):
            pass


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    """The sentence names the path."""
    assert f"{tmp_path / 'no.json'} cannot be read" in refused(tmp_path / "no.json")
    assert f"{tmp_path} cannot be read" in refused(tmp_path)


@pytest.fixture(scope="module")
def results() -> Any:
    """The validator of the published schema."""
    return validator(results_schema())


def test_reports_keep_to_the_published_schema(written: Path, results: Any) -> None:
    """jsonschema finds nothing in the document of a run; the schema itself is sound."""
    assert list(results.iter_errors(json.loads(written.read_text("utf-8")))) == []


OTHER = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3),
    st.just([]), st.just([0.5]), st.just([0.1, 0.2]), st.just({}),
    st.sampled_from(["pass", "error", "PASS", "at_least"]),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A sound document."""
    folder = tmp_path_factory.mktemp("document")
    write(finished(), folder)
    return json.loads((folder / "results.json").read_text("utf-8"))


@given(st.data())
def test_the_checks_agree_with_jsonschema(document: Any, results: Any, data: st.DataObject) -> None:
    """A document with one value replaced or taken away is right for both, or wrong for both."""
    changed = copy.deepcopy(document)
    *above, last = data.draw(st.sampled_from(places(changed)[1:]))
    inner = changed
    for key in above:
        inner = inner[key]
    if data.draw(st.booleans()) and isinstance(inner, dict):
        del inner[last]
    else:
        inner[last] = data.draw(OTHER)
    rows = changed.get("rows", [])
    found = [*problems_of_head(changed), *(["rows"] if "rows" not in changed or not isinstance(rows, list) else [])]
    for index, row in enumerate(rows) if isinstance(rows, list) else ():
        found += problems_of_row(row, f"rows[{index}]")
    valid = results.is_valid(changed)
    assert (found == []) is valid, found


def test_a_second_run_does_not_replace_the_files_of_the_first(tmp_path: Path) -> None:
    """Its files have its id in their names; the first run's own report may be written again."""
    first = finished()
    second = copy.copy(first)
    object.__setattr__(second, "run_id", "r2")
    write(first, tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    reports = write(second, tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before
    assert (reports.written, reports.other_run) == ([tmp_path / "results-r2.json"], "r1")
    assert reports.place("charts/dashboard.png") == tmp_path / "charts-r2" / "dashboard.png"
    assert write(first, tmp_path).written == [tmp_path / "results.json"]


def test_the_report_of_an_older_version_keeps_its_folder(tmp_path: Path) -> None:
    """A folder with a results.json alone belongs to the run that the file names."""
    write(finished(), tmp_path)
    (tmp_path / ".assay-run").unlink()
    assert ReportFolder(tmp_path, "r1").other_run is None
    (tmp_path / ".assay-run").unlink(missing_ok=True)
    assert ReportFolder(tmp_path, "r2").other_run == "r1"


def test_unfinished_files_of_a_killed_process_go(tmp_path: Path) -> None:
    """Those being written stay, and so does any other hidden file."""
    leftover = tmp_path / ".results.json.0123456789abcdef.part"
    other = tmp_path / ".notes.part"
    leftover.touch()
    other.touch()
    folder = ReportFolder(tmp_path, "r1")
    assert (leftover.exists(), other.exists()) == (False, True)
    with folder.text("results.json") as file:
        file.write("{}")
        (being_written,) = tmp_path.glob(".results.json.*.part")
        ReportFolder(tmp_path, "r1")
        assert being_written.exists()
    assert (tmp_path / "results.json").read_text("utf-8") == "{}"
