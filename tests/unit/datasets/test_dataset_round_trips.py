"""Random cases, written in every container and read back."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset
from assay.model.case import Case
from assay.model.run_spec import CaseSelection

_TEXT = st.text(
    st.one_of(
        st.characters(codec="utf-8", exclude_characters="\0"),
        st.sampled_from("\",;|\t\n\r'[]{}:#-&*!\\ \u2028\u0085\u200fسعودية١٢é"),
    ),
    max_size=30,
)
_QUESTION = _TEXT.filter(lambda text: bool(text.strip()))
_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        _TEXT,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_RECORDS = st.lists(
    st.fixed_dictionaries(
        {"question": _QUESTION, "reference": _TEXT.filter(bool)},
        optional={
            "note": _JSON,
            "variables": st.dictionaries(_TEXT, _JSON, max_size=2),
            "tags": st.lists(_TEXT, max_size=3),
        },
    ),
    min_size=1,
    max_size=6,
)
_ROWS = st.lists(
    st.fixed_dictionaries({"question": _QUESTION, "reference": _TEXT, "note": _TEXT}), min_size=1, max_size=6
)


def _read(name: str, content: bytes) -> list[Case]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        return list(open_dataset(path).cases())


def _json_lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def _yaml(records: list[dict[str, Any]]) -> bytes:
    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    # In quotes, because YAML takes U+0085 for the end of a line outside of them.
    return yaml.dump(records, Dumper=Dumper, allow_unicode=True, default_style='"').encode()


_WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "x.jsonl": _json_lines,
    "ascii.jsonl": lambda records: "".join(json.dumps(record) + "\n" for record in records).encode(),
    "x.json": lambda records: json.dumps(records, ensure_ascii=False, indent=2).encode(),
    "object.json": lambda records: json.dumps({"about": records, "cases": records, "n": 1}).encode(),
    "x.jsonl.gz": lambda records: gzip.compress(_json_lines(records)),
    "utf16.json": lambda records: json.dumps(records, ensure_ascii=False).encode("utf-16"),
}


@pytest.mark.parametrize("name", _WRITERS)
@given(_RECORDS)
def test_json_round_trip(name: str, records: list[dict[str, Any]]) -> None:
    """JSON is read back unchanged, however it is written."""
    cases = _read(name, _WRITERS[name](records))
    assert [case.input for case in cases] == [record["question"] for record in records]
    assert [case.references for case in cases] == [(record["reference"],) for record in records]
    assert [case.variables for case in cases] == [record.get("variables", {}) for record in records]
    assert [case.tags for case in cases] == [tuple(record.get("tags", ())) for record in records]
    assert [case.metadata for case in cases] == [
        {"note": record["note"]} if "note" in record else {} for record in records
    ]


@given(_ROWS, st.sampled_from([",", ";", "|"]), st.sampled_from(["\n", "\r\n"]))
def test_csv_round_trip(rows: list[dict[str, str]], delimiter: str, line_end: str) -> None:
    """CSV is read back unchanged, whatever the separator and the cells."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    cases = _read("x.csv", text.getvalue().encode())
    assert [case.input for case in cases] == [row["question"] for row in rows]
    assert [case.references for case in cases] == [(row["reference"],) if row["reference"] else () for row in rows]
    assert [case.metadata for case in cases] == [{"note": row["note"]} if row["note"] else {} for row in rows]


@given(_RECORDS)
def test_yaml_round_trip(records: list[dict[str, Any]]) -> None:
    """YAML is read back unchanged."""
    texts = [{key: record[key] for key in ("question", "reference")} for record in records]
    cases = _read("x.yaml", _yaml(texts))
    assert [case.input for case in cases] == [record["question"] for record in records]
    assert [case.references for case in cases] == [(record["reference"],) for record in records]


@given(st.lists(_JSON, max_size=8), st.sampled_from([None, 0, 3]))
def test_arrays_are_cut_as_a_whole_read_would(items: list[Any], indent: int | None) -> None:
    """The items of an array are those of a read of the whole file."""
    content = json.dumps([{"input": "Q", "x": item} for item in items] or [{"input": "Q"}], indent=indent).encode()
    data = json.loads(content)
    assert [{"input": case.input, **case.metadata} for case in _read("x.json", content)] == data


@pytest.mark.parametrize("padding", [*range(130_950, 131_076), 262_130, 262_144, 400_000])
def test_items_across_the_pieces_that_are_read(padding: int) -> None:
    """Numbers, texts and escapes stay whole, wherever the file is cut while it is read."""
    content = (
        '{"skipped": "'
        + "x" * padding
        + '", "m": 1234567, "cases": [{"input": -123.5e1, "n": true, "t": "\\u00e9\\n"},\n 7]}'
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_text(content)
        (case,) = open_dataset(path, selection=CaseSelection(limit=1)).cases()
        assert (case.input, case.metadata) == ("-1235.0", {"n": True, "t": "é\n"})
