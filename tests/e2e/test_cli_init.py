"""`assay init` and `assay validate`, as subprocesses: what is written runs as it is."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

import pytest
import yaml

from assay.metrics import METRICS
from assay.specs.presets import PRESETS

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def test_every_preset_has_a_template() -> None:
    """No preset without a folder, no folder without a preset."""
    folder = resources.files("assay_cli") / "templates"
    assert {item.name for item in folder.iterdir() if item.is_dir()} == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_written_is_valid_and_runs(shared_cli: Cli, preset: str) -> None:
    """Each preset's files validate, and run offline with gates that hold; here without metrics that embed."""
    done = shared_cli.run("init", preset, "--dir", "new")
    assert "next: assay run new/assay.yaml" in done.stdout
    assert shared_cli.run("validate", "new/assay.yaml").stdout.endswith("valid\n")
    spec = yaml.safe_load((shared_cli.folder / "new" / "assay.yaml").read_text(encoding="utf-8"))
    listed = [next(iter(item)) if isinstance(item, dict) else item for item in spec.get("metrics", ())]
    names = listed or list(PRESETS[preset].metrics)
    light = [name for name in names if name in METRICS and not METRICS[name].info.needs_embedder]
    gates = [gate for gate in spec["gates"] if gate.partition(" ")[0].partition(".")[0] in light]
    done = shared_cli.run(
        "run",
        "new/assay.yaml",
        "--metrics",
        ",".join(light),
        "--set",
        f"gates={json.dumps(gates)}",
        "--json",
        "--report",
        "json",
    )
    rows = json.loads(done.stdout)["rows"]
    assert 5 <= len(rows) / spec.get("repeats", 1) <= 8
    assert not [row for row in rows if row["status"] == "error"]


def test_the_default_runs_whole(shared_cli: Cli) -> None:
    """Without a preset it is prompt-benchmark, in this folder; it runs with the real model and its gates hold."""
    done = shared_cli.run("init")
    assert "sql-agent" in done.stdout
    report = json.loads(shared_cli.run("run", "assay.yaml", "--json").stdout)
    assert report["summary"]["passed"] == 5
    assert all(gate["outcome"] == "pass" for gate in report["summary"]["gates"])


def test_nothing_is_overwritten_without_force(cli: Cli) -> None:
    """Every file that exists is named and nothing is written; with --force all are."""
    cli.write("assay.yaml", "mine")
    cli.write("agent.py", "mine")
    done = cli.run("init", "rag", status=2)
    assert "assay.yaml: exists" in done.stderr
    assert "agent.py: exists" in done.stderr
    assert (cli.folder / "assay.yaml").read_text(encoding="utf-8") == "mine"
    assert not (cli.folder / "qa.jsonl").exists()
    cli.run("init", "rag", "--force")
    assert "preset: rag" in (cli.folder / "assay.yaml").read_text(encoding="utf-8")
    assert not list(cli.folder.glob(".*.part"))


def test_wrong_names_are_refused(cli: Cli) -> None:
    """An unknown preset is answered with the nearest, a file is no folder, a list writes nothing."""
    assert "did you mean 'sql-agent'" in cli.run("init", "sql_agnt", status=2).stderr
    cli.write("file", "")
    assert "file: is not a folder" in cli.run("init", "--dir", "file", status=2).stderr
    assert all(preset in cli.run("init", "--list").stdout for preset in PRESETS)
    assert not (cli.folder / "assay.yaml").exists()


def test_validate_as_json_stays_json_whatever_the_agents_code_does(cli: Cli) -> None:
    """What the agent's module prints is no result; what it raises is told with the spec's name and its traceback."""
    cli.write("assay.yaml", "dataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\nmetrics: [rouge]\n")
    cli.write("qa.jsonl", '{"question": "q", "answer": "a"}\n')
    cli.write("agent.py", "print('hello')\ndef answer(request):\n    return ''\n")
    done = cli.run("validate", "assay.yaml", "--json")
    assert json.loads(done.stdout) == {"valid": True, "problems": [], "agent_traceback": None, "warnings": []}
    assert "hello" in done.stderr
    assert "qa.jsonl: 1 case," in cli.run("validate", "assay.yaml").stdout
    cli.write("agent.py", "raise RuntimeError('no key')\n")
    found = json.loads(cli.run("validate", "assay.yaml", "--json", status=2).stdout)
    assert "RuntimeError: no key" in found["agent_traceback"]
    assert [(problem["file"], problem["field"]) for problem in found["problems"]] == [("assay.yaml", "agent.target")]
    done = cli.run("validate", "assay.yaml", "--set", "agent.target=agent", status=2)
    assert done.stderr.count("agent.target") == 1, "one mistake is told once"


def test_validate_tells_all_that_is_wrong_in_one_go(cli: Cli) -> None:
    """Problems of the spec, of its dataset and of its agent's code together, with file, line and field."""
    cli.write("agent.py", "def answer(request):\n    return ''\n")
    cli.write("qa.jsonl", '{"question": "a"}\n{"question": ["b"]}\n')
    cli.write(
        "assay.yaml",
        "dataset: qa.jsonl\nagent: {adapter: python, target: 'agent:anwser', timeout: 99h}\nmetrics: [exact_mach]\n",
    )
    problems = json.loads(cli.run("validate", "assay.yaml", "--json", status=2).stdout)["problems"]
    places = {(problem["file"].rpartition("/")[2], problem["line"], problem["field"]) for problem in problems}
    assert places == {
        ("assay.yaml", 3, "metrics[0]"),
        ("assay.yaml", 2, "agent.timeout"),
        ("qa.jsonl", 2, "record 2, question"),
        ("assay.yaml", None, "agent.target"),
    }
