"""What services log: one record a line, as text or as JSON, which no value forges."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime

import pytest
from tests.unit.test_unsafe_text import HOSTILE

from assay.process.logs import JsonFormatter, TextFormatter
from assay.telemetry.context import added_fields
from assay.text.unsafe_text import UNSAFE, escaped


def logged(formatter: logging.Formatter, message: str, *values: object, problem: BaseException | None = None) -> str:
    """Return what one record puts into the log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    record = logging.LogRecord("assay", logging.WARNING, __file__, 1, message, values, None)
    if problem is not None:
        record.exc_info = (type(problem), problem, problem.__traceback__)
    handler.emit(record)
    return stream.getvalue()


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_no_value_forges_a_log_line(hostile: str) -> None:
    """A record is one line without control characters, whatever its values."""
    forged = f"c1{hostile}2026-11-22 10:00:00 CRITICAL assay: all data lost"
    text = logged(TextFormatter(), "case %s failed", forged)
    assert text.count("\n") == 1
    assert not UNSAFE.search(text.removesuffix("\n"))
    assert escaped(forged) in text


def test_a_traceback_forges_no_log_line() -> None:
    """Each line of a traceback is indented, so that none begins like a record."""
    try:
        raise ValueError("boom\n2026-11-22 10:00:00,000 CRITICAL assay: all data lost\x1b[2J\r\x85x")
    except ValueError as problem:
        text = logged(TextFormatter(), "failed", problem=problem)
    first, *others = text.removesuffix("\n").split("\n")
    assert first.endswith("WARNING assay: failed")
    assert len(others) >= 4
    assert all(line.startswith("  ") for line in others)
    assert not UNSAFE.search("".join(others))


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_a_record_is_one_json_object(hostile: str) -> None:
    """Its values are fields by the names that the message gives them, of their own types, and as they were."""
    line = logged(
        JsonFormatter(), "ended run: run=%s rows=%d took %.1f s ratio=%.2f in 100%% %s", hostile, 3, 1.0, 0.5, "x"
    )
    assert line.count("\n") == 1
    assert line.isascii()
    record = json.loads(line)
    assert datetime.fromisoformat(record.pop("time")).tzinfo is not None
    assert record == {
        "level": "warning",
        "logger": "assay",
        "message": f"ended run: run={hostile} rows=3 took 1.0 s ratio=0.50 in 100% x",
        "run": hostile,
        "rows": 3,
        "ratio": 0.5,
    }


def test_json_of_named_values_and_of_values_that_json_lacks() -> None:
    """Mappings work as tuples do; None stays null, what is not finite is a text, and no value replaces a field."""
    record = json.loads(logged(JsonFormatter(), "shard: run=%(id)s shard=%(index)s", {"id": "r", "index": 2}))
    assert (record["run"], record["shard"]) == ("r", 2)
    record = json.loads(logged(JsonFormatter(), "level=%s time=%s share=%s none=%s", "forged", "t", float("nan"), None))
    assert (record["level"], record["share"], record["none"]) == ("warning", "nan", None)
    assert record["time"] != "t"


def test_json_holds_the_traceback() -> None:
    """In the same line."""
    try:
        raise ValueError("boom\nsecond line")
    except ValueError as problem:
        line = logged(JsonFormatter(), "failed", problem=problem)
    assert line.count("\n") == 1
    assert "ValueError: boom\nsecond line" in json.loads(line)["exception"]


def test_json_holds_what_the_process_works_on() -> None:
    """Run, case and team of the present task are fields of every line; a value that the message names goes before."""
    with added_fields(run="r1", team="red", case=""):
        with added_fields(case="c1"):
            inside = json.loads(logged(JsonFormatter(), "asking: run=%s", "r2"))
        outside = json.loads(logged(JsonFormatter(), "asked"))
    assert (inside["run"], inside["case"], inside["team"]) == ("r2", "c1", "red")
    assert (outside["run"], outside["team"], "case" in outside) == ("r1", "red", False)
    assert "run" not in json.loads(logged(JsonFormatter(), "idle"))
