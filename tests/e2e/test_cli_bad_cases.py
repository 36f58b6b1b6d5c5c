"""Wrong records of a dataset, as users of the command meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def test_wrong_records_are_left_out_only_when_asked(shared_project: Cli) -> None:
    """Refused with 2; with --on-bad-case skip the rest is run, the records are listed, and the exit status is 3."""
    with (shared_project.folder / "qa.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"id": "bad", "question": ["x"]}\nnonsense\n')
    refused = shared_project.run("run", "assay.yaml", status=2)
    assert "qa.jsonl:21: record 21, question: must be a string" in refused.stderr
    done = shared_project.run("run", "assay.yaml", "--on-bad-case", "skip", "--output-dir", "out", status=3)
    assert "left out: " in done.stderr
    assert "qa.jsonl:22: record 22: is not valid JSON" in done.stderr
    assert (
        done.stdout.splitlines()[-1]
        == "verdict  INCOMPLETE  2 bad records of the dataset left out  pass rate 100.0% (20 of 20)  "
        "20 of 22 cases: 2 bad records left out  exit status 3"
    )
    report = json.loads(Path(shared_project.folder, "out", "results.json").read_text(encoding="utf-8"))
    assert len(report["rows"]) == 20
    assert "2 records are wrong and left out" in " ".join(report["run"]["dataset"]["warnings"])
    failing = ("--on-bad-case", "skip", "--set", 'gates=["pass_rate > 1"]')
    shared_project.run("run", "assay.yaml", *failing, status=1)
    checked = shared_project.run("validate", "assay.yaml", "--on-bad-case", "skip", status=3)
    assert "a run would leave out the bad records" in checked.stderr


def test_what_no_metric_reads_is_a_warning(shared_project: Cli) -> None:
    """A case's own threshold for a metric that the run does not compute is told before the run, and stands in it."""
    with (shared_project.folder / "qa.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"id": "own", "question": "q", "answer": "Q", "thresholds": {"exact_macth": 1}}\n')
    said = "record 21, thresholds.exact_macth: holds a threshold that nothing is compared with"
    assert said in shared_project.run("validate", "assay.yaml").stdout
    (warning,) = json.loads(shared_project.run("validate", "assay.yaml", "--json").stdout)["warnings"]
    assert (warning["line"], warning["field"]) == (21, "record 21, thresholds.exact_macth")
    done = shared_project.run("run", "assay.yaml", "--output-dir", "out")
    assert f"warning: qa.jsonl:21: {said}" in done.stderr
    assert "did you mean 'exact_match'?" in done.stderr
    report = json.loads(Path(shared_project.folder, "out", "results.json").read_text(encoding="utf-8"))
    assert said in " ".join(report["run"]["dataset"]["warnings"])
