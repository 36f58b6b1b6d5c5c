"""Whatever a file holds, reading it ends in cases or in a DatasetError."""

from __future__ import annotations

import contextlib
import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset
from assay.errors import DatasetError
from assay.model.case import case_from_json, case_to_json

_NAMES = ["x.json", "x.jsonl", "x.csv", "x.tsv", "x.yaml", "x.json.gz", "x.jsonl.gz", "x", "x.csv.gz"]
_SEEDS = [
    b'[{"input": "Q", "answer": "\\u0633", "n": [1, {"a": null}]},\n {"question": -1.5e3}]',
    b'{"a": 1, "eval_cases": [{"eval_id": "1", "user_query": "Q", "reference_answer": "A"}], "b": {}}',
    b'{"question": "Q", "answer": "A", "recorded": {"text": "x", "events": ["y"]}}\n{"question": "R", "id": 2}\n',
    b'id,question,answer,tags\n1,"a, ""b""\nc",A,"x|y"\n2,Q,,\n',
    b"question\tanswer\nQ\tA\n",
    b"- question: no\n  answer: |\n    x\n    y\n- {input: [1], turns: [{input: Q}]}\n",
    b"cases:\n- question: 'a'\n  variables: {x: &a 1, y: *a}\nmore: 1\n",
    '\ufeff[{"turns": [{"input": "س", "history": [{"role": "user", "content": "x"}]}]}]'.encode(),
    '{"input": "Q"}'.encode("utf-16"),
]  # fmt: skip
_BITS = [b"\xe2", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b",", b":", b"\n", b"\r", b"\0",
         b"NaN", b"1e999", b"- ", b"? ", b"*a", b"&a", b"!!x", b"---", b"'", b"#", b"\t", b"input"]  # fmt: skip


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    content = bytearray(draw(st.sampled_from(_SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 6))
        content[place : place + length] = draw(st.sampled_from(_BITS) | st.binary(max_size=3))
    return bytes(content)


def _try(name: str, content: bytes, encoding: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        dataset = open_dataset(path, encoding=encoding)
        try:
            info = dataset.check()
        except DatasetError as error:
            _look_at(error, path)
            return
        cases = list(dataset.cases())
        assert len(cases) == info.case_count > 0
        assert len({case.case_id for case in cases}) == len(cases)
        for case in cases:
            assert 1 <= len(case.case_id) <= 200
            written = json.dumps(case_to_json(case), ensure_ascii=False, allow_nan=False).encode()
            assert case_from_json(json.loads(written)).case_id == case.case_id


def _look_at(error: DatasetError, path: Path) -> None:
    assert error.problems
    assert all(problem.message and problem.file == str(path) for problem in error.problems)
    str(error).encode()


@pytest.mark.parametrize("name", _NAMES)
@given(st.binary(max_size=200))
def test_random_bytes(name: str, content: bytes) -> None:
    """Random bytes are refused, and nothing else happens."""
    _try(name, content)


@pytest.mark.parametrize("name", _NAMES)
@given(_damaged())
def test_damaged_files(name: str, content: bytes) -> None:
    """Damaged files are read or refused."""
    _try(name, gzip.compress(content) if name.endswith(".gz") else content)


@given(_damaged(), st.integers(0, 60), st.binary(max_size=4))
def test_damaged_compression(content: bytes, place: int, patch: bytes) -> None:
    """Broken compression is refused as such."""
    packed = bytearray(gzip.compress(content))
    packed[place : place + len(patch)] = patch
    _try("x.jsonl.gz", bytes(packed))


@given(st.sampled_from(_SEEDS), st.sampled_from(["utf-16", "utf-16-le", "utf-32", "cp1256", "latin-1", "utf-7", "x"]))
def test_encodings_that_do_not_fit(content: bytes, encoding: str) -> None:
    """A wrong encoding is refused or gives other letters, and nothing else happens."""
    _try("x.jsonl", content, encoding)


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(["input", "answer", "", "x"]), max_size=3))
def test_mappings(field_map: dict[str, str]) -> None:
    """Whatever the user's mapping says, the answer is cases or a DatasetError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_bytes(_SEEDS[0])
        with contextlib.suppress(DatasetError):
            open_dataset(path, field_map=field_map).check()
