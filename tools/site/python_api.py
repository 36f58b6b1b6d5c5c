"""The reference of the Python API: the public names of `assay` and `assay_pytest`, from their docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import assay

if TYPE_CHECKING:
    from pathlib import Path


def write_python_api(folder: Path) -> str:
    """Write the page into a folder, and return its name."""
    names = [name for name in assay.__all__ if not name.startswith("_")]
    functions = [name for name in names if not isinstance(getattr(assay, name), type)]
    classes = [name for name in names if isinstance(getattr(assay, name), type)]
    (folder / "python.md").write_text(
        "# Python API\n\n"
        "The public names of `assay`. [Python](../docs/python.md) and [scoring](../docs/scoring.md) are its guides.\n\n"
        + _section("Functions", "autofunction", functions)
        + _section("Classes", "autoclass", classes)
        + "## pytest\n\nThe plugin `assay_pytest`; [pytest](../docs/pytest.md) shows how to use it.\n\n"
        + _directive("autofunction", "assay_pytest.assay_run"),
        encoding="utf-8",
    )
    return "python"


def _section(heading: str, directive: str, names: list[str]) -> str:
    return f"## {heading}\n\n" + "".join(_directive(directive, f"assay.{name}") for name in names)


def _directive(directive: str, name: str) -> str:
    members = ":members:\n" if directive == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{'   ' + members if members else ''}```\n\n"
