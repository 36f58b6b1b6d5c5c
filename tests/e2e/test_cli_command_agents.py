"""Agents that are programs, and answers that are recorded: `adapter: command` and `assay run --record`."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import psutil
from tests.support.reports.same_scores import PROGRAM

import assay

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

AGENT = """\
def answer(request):
    number = int(request.input[1:])
    if number % 10 == 3:
        raise RuntimeError("out of luck")
    return {"text": f"A{number % 7}", "usage": {"total_tokens": number},
            "sources": [{"title": f"page {number % 5}"}, "other"], "retrieved": [], "output": {"n": [number, None]},
            "tool_calls": [{"name": "search", "arguments": {"n": number}}],
            "metadata": {"repeat": request.repeat}}
"""
METRICS = ["exact_match", "rouge", "tokens", "hit_rate", "tool_calls", "latency"]


def project(cli: Cli) -> list[dict[str, Any]]:
    """Write an agent as a function and as a program, and fifty cases; return the two agents."""
    cases = [
        {"id": f"c{n}", "question": f"q{n}", "references": [f"A{n % 5}", "B\u2028"], "expected_sources": ["page 1"],
         "expected_tools": [{"name": "search", "arguments": {"n": n}}], "category": f"g{n % 3}", "tags": ["t"],
         "weight": n + 1, "note": "kept", "variables": {"a": [1]}}
        for n in range(50)
    ]  # fmt: skip
    cli.write("qa.jsonl", "\n".join(map(json.dumps, cases)))
    cli.write("agent.py", AGENT)
    cli.write("program.py", PROGRAM)
    command = {"adapter": "command", "target": [sys.executable, "program.py"], "processes": 2, "retries": 0}
    return [{"adapter": "python", "target": "agent:answer", "retries": 0}, command]


def scores(cli: Cli, folder: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what the rows of a report say, and the aggregates."""
    report = json.loads((cli.folder / folder / "results.json").read_text())
    names = ("case_id", "repeat", "status", "passed", "answer", "latency_ms", "scores")
    return [{name: row[name] for name in names} for row in report["rows"]], report["results"]


def without_times(found: tuple[list[Any], dict[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    """Return the same without what is measured anew in each run."""
    rows, results = found
    for row in rows:
        del row["latency_ms"], row["scores"]["latency"]
    return rows, {name: result for name, result in results.items() if name != "latency"}


def test_a_program_scores_as_a_function_does_and_so_does_its_recording(shared_project: Cli) -> None:
    """The same logic as function and as program gives the same scores, and replayed answers give them again."""
    cli = shared_project
    function, command = project(cli)
    base = {"name": "r", "dataset": "qa.jsonl", "metrics": METRICS, "repeats": 2, "max_agent_errors": "100%"}
    for name, agent in (("function", function), ("command", command)):
        cli.write("assay.yaml", {**base, "agent": agent})
        done = cli.run("run", "--output-dir", name, "--record", f"{name}.jsonl", status=None)
        said = f"answers: 50 cases recorded in {name}.jsonl; 10 errors of the agent among them, replayed as such"
        assert said in done.stderr, done.stderr
        cli.write("assay.yaml", {**base, "agent": {"adapter": "replay"}, "dataset": f"{name}.jsonl"})
        cli.run("run", "--output-dir", f"{name}-again", "--record", "again.jsonl", status=None)
        assert scores(cli, f"{name}-again") == scores(cli, name)
        assert (cli.folder / "again.jsonl").read_text() == (cli.folder / f"{name}.jsonl").read_text()
    assert without_times(scores(cli, "function")) == without_times(scores(cli, "command"))


def test_a_missing_program_is_refused_before_the_run(shared_project: Cli) -> None:
    """Nothing is started without the program; `validate` reports it beside what else is wrong."""
    cli = shared_project
    cli.write("assay.yaml", {"dataset": "qa.jsonl", "metrics": ["exact_match"],
                             "agent": {"adapter": "command", "target": "no-such-program x"}})  # fmt: skip
    cli.write("qa.jsonl", '{"question": "q", "reference": "a"}')
    done = cli.run("run", status=2)
    assert "agent.target: there is no program 'no-such-program' on PATH: install it" in done.stderr
    assert "no-such-program" in cli.run("validate", status=2).stderr
    agent = {"adapter": "command", "target": ["no-such-program"], "mode": "both"}
    cli.write("assay.yaml", {"dataset": "qa.jsonl", "metrics": ["exact"], "agent": agent})
    found = cli.run("validate", status=2).stderr
    assert all(said in found for said in ("unknown metric", "unknown mode", "no-such-program")), found


def test_an_interrupted_run_leaves_no_process_and_is_resumed(shared_project: Cli) -> None:
    """Ctrl-C ends the program, although it hangs and ignores SIGTERM; `runs resume --spec` starts it again."""
    cli = shared_project
    mark = cli.folder / "second"
    cli.write("hangs.py", "import json, os, signal, sys, time\n"
                          "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                          "for line in sys.stdin:\n"
                          f"    while not os.path.exists({str(mark)!r}): time.sleep(0.05)\n"
                          "    print(json.dumps({'request_id': json.loads(line)['request_id'], 'text': 'a'}))\n"
                          "    sys.stdout.flush()\n")  # fmt: skip
    cli.write("qa.jsonl", '{"question": "q", "reference": "a"}')
    target = f"{sys.executable} -I -S {cli.folder / 'hangs.py'}"
    cli.write("assay.yaml", {"name": "resumed", "dataset": "qa.jsonl", "metrics": ["exact_match"],
                             "agent": {"adapter": "command", "target": target}})  # fmt: skip

    def programs() -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if str(cli.folder / "hangs.py") in (process.info["cmdline"] or [])
        ]

    running = cli.start("run")
    cli.wait_until(programs, running)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130, err
    assert not programs()
    mark.touch()
    run_id = err.rpartition("--resume ")[2].split()[0]
    assert "PASS" in cli.run("runs", "resume", run_id, "--spec", "assay.yaml").stdout
    assert not programs()


def test_evaluate_asks_a_command(shared_project: Cli, monkeypatch: Any) -> None:
    """`assay.evaluate` hosts a command as it hosts a function; its program is found from the current folder."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_project.home))
    monkeypatch.chdir(shared_project.folder)
    program = shared_project.write("agent.sh", '#!/bin/sh\ncat > asked.json\necho \'{"text": "A"}\'\n')
    program.chmod(0o755)
    agent = {"adapter": "command", "target": "./agent.sh", "mode": "per_question"}
    result = assay.evaluate({"metrics": ["exact_match"], "agent": agent}, dataset=[{"question": "q", "answer": "A"}])
    assert result.passed
    assert json.loads((shared_project.folder / "asked.json").read_text())["input"] == "q"


def test_a_record_file_is_not_the_dataset(shared_project: Cli) -> None:
    """Recorded answers replace neither the dataset nor the file of verdicts, and go to a .jsonl file."""
    cli = shared_project
    cli.write("assay.yaml", {"dataset": "qa.jsonl", "metrics": ["exact_match"], "agent": {"adapter": "replay"}})
    cli.write("qa.jsonl", '{"question": "q", "reference": "a", "recorded": "a"}')
    for name, said in (("qa.jsonl", "would replace the dataset"), ("out.csv", "ends in .jsonl")):
        assert said in cli.run("run", "--record", name, status=2).stderr
