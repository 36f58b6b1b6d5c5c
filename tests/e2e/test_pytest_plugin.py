"""The pytest plugin, in pytest processes of its own: items, outcomes, one run for all workers, nothing when unused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.docs.guides import blocks
from tests.support.processes.fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Cli

    RunPytest = Callable[..., str]

AGENT = """
def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.input + "\\n")
    if request.input == "q3":
        raise RuntimeError("no such order")
    return "nope" if request.input == "q2" else request.input.upper()
"""
OUTCOME = re.compile(r"^(PASSED|FAILED|XFAIL|SKIPPED|ERROR) test_agent\.py::(\S.*?)(?: - .*)?$", re.MULTILINE)
TESTS = """
import pytest

@pytest.mark.assay("assay.yaml")
def test_agent(assay_run):
    assert assay_run.head["summary"]["total_count"] == 20
"""


@pytest.fixture
def tests_of_agent(shared_project: Cli) -> Cli:
    """A folder with an evaluation, one of whose cases fails and one is an error, and a marked test."""
    shared_project.write("agent.py", AGENT)
    shared_project.write("test_agent.py", TESTS)
    return shared_project


@pytest.fixture(scope="module")
def pytest_server() -> Iterator[ForkServer]:
    """Return what forks processes of pytest."""
    server = ForkServer("pytest")
    yield server
    server.close()


@pytest.fixture
def run_pytest(tests_of_agent: Cli, pytest_server: ForkServer) -> RunPytest:
    """Return a function that runs pytest in the folder, checks its exit status and returns its output."""

    def run(*arguments: str, status: int) -> str:
        options = ("-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-rA", "-W", "ignore")
        environment = {key: value for key, value in tests_of_agent.env.items() if not key.startswith("PYTEST_")}
        done = pytest_server.run(
            [*options, *arguments], folder=tests_of_agent.folder, environment=environment, timeout_s=110
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


def outcomes(said: str) -> dict[str, str]:
    """The outcome of each item."""
    return {name: outcome for outcome, name in OUTCOME.findall(said)}


def test_cases_report_and_gates_decide(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """A case that fails is an expected failure with its texts; the gate that holds passes; JUnit has figures."""
    said = run_pytest("--junitxml", "out.xml", status=0)
    found = outcomes(said)
    assert len(found) == 20 + 1 + 1 + 1
    assert (found["test_agent[c2]"], found["test_agent[c3]"]) == ("XFAIL", "XFAIL")
    assert {name for name, outcome in found.items() if outcome != "PASSED"} == {"test_agent[c2]", "test_agent[c3]"}
    assert "RuntimeError: no such order" in said
    assert "got:   nope" in said
    properties = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in ET.parse(tests_of_agent.folder / "out.xml").iter("testcase")
    }
    assert properties["test_agent[c2]"]["exact_match"] == "0.0"
    assert properties["test_agent[gate pass_rate >= 0.9]"]["actual"] == "0.9"


def test_the_guide_shows_what_pytest_prints(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """The test of docs/pytest.md runs as it stands, and its items are named as the guide shows them."""
    (code,), (shown,) = blocks("docs/pytest.md", "python"), blocks("docs/pytest.md", "text")
    lines = [json.dumps({"id": f"refund-{i}", "question": f"q{i}", "answer": f"Q{i}"}) for i in range(1, 3)]
    tests_of_agent.write("qa.jsonl", "\n".join(lines))
    spec = (tests_of_agent.folder / "assay.yaml").read_text("utf-8")
    tests_of_agent.write("assay.yaml", spec.replace("pass_rate >= 0.9", "pass_rate >= 0.85"))
    tests_of_agent.write("agent.py", AGENT.replace("q2", "none"))
    tests_of_agent.write("test_agent.py", code.text)
    found = outcomes(run_pytest(status=0))
    assert sorted(found) == sorted(
        line.partition("::")[2].rpartition(" ")[0].split(" XFAIL")[0] for line in shown.text.splitlines()
    )


def test_strict_fails_at_each_case(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """With --assay-strict the cases decide, too; a failing item is a sentence, without a traceback of the plugin."""
    said = run_pytest("--assay-strict", "-k", "c2 or c3 or c4", status=1)
    assert outcomes(said) == {
        "test_agent[c2]": "FAILED", "test_agent[c3]": "FAILED", "test_agent[c4]": "PASSED",
    }  # fmt: skip
    assert "assay_pytest" not in said


def test_a_gate_that_does_not_hold_fails(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """The gate and the verdict fail with their values; a spec without gates has its verdict alone."""
    spec = (tests_of_agent.folder / "assay.yaml").read_text("utf-8")
    tests_of_agent.write("assay.yaml", spec.replace("pass_rate >= 0.9", "pass_rate >= 0.95"))
    said = run_pytest("-k", "gate or verdict", status=1)
    assert "gate FAIL: pass_rate >= 0.95, actual 0.9" in said
    assert outcomes(said)["test_agent[verdict]"] == "FAILED"
    tests_of_agent.write("assay.yaml", spec.partition("gates:")[0])
    assert "test_agent[verdict]" in outcomes(run_pytest("-k", "gate or verdict", status=0))


def test_workers_share_one_run(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """Under pytest-xdist each question is asked once, reports are kept where asked for, and nothing else is left."""
    before = set(Path(tempfile.gettempdir()).glob(f"assay-pytest-{os.getuid()}-*"))
    said = run_pytest("-n", "3", "--dist", "load", "--assay-output-dir", "kept", status=0)
    assert len(outcomes(said)) == 23
    asked = (tests_of_agent.folder / "asked.txt").read_text("utf-8").split()
    assert sorted(set(asked)) == sorted(f"q{index}" for index in range(20))
    assert len([question for question in asked if question != "q3"]) == 19  # that one is retried
    assert [path.name for path in (tests_of_agent.folder / "kept" / "small").glob("results*")] == ["results.json"]
    assert set(Path(tempfile.gettempdir()).glob(f"assay-pytest-{os.getuid()}-*")) == before


def test_one_spec_with_two_agents_is_two_runs(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """Each marker has the report of its own agent, and long ids of cases stay apart."""
    lines = [json.dumps({"id": "c" * 150 + str(i), "question": f"q{i}", "answer": f"Q{i}"}) for i in range(2)]
    tests_of_agent.write("qa.jsonl", "\n".join(lines))
    tests_of_agent.write(
        "test_agent.py",
        "import pytest\n"
        "def right(question):\n    return question.upper()\n"
        "def wrong(question):\n    return 'nope'\n"
        "@pytest.mark.assay('assay.yaml', agent=right)\ndef test_right(assay_run): pass\n"
        "@pytest.mark.assay('assay.yaml', agent=wrong)\ndef test_wrong(assay_run): pass\n",
    )
    found = outcomes(run_pytest(status=1))
    assert (found["test_right[verdict]"], found["test_wrong[verdict]"]) == ("PASSED", "FAILED")
    assert sum(name.startswith("test_wrong[c") and outcome == "XFAIL" for name, outcome in found.items()) == 2


def test_repeats_are_one_item(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """The runs of a case are folded, and the sentence says how many failed."""
    spec = (tests_of_agent.folder / "assay.yaml").read_text("utf-8")
    tests_of_agent.write("assay.yaml", spec + "repeats: 3\n")
    said = run_pytest("-k", "c2", status=0)
    assert outcomes(said) == {"test_agent[c2]": "XFAIL"}
    assert "3 of 3 runs failed" in said


def test_a_marker_or_spec_that_is_wrong_is_a_sentence(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """Collection fails with all problems, before anything is run."""
    wrong = {
        '"nothing.yaml"': "nothing.yaml: there is no such file",
        "": "takes the path of a spec",
        '"assay.yaml", repeat=3': "takes the path of a spec",
        '"bad.yaml"': "unknown metric 'exact_macth'; did you mean 'exact_match'?",
    }
    spec = (tests_of_agent.folder / "assay.yaml").read_text("utf-8")
    tests_of_agent.write("bad.yaml", spec.replace("exact_match", "exact_macth"))
    for number, marker in enumerate(wrong):
        tests_of_agent.write(f"test_wrong_{number}.py", TESTS.replace('"assay.yaml"', marker))
    said = run_pytest(status=2)
    parts = re.split(r"^_+ ERROR collecting (\S+) _+$", said, flags=re.MULTILINE)
    of_file = dict(zip(parts[1::2], parts[2::2], strict=True))
    for number, sentence in enumerate(wrong.values()):
        assert sentence in of_file[f"test_wrong_{number}.py"]
    assert not (tests_of_agent.folder / "asked.txt").exists()


def test_running_again_until_it_passes_is_refused(tests_of_agent: Cli, run_pytest: RunPytest) -> None:
    """An evaluation that is retried until its gates hold is no evaluation."""
    tests_of_agent.write("conftest.py", "def pytest_configure(config):\n    config.option.reruns = 2\n")
    assert "`repeats` in its spec" in run_pytest("-k", "verdict", status=1)


def test_without_the_marker_nothing_is_imported(tests_of_agent: Cli) -> None:
    """The plugin alone imports nothing of Assay, and adds no item."""
    tests_of_agent.write(
        "test_agent.py",
        "import sys\ndef test_plain():\n"
        "    assert sorted(name for name in sys.modules if name.split('.')[0] in ('assay', 'grpc', 'yaml')) == []\n",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"], cwd=tests_of_agent.folder,
        env=tests_of_agent.env, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert outcomes(done.stdout) == {"test_plain": "PASSED"}, done.stdout + done.stderr
