"""`assay run` on every example as it is, and `assay compare` on those whose variants differ by a known change."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import Cli
from tests.support.reports.charts import drawn_document, layout_problems, texts

from assay.testing.providers import ScriptedProvider

if TYPE_CHECKING:
    from tests.support.processes.fork_server import ForkServer


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODEL_REVISION = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Example:
    """What a run of an example comes to.

    Args:
        rows: Cases, times their repeats.
        passed: Rows that pass.
        values: Metrics of the run.
        failing: Ids of the cases that fail, where a person has given them ids.
        goal_missed: Metrics whose own target is missed, which no gate asks for.
    """

    rows: int
    passed: int
    values: dict[str, float]
    failing: str = ""
    goal_missed: str = ""


RUNS = {
    "product-manual": Example(
        36, 28, {"semantic_similarity": 0.8071, "latency": 0.0},
        "red-ring timer wifi-start filter-reset warranty disposal asthma price",
    ),
    "city-events": Example(
        35, 29,
        {"semantic_similarity": 0.8455, "coverage": 0.9310, "satisfaction": 0.8799, "latency": 0.0},
        "q08 q13 q29 q31 q34 q35",
    ),
    "tenders-sql": Example(
        20, 16, {"retrieval_accuracy": 0.85, "generation_fidelity": 0.95, "latency": 0.0},
    ),
    "encyclopaedia-research": Example(
        40, 20,
        {"hit_rate": 0.875, "mrr": 0.825, "judge_score": 0.61, "combined_score": 0.7054, "tokens": 668.95,
         "latency": 0.0},
        goal_missed="judge_score",
    ),
    "prompt-quality": Example(
        96, 67,
        {"exact_match": 0.6979, "consistency": 0.9123, "quality": 4.0729, "rouge": 0.8490, "latency": 0.003},
        "wrong-doorstep new-address neighbour cancel-order waiting-for-money silent-blender repair-or-money "
        "charged-twice battery-charged thank-you not-urgent ar-defect ar-attached injection",
        "exact_match",
    ),
}  # fmt: skip
OF_FRAMEWORKS = {"product-manual/adk.yaml"}
TOLERANCES = {"latency": 1.0}


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory, shared_home: Path, command_server: ForkServer
) -> dict[str, dict[str, Any]]:
    """Return the reports of all examples, run one after the other."""
    cli, found = Cli(tmp_path_factory.mktemp("examples"), shared_home, command_server), {}
    for name in RUNS:
        done = cli.run("run", EXAMPLES / name / "assay.yaml", "--output-dir", name)
        assert f"report: {name}/results.json" in done.stdout
        assert "failing rows" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("verdict  PASS  all ")
        assert "FAIL" not in done.stdout, "nothing beside the verdict contradicts it"
        found[name] = json.loads((cli.folder / name / "results.json").read_text(encoding="utf-8"))
    return found


def test_every_example_is_run() -> None:
    """A spec that no test runs would rot; those that need a framework of agents are run by tests/frameworks."""
    specs = {str(spec.relative_to(EXAMPLES)) for spec in EXAMPLES.glob("*/*.yaml")}
    assert specs == {f"{name}/assay.yaml" for name in RUNS} | OF_FRAMEWORKS


@pytest.mark.parametrize("name", RUNS)
def test_an_example_comes_to_what_its_readme_says(name: str, reports: dict[str, dict[str, Any]]) -> None:
    """Offline: so many rows, so many of them pass, every gate holds, no row is an error, nothing missing is a 0."""
    example, report = RUNS[name], reports[name]
    summary, rows = report["summary"], report["rows"]
    assert (len(rows), summary["total_count"], summary["passed_count"]) == (example.rows, example.rows, example.passed)
    assert summary["pass_rate"] == pytest.approx(example.passed / example.rows)
    assert summary["gates"]
    assert [gate for gate in summary["gates"] if gate["outcome"] != "pass"] == []
    assert {row["status"] for row in rows} <= {"success", "out_of_scope"}
    assert summary["agent_error_count"] == 0
    assert list(report["results"]) == list(example.values)
    for metric, value in example.values.items():
        found = report["results"][metric]["value"]
        assert found == pytest.approx(value, abs=TOLERANCES.get(metric, 0.002)), metric
    failed = [row["case_id"] for row in rows if row["passed"] is False]
    assert len(failed) == example.rows - example.passed
    assert not example.failing or list(dict.fromkeys(failed)) == example.failing.split()


@pytest.mark.parametrize("name", RUNS)
def test_charts_of_an_example_can_be_read(name: str, tmp_path: Path, reports: dict[str, dict[str, Any]]) -> None:
    """All six, of real runs, with Arabic questions, repeats and categories: no text lies on another, none is a code."""
    charts = drawn_document(tmp_path, reports[name])
    assert {chart: found for chart, sheet in charts.items() if (found := layout_problems(sheet))} == {}
    assert [text for sheet in charts.values() for text in texts(sheet) if "\\u" in text] == []


@pytest.mark.parametrize("name", [name for name in RUNS if RUNS[name].failing])
def test_failing_cases_that_a_readme_names_are_those_that_fail(name: str, reports: dict[str, dict[str, Any]]) -> None:
    """A table of failures in a README has one line for each, in the report's order."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    failed = dict.fromkeys(row["case_id"] for row in reports[name]["rows"] if row["passed"] is False)
    assert named in ([], list(failed))


@pytest.mark.parametrize(("name", "metric"), [("encyclopaedia-research", "judge_score"), ("prompt-quality", "quality")])
def test_recorded_verdicts_are_seen_without_a_judge(name: str, metric: str, reports: dict[str, dict[str, Any]]) -> None:
    """Each row has the verdict that was written for its answer; nothing is asked and nothing is paid."""
    judging = reports[name]["summary"]["judging"]
    assert judging["verdict_count"] == judging["recorded_count"] == RUNS[name].rows
    assert (judging["asked_count"], judging["failed_count"], judging["cost_usd"], judging["canaries"]) == (
        0,
        0,
        None,
        [],
    )
    for row in reports[name]["rows"]:
        verdict = row["scores"][metric]["judgements"][0]
        assert (verdict["judge"], verdict["is_recorded"]) == ("written by hand for this example", True)


@pytest.mark.parametrize("name", RUNS)
def test_every_metric_has_a_value(name: str, reports: dict[str, dict[str, Any]]) -> None:
    """A user who runs an example sees every metric of its preset; vectors are those of the default model."""
    assert all(value is not None for value in RUNS[name].values.values())
    embedded = {"semantic_similarity", "consistency"} & set(RUNS[name].values)
    for metric in embedded:
        assert {row["scores"][metric]["detail"]["revision"] for row in reports[name]["rows"]} == {MODEL_REVISION}


def test_the_sql_agents_failures_are_those_of_its_readme(reports: dict[str, dict[str, Any]]) -> None:
    """One in each of four categories, three for the table and one for the text."""
    rows = reports["tenders-sql"]["rows"]
    failed = {(row["category"], name) for row in rows if not row["passed"]
              for name, score in row["scores"].items() if score["passed"] is False}  # fmt: skip
    assert failed == {
        ("aggregation", "retrieval_accuracy"),
        ("distribution", "retrieval_accuracy"),
        ("lookup", "generation_fidelity"),
        ("out_of_scope", "retrieval_accuracy"),
    }
    assert len({row["category"] for row in rows}) == 8


def test_targets_of_metrics_are_reported_beside_the_gates(reports: dict[str, dict[str, Any]]) -> None:
    """A run may hold its gates and still miss what a metric asks for by itself; the summary says so."""
    for name, example in RUNS.items():
        missed = set(reports[name]["summary"]["failed_criteria"])
        assert missed == set(example.goal_missed.split()), name


TITLES = """
import agent

async def answer(request):
    answered = await agent.answer(request)
    if answered["events"]:
        answered["text"] = ", ".join(event["title"] for event in answered["events"])
    return answered
"""


def compared(cli: Cli, *arguments: str | Path) -> dict[str, Any]:
    """Run and compare variants; return the figures of the metric that decides."""
    document = json.loads(cli.run("compare", *arguments, "--json", "--no-progress", "--fail-on", "never").stdout)
    comparison = document["comparison"]
    figures: list[dict[str, Any]] = comparison["pairs"][0]["metrics"]
    return next(one for one in figures if one["metric"] == comparison["primary"])


def test_a_better_prompt_is_found(shared_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 mails, the prompt that names words gets 23 right and the one without them 4: as in the example's README."""
    folder = EXAMPLES / "prompt-quality"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with ScriptedProvider(import_module("keyword_model").reply) as model:
        found = compared(
            shared_cli,
            *("--prompts", folder / "prompts/triage-first.md", folder / "prompts/triage.md"),
            *("--test-cases", folder / "mails.jsonl", "--model", "openai:keyword-model"),
            *("--set", f"agent.base_url={model.openai_url}"),
            *("--set", f"agent.system_file={folder / 'prompts/system.md'}"),
            *("--set", "metrics=[exact_match, rouge, latency]"),
        )
    assert (found["metric"], found["verdict"]) == ("exact_match", "b_better")
    assert (found["pair_count"], found["win_count"] - found["loss_count"]) == (32, 19)


def test_a_changed_agent_is_found_and_an_equal_one_is_not(shared_cli: Cli) -> None:
    """Of the city-events assistant, one that names titles alone is worse, and a copy is no better and no worse."""
    shutil.copytree(EXAMPLES / "city-events", shared_cli.folder, dirs_exist_ok=True)
    shared_cli.write("titles.py", TITLES)
    shared_cli.write("copy.py", "from agent import answer\n")
    found = compared(shared_cli, "--agents", "agent:answer", "titles:answer")
    assert (found["metric"], found["verdict"]) == ("semantic_similarity", "a_better")
    found = compared(shared_cli, "--agents", "agent:answer", "copy:answer")
    assert (found["verdict"], found["difference"], found["tie_count"]) == ("inconclusive", 0.0, 35)
