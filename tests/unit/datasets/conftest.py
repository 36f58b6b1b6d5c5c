"""Files for dataset tests, and what reading them gives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.errors import DatasetError
from assay.model.case import Case, case_from_json, case_to_json
from assay.wire.case import case_from_wire, case_to_wire

Write = Callable[[str, str | bytes | list[Any] | dict[str, Any]], str]
Refusal = Callable[..., list[str]]
Wired = Callable[..., list[Case]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a dataset into the working folder and return its name; lists become JSON Lines or JSON by the suffix."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, content: str | bytes | list[Any] | dict[str, Any]) -> str:
        if isinstance(content, list) and name.endswith(".jsonl"):
            content = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in content)
        elif isinstance(content, list | dict):
            content = json.dumps(content, ensure_ascii=False)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write_file


@pytest.fixture
def read() -> Callable[..., list[Case]]:
    """Return a function that gives the cases of a file, which are the same while it is checked and afterwards."""

    def read_file(path: str | os.PathLike[str], **options: Any) -> list[Case]:
        dataset = open_dataset(path, **options)
        taken: list[Case] = []
        dataset.check(taken.append)
        cases = list(dataset.cases())
        assert taken == cases
        return cases

    return read_file


@pytest.fixture
def refusal() -> Refusal:
    """Return a function that gives the sentences with which a file is refused."""

    def refuse(path: str | os.PathLike[str], **options: Any) -> list[str]:
        with pytest.raises(DatasetError) as caught:
            open_dataset(path, **options).check()
        return [str(problem) for problem in caught.value.problems]

    return refuse


@pytest.fixture
def wired(read: Callable[..., list[Case]]) -> Wired:
    """Return a function that gives the cases of a file after they went over the wire and through the store's JSON."""

    def read_file(path: str | os.PathLike[str], **options: Any) -> list[Case]:
        cases = read(path, **options)
        assert [case_from_json(json.loads(json.dumps(case_to_json(case)))) for case in cases] == cases
        sent = [case_from_wire(case_to_wire(case)) for case in cases]
        assert sent == cases
        return sent

    return read_file
