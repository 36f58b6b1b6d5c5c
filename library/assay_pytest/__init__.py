"""Evaluations as tests: `@pytest.mark.assay("assay.yaml")` collects an item per case and per gate.

The pytest plugin imports and starts nothing until a test has the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from assay.reports.document.report import Report

    Collected = Any

__all__ = ["assay_run", "pytest_addoption", "pytest_configure", "pytest_pycollect_makeitem", "pytest_unconfigure"]

_MARKER = "assay(spec, agent=None, server=None): run the evaluation of a spec once, with an item per case and per gate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --assay-strict and --assay-output-dir."""
    group = parser.getgroup("assay", "evaluations of LLM agents")
    group.addoption(
        "--assay-strict", action="store_true", help="Fail for every failed case; by default only gates decide."
    )
    group.addoption(
        "--assay-output-dir",
        metavar="DIR",
        help="Folder for the reports of evaluations, with a subfolder per spec; default: no reports.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Collected, Collected]:
    """Add the items of an evaluation to a marked function; ignore other objects."""
    collected = yield
    marks = getattr(obj, "pytestmark", ()) if collected is not None else ()
    mark = next((mark for mark in marks if getattr(mark, "name", "") == "assay"), None)
    if mark is None:
        return collected
    from assay_pytest.items import items_of

    return [*items_of(collector, name, mark), *(collected if isinstance(collected, list) else [collected])]


@pytest.fixture
def assay_run(request: pytest.FixtureRequest) -> Report:
    """Report of the evaluation that the test's marker names: `head` and `rows()`."""
    from assay_pytest.items import report_of

    return report_of(request)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the open reports."""
    from assay_pytest.state import close

    close(config)
