"""The references of the site are complete; `make docs` itself fails at a broken link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools.site.contracts import write_contracts
from tools.site.python_api import write_python_api

import assay
from assay.rpc.methods import METHODS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tools


def test_the_contracts_have_every_method_and_a_meaning_for_every_field(tmp_path: Path) -> None:
    """Each method has a heading, and no field or value has an empty cell beside it."""
    pages = [(tmp_path / f"{name}.md").read_text(encoding="utf-8") for name in write_contracts(tmp_path)]
    text = "\n".join(pages)
    headings = [f"({service}.{method})=" for service, methods in METHODS.items() for method in methods]
    assert [heading for heading in headings if heading not in text and heading.startswith("(assay.")] == []
    assert "|  |" not in text


def test_the_python_page_has_every_public_name(tmp_path: Path) -> None:
    """Functions and classes alike, once each."""
    page = (tmp_path / f"{write_python_api(tmp_path)}.md").read_text(encoding="utf-8").splitlines()
    for name in set(assay.__all__) - {"__version__"}:
        assert sum(line.startswith(".. auto") and line.endswith(f":: assay.{name}") for line in page) == 1
