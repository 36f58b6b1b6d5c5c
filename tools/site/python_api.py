"""The reference of the Python API: its public names, from their docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import assay
import assay.errors
import assay.types

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
        + "## Types\n\nThe types that these functions and classes take and return, in `assay.types`.\n\n"
        + "".join(
            _directive("autoclass" if _is_class(name) else "autodata", f"assay.types.{name}")
            for name in assay.types.__all__
        )
        + "## Errors\n\nThe errors that they raise, in `assay.errors`.\n\n"
        + "".join(_directive("autoclass", f"assay.errors.{name}") for name in assay.errors.__all__)
        + "## pytest\n\nThe plugin `assay_pytest`; [pytest](../docs/pytest.md) shows how to use it.\n\n"
        + _directive("autofunction", "assay_pytest.assay_run"),
        encoding="utf-8",
    )
    return "python"


def _is_class(name: str) -> bool:
    return isinstance(getattr(assay.types, name), type)


def _section(heading: str, directive: str, names: list[str]) -> str:
    return f"## {heading}\n\n" + "".join(_directive(directive, f"assay.{name}") for name in names)


def _directive(directive: str, name: str) -> str:
    options = "   :members:\n" if directive == "autoclass" else ""
    options += "   :inherited-members:\n" if name == "assay.Client" else ""
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{options}```\n\n"
