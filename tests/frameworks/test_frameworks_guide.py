"""docs/frameworks.md: each agent of the page runs with its spec, by the command, against its real framework."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.docs.guides import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

PAGE = "docs/frameworks.md"
LINES = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
SHARED = "The agents of this page"


def examples() -> dict[str, dict[str, str]]:
    """Return the blocks of each section, by language."""
    found: dict[str, dict[str, str]] = {}
    for block in blocks(PAGE):
        heading = next(line for line in reversed(LINES[: block.line]) if line.startswith("## ") or line[:4] == "### ")
        found.setdefault(heading.strip("# "), {})[block.language] = block.text
    return found


def agents() -> list[str]:
    """Return the headings of the sections with an agent that can be asked here."""
    # A memory bank of Google Cloud is none: test_adk.py calls its function.
    return [heading for heading in examples() if heading not in (SHARED, "Memory Bank")]


@pytest.mark.parametrize("heading", agents())
def test_the_examples_of_the_page_pass(tmp_path: Path, heading: str) -> None:
    """An agent finds the right tools, is resumed after its stops and remembers them; its tokens are counted."""
    shared, texts = examples()[SHARED], examples()[heading]
    dataset = re.search(r"^dataset: (.*)$", texts["yaml"], re.MULTILINE)
    assert dataset is not None
    for code in (shared["python"], texts["python"]):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name is not None
        (tmp_path / name[1]).write_text(code, encoding="utf-8")
    (tmp_path / "assay.yaml").write_text(texts["yaml"], encoding="utf-8")
    (tmp_path / dataset[1]).write_text(texts.get("jsonl", shared["jsonl"]), encoding="utf-8")
    environment = {**os.environ, "ASSAY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    for command in (["validate", "assay.yaml"], ["run", "assay.yaml", "--output-dir", "out"]):
        done = subprocess.run(
            [sys.executable, "-m", "assay_cli", *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (results,) = (tmp_path / "out").rglob("results.json")
    report = json.loads(results.read_text(encoding="utf-8"))
    assert report["summary"]["overall_status"] == "PASS"
