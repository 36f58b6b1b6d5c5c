"""`assay compare` and `assay plan`, as they are typed: over files without a service, and over stored runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.reports.document.report import report_of_file

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli
    from tests.support.processes.fork_server import ForkServer


@pytest.fixture(scope="session")
def two_runs(shared_home: Path, tmp_path_factory: pytest.TempPathFactory, command_server: ForkServer) -> Path:
    """Return a folder with the reports of two runs over 20 cases: `right` passes all, `wrong` fails the first ten."""
    from tests.e2e.conftest import Cli, with_project

    cli = with_project(Cli(tmp_path_factory.mktemp("compared"), shared_home, command_server))
    cli.run("run", "--no-progress", "--report", "json", "--output-dir", "right", "--label", "kind=right")
    cli.write(
        "agent.py",
        "def answer(request):\n    return request.input.upper() if int(request.input[1:]) >= 10 else ''\n",
    )
    cli.run("run", "--no-progress", "--report", "json", "--output-dir", "wrong", status=1)
    return cli.folder


@pytest.fixture
def compared(cli: Cli, two_runs: Path) -> Cli:
    """Return the command in a folder with both reports, and without any service."""
    for name in ("right", "wrong"):
        shutil.copytree(two_runs / name, cli.folder / name)
    return cli


def test_files_are_compared_without_a_service(compared: Cli) -> None:
    """A regression ends with 1 and is said first; the other way round it is an improvement; nothing is started."""
    worse = compared.run("compare", "right/results.json", "wrong/results.json", status=1)
    assert "significantly worse" in worse.stdout
    assert "exact_match" in worse.stdout
    better = compared.run("compare", "wrong/results.json", "right/results.json")
    assert "better" in better.stdout
    for runs in (["right/results.json"], ["right/results.json", "wrong/results.json"]):
        named = compared.run("compare", *runs, "--baseline", "wrong/results.json", "--all-pairs")
        assert named.stdout == better.stdout
    assert "--baseline names a run" in compared.run("compare", "--baseline", "latest", status=2).stderr
    assert not (compared.home / "run").exists()


def test_stored_runs_and_files_give_the_same_figures(
    two_runs: Path, shared_home: Path, command_server: ForkServer
) -> None:
    """A run compared by its id and by its file is the same run."""
    from tests.e2e.conftest import Cli

    cli = Cli(two_runs, shared_home, command_server)
    ids = []
    for name in ("right", "wrong"):
        with report_of_file(two_runs / name / "results.json") as report:
            ids.append(report.run_id)
    by_file = json.loads(cli.run("compare", "right/results.json", "wrong/results.json", "--json", status=1).stdout)
    by_id = json.loads(cli.run("compare", ids[0], ids[1], "--json", status=1).stdout)
    assert _figures(by_id) == _figures(by_file)
    assert list(map(_of_run, by_id["individual_results"])) == list(map(_of_run, by_file["individual_results"]))
    mixed = json.loads(cli.run("compare", ids[0], "wrong/results.json", "--json", status=1).stdout)
    assert _figures(mixed) == _figures(by_file)


def _of_run(individual: dict[str, Any]) -> Any:
    results = {name: {**one, "interval": None} for name, one in individual["results"].items()}  # it comes from the rows
    parts = ("timestamp", "test_cases_count", "config", "summary")
    return sorted(individual), results, [individual[part] for part in parts]


def _figures(document: dict[str, Any]) -> Any:
    pair = document["comparison"]["pairs"][0]
    return [(one["metric"], one["p"], one["difference"], one["verdict"]) for one in pair["metrics"]]


def test_the_reports_of_a_comparison(compared: Cli) -> None:
    """Every format is written, and named."""
    formats = "json,markdown,csv,charts,html"
    command = ("compare", "right/results.json", "wrong/results.json", "--format", formats, "--output-dir", "out")
    said = compared.run(*command, "--fail-on", "never").stdout
    names = {path.name for path in (compared.folder / "out").iterdir()}
    for name in ("comparison_results.json", "comparison_report.md", "comparison_plots.png", "comparison.html"):
        assert name in names
        assert name in said


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("right/results.json",), 2, "a comparison needs at least two runs"),
        (("right/results.json", "right/results.json"), 2, "is given 2 times"),
        (("right/results.json", "missing.json"), 2, "missing.json cannot be read"),
        (("right/results.json", "wrong/results.json", "--primary", "exact_mach"), 2, "did you mean 'exact_match'"),
        (("right/results.json", "wrong/results.json", "--alpha", "2", "--margin", "-1"), 2, "2 problems"),
        (("right/results.json", "wrong/results.json", "--format", "pdf"), 2, "pdf"),
        (("right/results.json", "wrong/results.json", "--where", "outcome:"), 2, "--where"),
    ],
)
def test_what_cannot_be_compared(compared: Cli, arguments: tuple[str, ...], status: int, said: str) -> None:
    """A sentence says what is wrong, before anything is computed or written."""
    done = compared.run("compare", *arguments, status=status)
    assert said in done.stderr
    assert not (compared.folder / "assay-reports").exists()


def test_a_plan(compared: Cli) -> None:
    """Cases, calls and time by number of repeats, and what the figures rest on."""
    said = compared.run("plan", "wrong/results.json", "--difference", "0.1").stdout
    assert "exact_match: 0.5 over 20 cases" in said
    assert "assumed to correlate" in said
    document = json.loads(compared.run("plan", "wrong/results.json", "--difference", "0.1", "--json").stdout)
    assert document["sizes"][0]["cases"] > 100
    assert "at upper limit" in said
    assert document["sizes"][0]["cases_upper"] > document["sizes"][0]["cases"]
    assert "--difference" in compared.run("plan", "wrong/results.json", "--difference", "0", status=2).stderr
    clustered = ("plan", "wrong/results.json", "--difference", "0.1", "--cluster")
    assert "no case of the runs has a category" in compared.run(*clustered, "category", status=2).stderr
    assert "must be category, or tag:NAME" in compared.run(*clustered, "page", status=2).stderr


def test_a_run_without_variation_plans_nothing(compared: Cli) -> None:
    """Twenty right answers do not say how much further ones vary: no size is made up, in text or JSON."""
    command = ("plan", "right/results.json", "--difference", "0.1")
    assert "exact_match cannot be planned from this run" in compared.run(*command).stdout
    document = json.loads(compared.run(*command, "--json").stdout)
    assert document["reason"] == "no_variation"
    assert {(size["cases"], size["cases_upper"], size["detectable"]) for size in document["sizes"]} == {(None,) * 3}


def test_needed_cases_are_for_a_chosen_difference(compared: Cli) -> None:
    """Ten of 20 cases disagree: a difference of 0.2 needs more of them, and none is computed where none was chosen."""
    found = {}
    for options in ((), ("--difference", "0.2"), ("--max-drop", "0.2")):
        command = ("compare", "wrong/results.json", "right/results.json", *options, "--json")
        comparison = json.loads(compared.run(*command).stdout)["comparison"]
        found[options] = comparison["pairs"][0]["metrics"][0]["needed_case_count"]
    assert list(found.values()) == [None, 103, 103]


def test_baselines(two_runs: Path, shared_home: Path, command_server: ForkServer) -> None:
    """A run is named, compared by its name, listed and forgotten."""
    from tests.e2e.conftest import Cli

    cli = Cli(two_runs, shared_home, command_server)
    run_id = json.loads((two_runs / "right" / "results.json").read_text("utf-8"))["run"]["run_id"]
    assert f"named-in-a-test is run {run_id}" in cli.run("baseline", "set", run_id, "--name", "named-in-a-test").stdout
    assert "significantly worse" in cli.run("compare", "named-in-a-test", "wrong/results.json", status=1).stdout
    assert run_id in cli.run("baseline", "list").stdout
    other = json.loads((two_runs / "wrong" / "results.json").read_text("utf-8"))["run"]["run_id"]
    taken = cli.run("baseline", "set", other, "named-in-a-test").stdout
    assert f"named-in-a-test was run {run_id} of spec " in taken
    assert "add --with-baselines" in cli.run("runs", "delete", other, "--yes", status=2).stderr
    pruned = cli.run("runs", "prune", "--older-than", "0m", "--dry-run").stdout
    assert f"baseline named-in-a-test points to run {other}: it is kept" in pruned
    assert other not in pruned.partition("to be deleted")[0]
    assert "its run is kept" in cli.run("baseline", "delete", "named-in-a-test").stdout
    assert "there is no baseline" in cli.run("baseline", "delete", "named-in-a-test", status=2).stderr


def test_a_run_against_a_baseline(two_runs: Path, shared_cli: Cli) -> None:
    """The comparison is printed, a regression ends with 1 though all gates hold, and each form for CI has it."""
    from tests.e2e.conftest import with_project

    cli = with_project(shared_cli)
    cli.write("agent.py", (two_runs / "agent.py").read_text("utf-8"))
    spec = (cli.folder / "assay.yaml").read_text("utf-8").replace("pass_rate >= 0.9", "pass_rate >= 0.1")
    cli.write("assay.yaml", spec)
    against = ("--against", two_runs / "right" / "results.json")
    outputs = ("--junit", "junit.xml", "--comment-file", "comment.md", "--annotations")
    done = cli.run("run", "--no-progress", "--report", "json", *against, *outputs, status=1)
    assert "PASS" in done.stdout
    assert "significantly worse" in done.stdout
    assert "::error title=regression::" in done.stdout
    comment = (cli.folder / "comment.md").read_text("utf-8")
    assert "significantly worse" in comment
    assert comment.splitlines()[1] == "## REGRESSION: `small`"
    assert 'classname="assay.small.comparison"' in (cli.folder / "junit.xml").read_text("utf-8")
    assert cli.run("run", "--no-progress", "--quiet", *against, "--max-drop", "1", "--fail-on", "never").returncode == 0
    other = cli.run("run", "--no-progress", "--report", "json", *against, "--primary", "exact_mach", status=3)
    assert "PASS" in other.stdout
    assert "not compared with the baseline" in other.stdout
    alone = cli.run("run", "--no-progress", "--max-drop", "0.02", "--strict", status=2)
    assert "--max-drop and --strict say how a run is compared: name the baseline with --against" in alone.stderr
    missing = cli.run("run", "--no-progress", "--against", "missing.json", status=2)
    assert "missing.json cannot be read" in missing.stderr


def test_variants_are_run_and_compared(shared_project: Cli) -> None:
    """Two agents over the spec's cases, one after the other in one command; then the noise floor of the spec."""
    cli = shared_project
    cli.write("other.py", "def answer(request):\n    return 'no'\n")
    words = ("compare", "--agents", "agent:answer", "other:answer", "--no-progress", "--format", "json")
    done = cli.run(*words, "--output-dir", "out", status=1)
    assert "agent:answer" in done.stdout
    document = json.loads((cli.folder / "out" / "comparison_results.json").read_text("utf-8"))
    assert [one["name"] for one in document["comparison"]["variants"]] == ["agent:answer", "other:answer"]
    assert (cli.folder / "out" / "evaluation_2.json").exists()
    floor = cli.run("compare", "--aa", "--no-progress").stdout
    assert "noise floor: stored for this spec and dataset" in floor
    cli.run("run", "--no-progress", "--report", "json", "--output-dir", "one")
    cli.run("run", "--no-progress", "--report", "json", "--output-dir", "two")
    shown = json.loads(cli.run("compare", "one/results.json", "two/results.json", "--json").stdout)
    floor = shown["comparison"]["pairs"][0]["metrics"][0]["noise_floor"]
    assert (floor["flip_rate"], floor["case_count"]) == (0.0, 20)
    assert "nothing to compare: name two runs" in cli.run("compare", status=2).stderr
    assert "or variants to run, not both" in cli.run("compare", "one/results.json", "--aa", status=2).stderr


def test_variants_stop_early(shared_project: Cli) -> None:
    """An agent that is always wrong loses by the rule; the console, the runs and every report say when and why."""
    cli = shared_project
    cli.write("other.py", "def answer(request):\n    return 'no'\n")
    words = ("compare", "--agents", "agent:answer", "other:answer", "--stop-early", "always-valid", "--no-progress")
    done = cli.run(*words, "--set", "agent.concurrency=1", "--format", "json", "--output-dir", "out", status=1)
    assert "always-valid decided after 8 of 20 cases" in done.stdout
    assert "stopped early by always-valid: A asked " in done.stdout
    document = json.loads((cli.folder / "out" / "comparison_results.json").read_text("utf-8"))
    stopping = document["comparison"]["stopping"]
    assert (stopping["verdict"], stopping["case_count"]) == ("a_better", 8)
    with report_of_file(cli.folder / "out" / "evaluation_2.json") as report:
        stopped = report.head["summary"]["stopped_early"]
        reported = [int(row["case_id"][1:]) for row in report.rows()]
    assert stopped["asked_count"] == len(reported) == report.head["summary"]["total_count"]
    assert reported == sorted(reported)
    assert stopped["sentence"] in cli.run("runs", "show", report.run_id).stdout
    run_ids = [one["run_id"] for one in document["comparison"]["variants"]]
    assert "decided after 8 of 20 cases" in cli.run("compare", *run_ids, status=1).stdout
    for arguments, said in (
        (("compare", *run_ids, "--stop-early", "five-looks"), "applies to two variants that this command runs"),
        ((*words, "--cluster", "category", "--primary", "consistency"), "2 problems"),
        (("compare", "--agents", "a:b", "c:d", "--stop-early", "often"), "unknown rule 'often'"),
    ):
        assert said in cli.run(*arguments, status=2).stderr
