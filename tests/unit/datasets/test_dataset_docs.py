"""The guide says what the code does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml
from tests.support.docs.guides import blocks

from assay.datasets import FORMAT_NAMES
from assay.datasets.fields.aliases import ALIASES
from assay.datasets.readers.json_reader import CONTAINER_KEYS
from assay.model.case import Case

_GUIDE = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_table_of_fields_is_the_tables_in_the_code() -> None:
    """The guide lists every alias in the order in which it is tried, and no other."""
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", _GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: tuple(re.findall(r"\w+", aliases)) for name, aliases in rows} == dict(ALIASES)


def test_the_container_keys_are_named() -> None:
    """The guide names every key under which a list of cases may stand."""
    text = _GUIDE.read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for key in CONTAINER_KEYS)


def test_the_first_example_is_a_dataset(write: Callable[..., str], read: Callable[..., list[Case]]) -> None:
    """The example at the top of the guide is read as the guide says."""
    example = _GUIDE.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    assert [case.references for case in read(write("qa.jsonl", example))] == [("On 11 October.",), ("في الرياض",)]


def test_the_table_of_formats_is_the_one_in_the_code() -> None:
    """The guide lists every format with its marks and its fields, and no other."""
    table = _GUIDE.read_text(encoding="utf-8").split("## Formats of other tools")[1].split("If `inputs` is")[0]
    names = re.findall(r"^\| `([\w-]+)` \| .+ \| .+ \|$", table, re.MULTILINE)
    assert sorted(set(names) - {"format"}) == sorted(FORMAT_NAMES)


def test_the_example_of_format_and_map(write: Callable[..., str], read: Callable[..., list[Case]]) -> None:
    """The spec in the guide reads a file of DeepEval's as the guide says."""
    example = _GUIDE.read_text(encoding="utf-8").split("**Recognising.**")[1].split("```yaml\n")[1].split("```")[0]
    spec = yaml.safe_load(example)
    name = write(spec["dataset"], [{"input": "Q", "actual_output": "said", "expected_output": "A", "topic": "t"}])
    (case,) = read(name, format=spec["format"], field_map=spec["map"])
    assert (case.category, case.references) == ("t", ("A",))


def test_the_python_of_the_guide_runs(write: Callable[..., str]) -> None:
    """Its blocks, with a file in the encoding and with the field that they name, and a file of the format."""
    write("fragen.csv", "Frage,answer\nWer stöbert?,Anna\n".encode("cp1252"))
    write("goldens.jsonl", [{"input": "Q", "actual_output": "said", "expected_output": "A"}])
    names: dict[str, object] = {}
    for block in blocks("docs/datasets.md", "python"):
        exec(block.text, names)
        for line in block.text.splitlines():
            call, shown, expected = line.partition("  # ")
            if shown and expected.startswith('"'):
                assert eval(call, names) == eval(expected)
    assert getattr(names["case"], "input", "") == "Wer stöbert?"
