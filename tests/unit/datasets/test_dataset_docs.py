"""The guide says what the code does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from assay.cases import Case
from assay.datasets.fields import ALIASES
from assay.datasets.json_reader import CONTAINER_KEYS

_GUIDE = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_table_of_fields_is_the_tables_in_the_code() -> None:
    """Every alias is in the guide, in the order in which it is tried, and no other is."""
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
