"""The tests, folders and packages that the documents name exist. `make docs` checks the links between pages."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from tests.support.docs import guides
from tests.support.docs.guides import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [ROOT / page for page in guides.PAGES]
READERS_OWN = {"test_agent.py"}
"""Test files that a guide has its readers write."""
TEST_FILES = [path.name for path in (ROOT / "tests").rglob("test_*.py")]


def test_every_test_that_a_page_names_exists() -> None:
    """A file name is that of one test file; a path below tests/ is one of a file or folder."""
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names = set(re.findall(r"\btest_\w+\.py\b", text)) - READERS_OWN
        missing += [f"{page}: {name}" for name in names if TEST_FILES.count(name) != 1]
        paths = re.findall(r"`(tests/[\w./]+)`", text)
        missing += [f"{page}: {path}" for path in paths if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    """A row that a line break or a missing bar joins to its neighbour is found."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for table in re.findall(r"^[ ]*\|.*\n[ ]*\|[-:| ]+\|\n(?:.+\n)*", text, re.MULTILINE):
        rows = [row for row in table.splitlines() if not row.startswith("<!--")]
        assert {len(re.split(r"(?<!\\)\|", row.strip())) for row in rows} == {rows[1].count("|") + 1}, rows[0]


DECISIONS = ROOT / "docs/decisions"
STATUS = re.compile(r"# (\d+)\. .*\n\nStatus: (?:accepted\.(?: Replaces (.*)\.)?|superseded by \[.*)\n")


def test_every_decision_has_a_status_and_every_number_a_place() -> None:
    """The index lists each decision, and leads from each number that was folded to its successor."""
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    folded: dict[int, int] = {}
    for page in DECISIONS.glob("[0-9]*.md"):
        status = STATUS.match(page.read_text(encoding="utf-8"))
        assert status is not None, page.name
        number = int(status[1])
        assert page.name.startswith(f"{number:04d}-")
        assert f"| [{number}. " in index
        folded |= {int(old): number for old in re.findall(r"\d+", status[2] or "")}
    rows = re.findall(r"^\| (\d+)\. .* \| \[(\d+)\]", index, re.MULTILINE)
    assert folded == {int(old): int(new) for old, new in rows}


GUIDES = [
    page for page in PAGES if page.parent in (ROOT / "docs", ROOT / "docs/metrics") and page.name != "glossary.md"
]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda page: page.name)
def test_every_guide_links_to_the_glossary_once(guide: Path) -> None:
    """A reader finds the glossary with one click, and a guide does not repeat the link."""
    assert guide.read_text(encoding="utf-8").count("glossary.md") == 1


PACKAGES = sorted(
    path.parent
    for folder in ("library", "cli", "services")
    for path in (ROOT / folder).rglob("__init__.py")
    if len(path.relative_to(ROOT / folder).parts) == (4 if folder == "services" else 3)
)
"""The packages one level below `assay`, `assay_cli` and each service."""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_architecture_names_every_package(package: Path) -> None:
    """Who looks for the place where something happens finds each folder in one table."""
    table = (
        (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("## Where things are")[1].split("\n## ")[0]
    )
    first = [re.findall(r"`([\w./]+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("|")]
    named = {name.rpartition("/")[2] for names in first for name in names}
    assert package.name in named


def test_the_architecture_shows_the_floors_of_the_import_contract() -> None:
    """The stair of the page is the contract that `make check` enforces, floor by floor."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    shown = page.split("## The floors of the library")[1].split("```text\n")[1].split("```")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["assay"])
    assert [floor.split() for floor in shown.splitlines()] == [layer.split(" | ") for layer in layers]
