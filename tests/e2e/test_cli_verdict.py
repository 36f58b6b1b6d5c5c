"""The verdict of `assay run`: no pass without evidence, on the console, in reports, exit status and the files of CI."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
import yaml

import assay
from assay.specs.presets import PRESETS

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


SPEC: dict[str, Any] = {
    "name": "verdicts",
    "dataset": "qa.jsonl",
    "agent": {"adapter": "python", "target": "agent:answer", "retries": 0},
    "metrics": ["exact_match", "rouge", "latency"],
}
AGENT = """
def answer(request):
    number = int(request.input)
    if number >= {answers}:
        raise RuntimeError("401 invalid key")
    return "right" if number < {right} else "wrong"
"""


def asked(cli: Cli, *, answers: int, right: int | None = None, **spec: Any) -> Cli:
    """Write a spec of 20 cases of which the agent answers some, and some of these right."""
    lines = [json.dumps({"id": f"c{i}", "question": str(i), "answer": "right"}) for i in range(20)]
    cli.write("qa.jsonl", "\n".join(lines))
    cli.write("agent.py", AGENT.format(answers=answers, right=answers if right is None else right))
    cli.write("assay.yaml", {**SPEC, **spec})
    return cli


def ended(cli: Cli, status: int) -> tuple[str, dict[str, Any], list[str]]:
    """Run; return the verdict in the last line of the console, the summary of the report, and all lines."""
    shutil.rmtree(cli.folder / "out", ignore_errors=True)  # a report replaces none of another run
    lines = cli.run("run", "assay.yaml", "--output-dir", "out", status=status).stdout.splitlines()
    summary = json.loads((cli.folder / "out/results.json").read_text("utf-8"))["summary"]
    assert summary["exit_status"] == status
    verdict, end, said = lines[-1].partition("  exit status ")
    assert end + said == f"  exit status {status}"
    assert verdict in lines[:-1]  # said before the reports were written, too
    return verdict, summary, lines


@pytest.mark.parametrize("gates", [[], ["latency.p95 < 4"], ["agent_errors <= 100%"]])
def test_an_agent_that_always_raises_never_passes(shared_cli: Cli, gates: list[str]) -> None:
    """Whatever is gated, 20 of 20 failed calls are no pass; the console says so in its last line."""
    spec: dict[str, Any] = {"metrics": ["rouge", "latency"], "gates": gates, "max_agent_errors": "99%"}
    last, summary, _ = ended(asked(shared_cli, answers=0, **spec), 3)
    assert last.startswith("verdict  INCOMPLETE  the agent failed on 20 of 20 rows")
    assert summary["overall_status"] == "INCOMPLETE"
    assert summary["latency"]["answer_count"] == 0
    assert "PASS" not in last


def test_a_gate_that_fails_is_the_verdict_everywhere(shared_cli: Cli) -> None:
    """Console, report and exit status agree: FAIL, with the gate and its value."""
    spec: dict[str, Any] = {"metrics": [{"exact_match": {"threshold": 0.1}}], "gates": ["pass_rate >= 90%"]}
    last, summary, lines = ended(asked(shared_cli, answers=20, right=10, **spec), 1)
    assert last == "verdict  FAIL  pass_rate >= 90% does not hold: 0.5  pass rate 50.0% (10 of 20)"
    assert (summary["overall_status"], summary["reasons"]) == ("FAIL", ["pass_rate >= 90% does not hold: 0.5"])
    assert not [line for line in lines if "PASS" in line]


def test_without_gates_the_thresholds_are_the_gates(shared_cli: Cli) -> None:
    """A missed threshold is exit status 1, and the report lists thresholds as what decided."""
    last, summary, lines = ended(asked(shared_cli, answers=20, right=10), 1)
    assert last == "verdict  FAIL  exact_match >= 0.85 does not hold: 0.5  pass rate 50.0% (10 of 20)"
    assert any(line.startswith("threshold  FAIL  exact_match >= 0.85  actual 0.5 [") for line in lines)
    assert [(gate["expression"], gate["source"]) for gate in summary["gates"]] == [("exact_match >= 0.85", "threshold")]


def test_with_gates_only_these_decide(shared_cli: Cli) -> None:
    """A missed threshold that gates nothing is printed as that, and the run passes."""
    last, summary, lines = ended(asked(shared_cli, answers=20, right=10, gates=["pass_rate >= 0.4"]), 0)
    assert last == "verdict  PASS  the gate holds  pass rate 50.0% (10 of 20)"
    assert "threshold missed, but no gate asks for it: exact_match 0.5 < 0.85" in lines
    assert summary["notes"] == ["threshold missed, but no gate asks for it: exact_match 0.5 < 0.85"]
    assert not [line for line in lines if "FAIL" in line]


def test_means_over_survivors_say_so_and_hold_no_gate(shared_cli: Cli) -> None:
    """15 of 20 failed calls leave a perfect mean of five rows, which decides only where the spec allows it."""
    asked(shared_cli, answers=5, gates=["rouge >= 0.9"])
    last, _, lines = ended(shared_cli, 3)
    assert last.startswith("verdict  INCOMPLETE  the agent failed on 15 of 20 rows, more than max_agent_errors (5%)")
    assert any(line.startswith("rouge") and "1.0000 (5 of 20 rows)" in line for line in lines)
    asked(shared_cli, answers=5, gates=["rouge >= 0.9"], max_agent_errors="80%")
    last, _, lines = ended(shared_cli, 0)
    assert last == "verdict  PASS  the gate holds  pass rate 25.0% (5 of 20)"
    assert [
        line for line in lines if line.startswith("gate  PASS  rouge >= 0.9  actual 1") and "mean over 5 of 20" in line
    ]
    assert "the agent failed on 15 of 20 rows" in lines


def test_nothing_that_decides_is_said(shared_cli: Cli) -> None:
    """A run without gates and thresholds has no verdict and exit status 0, and says how to get one."""
    last, summary, _ = ended(asked(shared_cli, answers=20, right=0, metrics=["latency"]), 0)
    assert last.startswith("verdict  NO_CRITERIA  no gate and no threshold decides: add `gates` to the spec")
    assert summary["overall_status"] == "NO_CRITERIA"


def test_judged_metrics_without_a_judge_are_no_pass(shared_cli: Cli) -> None:
    """Where every metric with a threshold has no data, a latency that was measured is no evidence."""
    last, summary, _ = ended(asked(shared_cli, answers=20, metrics=["quality", "judge_score", "latency"]), 3)
    assert (summary["overall_status"], last.split()[1]) == ("INCOMPLETE", "INCOMPLETE")
    last, summary, _ = ended(asked(shared_cli, answers=20, metrics=["quality", "judge_score"]), 3)
    said = "no metric was computed on any row: quality, judge_score (no judge)"
    assert last == f"verdict  NO_DATA  {said}  no row has a verdict"


def test_rates_that_are_no_rates_are_refused(cli: Cli) -> None:
    """A percentage without its sign is a mistake that never or always holds: nothing is started."""
    asked(cli, answers=20, gates=["pass_rate >= 85", "agent_errors <= 1"], max_agent_errors=5)
    said = cli.run("run", "assay.yaml", status=2).stderr
    assert "gates[0]: pass_rate is a share from 0 to 1: write 0.85 or 85%" in said
    assert "gates[1]: agent_errors is a share from 0 to 1, and 1 is every row: write 0.01 or 1%" in said
    assert "max_agent_errors: must be a share of the rows such as 0.05 or 5%, not 5" in said
    assert not cli.home.exists()


def test_a_stored_run_keeps_its_verdict(shared_cli: Cli) -> None:
    """`assay runs show` prints the verdict of `assay run`, as text and as JSON."""
    last, summary, _ = ended(asked(shared_cli, answers=5, gates=["rouge >= 0.9"]), 3)
    run_id = json.loads(shared_cli.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    assert shared_cli.run("runs", "show", run_id).stdout.splitlines()[-1] == last
    shown = json.loads(shared_cli.run("runs", "show", run_id, "--json").stdout)["summary"]
    assert {key: shown[key] for key in ("overall_status", "exit_status", "reasons", "notes")} == {
        key: summary[key] for key in ("overall_status", "exit_status", "reasons", "notes")
    }
    assert shared_cli.run("runs", "watch", run_id, status=3).stdout.splitlines()[-1] == f"{last}  exit status 3"


def test_python_has_the_same_verdict(shared_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`assay.evaluate` returns the verdict, why, and the exit status of the command."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_cli.home))
    cases = [{"question": f"q{number}", "answer": "right"} for number in range(4)]
    spec: dict[str, Any] = {"metrics": ["exact_match"], "agent": {"retries": 0}}
    found = assay.evaluate({**spec, "gates": ["pass_rate > 0.5"]}, agent=lambda request: "wrong", dataset=cases)
    assert (found.passed, found.verdict, found.exit_status) == (False, "FAIL", 1)
    assert found.reasons == ("pass_rate > 0.5 does not hold: 0",)
    found = assay.evaluate(spec, agent=lambda request: "right", dataset=cases)
    assert (found.passed, found.verdict, found.exit_status) == (True, "PASS", 0)
    with pytest.raises(assay.errors.SpecError, match="share from 0 to 1"):
        assay.evaluate({**spec, "gates": ["pass_rate >= 2"]}, agent=lambda request: "right", dataset=cases)


def test_a_sql_agent_that_is_always_wrong_fails(shared_cli: Cli) -> None:
    """A preset brings gates that can fail: its own, where the spec has none."""
    shared_cli.run("init", "sql-agent", "--dir", "new")
    path = shared_cli.folder / "new" / "assay.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    del spec["gates"]
    shared_cli.write("new/assay.yaml", spec)
    shared_cli.write("new/agent.py", "def answer(request):\n    return 'no'\n")
    lines = shared_cli.run("run", "new/assay.yaml", status=1).stdout.splitlines()
    assert lines[-1] == "verdict  FAIL  pass_rate >= 0.85 does not hold: 0  pass rate 0.0% (0 of 6)  exit status 1"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_template_shows_the_bound_on_agent_errors(cli: Cli, preset: str) -> None:
    """What `assay init` writes names the bound and keeps its default."""
    cli.run("init", preset)
    text = (cli.folder / "assay.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["max_agent_errors"] == "5%"


def test_the_last_line_is_the_verdict_of_the_command(cli: Cli) -> None:
    """A comparison says its part without a status of its own, and the last line has that of run and comparison."""
    asked(cli, answers=20, gates=["pass_rate >= 0.9"])
    cli.run("run", "assay.yaml", "--no-progress")
    (baseline,) = json.loads(cli.run("runs", "list", "--json").stdout)["runs"]
    against = ("run", "assay.yaml", "--no-progress", "--against", baseline["run_id"])
    same = cli.run(*against).stdout.splitlines()
    assert same[-1] == "verdict  PASS  the gate holds  pass rate 100.0% (20 of 20)  exit status 0"
    undecided = "exact_match of this run against the baseline is inconclusive (too few cases differ)"
    assert f"comparison: undecided: {undecided}" in same
    asked(cli, answers=20, right=10, gates=["pass_rate >= 0.4"])
    worse = cli.run(*against, status=1).stdout.splitlines()
    assert worse[-1] == "verdict  REGRESSION  against the baseline; the run by itself: PASS  exit status 1"
    assert any(line.startswith("this run is worse than the baseline on exact_match: -0.50 [") for line in worse)
    (lost,) = [line for line in worse if line.startswith("  lost 10: ")]
    command = shlex.split(lost.rpartition("; ")[2])
    assert "passed" in cli.run(*command[1:]).stdout or "failed" in cli.run(*command[1:]).stdout
    quiet = cli.run(*against[:2], "--quiet", *against[3:], status=1).stdout.splitlines()
    assert (quiet[-3].startswith("this run is worse"), quiet[-1]) == (True, worse[-1])
    asked(cli, answers=20, right=10, gates=["pass_rate >= 0.9"])
    both = cli.run(*against, status=1).stdout.splitlines()
    assert both[-1].startswith("verdict  FAIL  pass_rate >= 0.9 does not hold")
    assert both[-3].endswith("(the run itself: FAIL, exit status 1)")


OPTIONS = ("--junit", "ci/junit.xml", "--summary", "ci/summary.md", "--comment-file", "ci/comment.md", "--annotations")


def test_a_failing_run_says_so_to_ci(shared_project: Cli) -> None:
    """Files for every reader, annotations before the verdict in the last line, and the report makes the same of it."""
    shared_project.write("agent.py", "def answer(request):\n    return 'no'\n")
    done = shared_project.run("run", *OPTIONS, "--report", "json", "--output-dir", "out", "--no-progress", status=1)
    lines = done.stdout.splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert errors[0].startswith("::error file=assay.yaml,line=5,title=gate FAIL%3A pass_rate >= 0.9::actual 0")
    assert len(errors) == 10
    assert lines[-1].startswith("verdict  FAIL")
    junit = (shared_project.folder / "ci/junit.xml").read_bytes()
    assert ElementTree.fromstring(junit).get("failures") == "21"
    summary = (shared_project.folder / "ci/summary.md").read_text("utf-8")
    assert summary.startswith("\n## FAIL: `small`\n")
    assert (shared_project.folder / "ci/comment.md").read_text(
        "utf-8"
    ) == f"<!-- assay:small:default -->{summary.removesuffix(chr(10))}"
    again = shared_project.run("report", "out/results.json", *OPTIONS)
    assert again.stdout.splitlines() == errors
    assert (shared_project.folder / "ci/junit.xml").read_bytes() == junit
    assert (shared_project.folder / "ci/summary.md").read_text("utf-8") == summary * 2
    assert sorted(path.name for path in (shared_project.folder / "out").iterdir()) == [".assay-run", "results.json"]


def test_a_file_that_cannot_be_written_costs_no_answer(project: Cli) -> None:
    """The agent is not asked: the command ends before a run is started."""
    project.write("agent.py", "def answer(request):\n    raise SystemExit('asked')\n")
    done = project.run("run", "--junit", "qa.jsonl/junit.xml", status=3)
    assert "qa.jsonl is not a folder): choose another place with --junit" in done.stderr
    assert json.loads(project.run("runs", "list", "--json").stdout)["runs"] == []


def test_annotations_stay_out_of_a_document(project: Cli) -> None:
    """--json prints one document, and nothing beside it."""
    done = project.run("run", "--json", "--annotations", status=2)
    assert "leave out --annotations or --json" in done.stderr
