"""Evaluations in a notebook, in a real kernel: a running event loop, one line of progress, tables, no scripts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

EVALUATION = """
import assay
cases = [{"question": f"q{i}", "answer": f"Q{i}"} for i in range(6)] + [{"question": "x", "answer": "<script>"}]
spec = {"name": "<b>mine</b>", "metrics": ["exact_match", "latency"], "gates": ["pass_rate >= 0.5"]}
result = assay.evaluate(spec, lambda question: question.upper(), dataset=cases)
result
"""
CELLS = (
    EVALUATION,
    "result.summary_to_pandas()[['metric', 'value', 'low', 'high']].round(4).to_dict('records')",
    "result.to_arrow().num_rows, list(result.to_pandas()['exact_match'])",
    "import asyncio; asyncio.get_running_loop().is_running()",
    "stored = assay.list_runs()\nstored",
    "assay.get_run().run.run_id == result.run.run_id, stored[0].summary.pass_rate, len(assay.get_run('latest').rows)",
)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The outputs of each cell."""
    import nbclient  # here: each process of the tests collects them all, and it takes a second
    import nbformat

    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]  # type: ignore[no-untyped-call]
    document = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    with mock.patch.dict(os.environ, {"ASSAY_HOME": str(folder / "home"), "IPYTHONDIR": str(folder / "ipython")}):
        nbclient.NotebookClient(
            document, timeout=90, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        ).execute()
    return [cell.outputs for cell in document.cells]


def shown(outputs: Any, kind: str = "text/plain") -> str:
    """The value that a cell shows, in one kind."""
    (found,) = (one.data for one in outputs if one.output_type == "execute_result")
    return str(found[kind])


def test_an_evaluation_shows_its_verdict_and_metrics(notebook: list[Any]) -> None:
    """As HTML without scripts, in which names are text; with plain text and Markdown beside it."""
    html = shown(notebook[0], "text/html")
    assert "PASS" in html
    assert "&lt;b&gt;mine&lt;/b&gt;" in html
    assert "pass rate 85.7%" in html
    assert re.findall(r"<(script|style|link|img|iframe|b)\b", html) == []
    assert shown(notebook[0], "text/markdown") == "PASS, pass rate 85.7%"
    assert "PASS" in shown(notebook[0])


def test_progress_is_one_output_that_is_renewed(notebook: list[Any]) -> None:
    """Not a line for each update: the last one says that all cases are done."""
    lines = [one.data["text/plain"] for one in notebook[0] if one.output_type == "display_data"]
    assert len(lines) == 1
    assert lines[0].startswith("7/7 cases  85.7% passed")


def test_frames_have_rows_and_metrics(notebook: list[Any]) -> None:
    """One line a metric with its interval, one a row; pandas and Arrow agree."""
    metrics = eval(shown(notebook[1]), {"nan": None})
    assert (metrics[0]["metric"], metrics[0]["value"]) == ("exact_match", 0.8571)
    assert (metrics[0]["low"], metrics[0]["high"]) == (0.4869, 0.9743)
    assert eval(shown(notebook[2])) == (7, [1.0] * 6 + [0.0])


def test_stored_runs_are_read_inside_the_running_loop(notebook: list[Any]) -> None:
    """The list shows each run with its verdict, and a run read back is the one that was made."""
    assert shown(notebook[3]) == "True"
    assert "PASS" in shown(notebook[4], "text/html")
    same, rate, rows = eval(shown(notebook[5]))
    assert (same, round(rate, 3), rows) == (True, 0.857, 7)


def test_a_missing_run_is_a_sentence(cli: Cli) -> None:
    """Without any run there is nothing to show; the error says how to start one."""
    import assay

    with mock.patch.dict(os.environ, {"ASSAY_HOME": str(cli.home)}):
        with pytest.raises(assay.AssayError, match="no runs yet"):
            assay.get_run()
        assert assay.list_runs() == ()
