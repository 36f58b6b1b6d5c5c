"""`--json` of every command: each document names a schema that docs/report.md lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tests.e2e.test_cli_identity import installation, login
from tests.e2e.test_cli_judge_trust import JUDGE, LABELS, ScriptedJudge
from tests.e2e.test_cli_runs import held_run

from assay.testing.providers import ScriptedProvider
from assay_cli.commands import assay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.e2e.conftest import Cli

__all__ = ["installation"]  # a fixture

GUIDE = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
SCHEMAS = set(re.findall(r"^\| `(assay/[\w-]+/1)` \|", GUIDE, re.MULTILINE))
DATA = {"rows", "attempts", "first_case", "parameters", "dataset"}
"""Fields with the user's own texts, which may be empty."""

STORED = (
    "run --limit 2 --metrics exact_match", "rescore RUN", "compare RUN latest", "plan RUN --difference 0.1",
    "runs list", "runs show RUN", "runs show RUN --case c1", "runs show RUN --failed", "runs show RUN --history c1",
    "runs show RUN --where passed", "runs watch RUN", "runs resume RUN --retry-errors --spec assay.yaml",
    "runs update RUN --note checked",
    "datasets list", "datasets show qa.jsonl", "baseline set RUN main",
    "baseline list", "runs prune --keep 0 --dry-run", "runs delete latest --yes",
)  # fmt: skip
HELD = ("runs list", "runs show RUN", "runs pause RUN", "runs watch RUN", "runs cancel RUN")
LOCAL = (
    "doctor", "metrics list", "metrics show rouge", "validate", "datasets inspect qa.jsonl", "score exact_match a a",
    "score exact_match --file answered.jsonl",
)  # fmt: skip
JUDGED = (
    "judge calibrate --labels labels.csv", "judge calibrations list", "judge drift --baseline base.json --save",
    "judge drift --baseline base.json",
)  # fmt: skip
SHARED = (
    "admin teams create search", "admin teams list", "admin teams retention search --runs 90d", "admin status",
    "admin tokens create ci --team search", "admin tokens list --team search", "admin quotas show search",
    "admin destinations create models https://api.example.org --team search", "admin destinations list --team search",
    "admin audit list", "admin teams delete search --yes --no-wait",
)  # fmt: skip
ELSEWHERE = {
    "bench embedder": "test_cli_bench.py, every night: it measures for a minute",
    "datasets delete": "test_cli_datasets.py, with a dataset that no run uses",
    "admin tokens revoke": "the walk over a shared server, with the id of its own token",
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that have --json."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*path, name))
    elif any(parameter.name == "as_json" for parameter in command.params):
        yield " ".join(path)


def empty_texts(value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields whose value is an empty text."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if name not in DATA:
                yield from empty_texts(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for entry in value:
            yield from empty_texts(entry, f"{path}[]")
    elif value == "":
        yield path


def walk(cli: Cli, lines: Sequence[str], *options: str, run: str = "", status: int | None = 0) -> list[dict[str, Any]]:
    """Call commands with --json and check all documents that they print; return the documents."""
    documents = []
    for line in lines:
        done = cli.run(*line.replace("RUN", run).split(), *options, "--json", status=status)
        text, decoder = done.stdout, json.JSONDecoder()
        while text.strip():
            document, end = decoder.raw_decode(text.lstrip())
            text = text.lstrip()[end:]
            assert isinstance(document, dict), line
            assert next(iter(document)) == "schema", line
            assert document["schema"] in SCHEMAS, line
            if document["schema"] not in ("assay/results/1", "assay/comparison/1"):
                assert list(empty_texts(document)) == [], line
            documents.append(document)
        assert documents, line
    return documents


def test_every_command_is_walked() -> None:
    """A new command with --json belongs into one of the walks."""
    every = set(commands(assay))
    walked = (*STORED, *HELD, *LOCAL, *JUDGED, *SHARED, *ELSEWHERE)
    assert {name for name in every if not any(f"{line} ".startswith(f"{name} ") for line in walked)} == set()
    assert set(ELSEWHERE) <= every


def test_commands_on_stored_runs(own_stack: Cli) -> None:
    """Runs, rows, baselines, comparisons and plans."""
    own_stack.run("run", "--output-dir", "out", "--report", "json,jsonl")
    rows = (own_stack.folder / "out" / "results.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(row)["schema"] for row in rows} == {"assay/row/1"} <= SCHEMAS
    run_id = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    walk(own_stack, STORED, run=run_id)
    (document,) = walk(own_stack, ["validate missing.yaml"], status=2)
    assert document["valid"] is False


def test_commands_on_a_held_run(own_stack: Cli) -> None:
    """A paused run and a cancelled one."""
    *_, cancelled = walk(own_stack, HELD, run=held_run(own_stack), status=None)
    assert cancelled["state"] == "cancelled"


def test_commands_without_an_orchestrator(project: Cli) -> None:
    """Metrics, scores, datasets, specs and the machine."""
    project.write("answered.jsonl", '{"question": "q", "answer": "a", "references": ["a"]}\n')
    walk(project, LOCAL)
    assert project.services() == []


def test_commands_on_judges(judged_project: Cli) -> None:
    """Calibration and drift; the saved file names its schema as well."""
    judged_project.write("labels.csv", LABELS)
    with ScriptedProvider(ScriptedJudge()) as provider:
        judge = (*JUDGE, "--base-url", provider.openai_url)
        walk(judged_project, JUDGED[:1], *judge)
        walk(judged_project, JUDGED[1:2])
        walk(judged_project, JUDGED[2:], *judge)
    saved = json.loads((judged_project.folder / "base.json").read_text("utf-8"))
    assert next(iter(saved)) == "schema"
    assert saved["schema"] in SCHEMAS


def test_commands_on_a_shared_server(installation: tuple[Cli, str, str]) -> None:
    """Teams, tokens, quotas, destinations and the audit log."""
    cli, _, operator = installation
    login(cli, operator, "--tls-ca", "server.pem")
    *_, token = walk(cli, SHARED[:5])
    walk(cli, [f"admin tokens revoke {token['token_id']}", *SHARED[5:]])
    exported = cli.run("admin", "audit", "export").stdout.splitlines()
    assert {json.loads(line)["schema"] for line in exported} == {"assay/audit-entry/1"}
