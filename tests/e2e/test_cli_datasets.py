"""`assay datasets`: stored datasets are listed, shown, read back and deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def test_stored_datasets(own_stack: Cli) -> None:
    """A name shows its versions; its cases come back as a file of equal cases; a dataset that runs use stays."""
    assert "no datasets yet" in own_stack.run("datasets", "list").stdout
    own_stack.run("run", "assay.yaml", "--no-progress")
    first = json.loads(own_stack.run("datasets", "show", "qa.jsonl", "--json").stdout)
    assert (first["schema"], first["case_count"], first["run_count"]) == ("assay/stored-dataset/1", 20, 1)
    own_stack.run("run", "assay.yaml", "--no-progress", "--limit", "2")
    listed = json.loads(own_stack.run("datasets", "list", "--name", "qa.jsonl", "--json").stdout)["datasets"]
    assert [(entry["case_count"], entry["note"]) for entry in listed] == [(2, None), (20, None)]
    shown = own_stack.run("datasets", "show", first["dataset_id"]).stdout
    assert f"dataset   {first['dataset_id']}\nname      qa.jsonl\ncases     20\n" in shown

    lines = own_stack.run("datasets", "cases", first["dataset_id"]).stdout
    own_stack.write("copy.jsonl", lines)
    own_stack.run("run", "assay.yaml", "--no-progress", "--dataset", "copy.jsonl")
    copy = json.loads(own_stack.run("datasets", "show", "copy.jsonl", "--json").stdout)
    assert (copy["dataset_id"], copy["run_count"]) == (first["dataset_id"], 2)

    used = own_stack.run("datasets", "delete", "copy.jsonl", "--yes", status=2).stderr
    assert f"dataset {first['dataset_id']} is used by 2 runs: " in used
    runs = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]
    own_stack.run("runs", "delete", *(run["run_id"] for run in runs), "--yes")
    assert "--yes" in own_stack.run("datasets", "delete", "copy.jsonl", status=2).stderr
    planned = json.loads(own_stack.run("datasets", "delete", "copy.jsonl", "--dry-run", "--json").stdout)
    assert (planned["schema"], planned["deleted"]) == ("assay/dataset-deletion/1", False)
    gone = own_stack.run("datasets", "delete", "copy.jsonl", "--yes")
    assert f"deleted dataset {first['dataset_id']}" in gone.stdout
    assert "there is no dataset 'copy.jsonl'" in own_stack.run("datasets", "show", "copy.jsonl", status=2).stderr
    left = json.loads(own_stack.run("datasets", "list", "--json").stdout)["datasets"]
    assert [(entry["name"], entry["case_count"]) for entry in left] == [("qa.jsonl", 2)]
