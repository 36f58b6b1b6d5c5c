"""What the console says on why rows failed: answers, references, errors, tracebacks, skips, times."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes.fork_server import ForkServer

AGENT = """
import asyncio

def upstream(number):
    raise RuntimeError("upstream 401 for sk-very-secret-1")

async def answer(request):
    number = int(request.input.split()[-1])
    if number == 2:
        return {"text": "x", "sources": [{"title": "Manual", "uri": "manual.pdf"}],
                "tool_calls": [{"name": "search", "arguments": {"q": "red"}, "result": [1]}]}
    if 5 <= number < 12:
        await asyncio.sleep(0)
        upstream(number)
    return "wrong " * 60 + "END" if number == 4 else "right"
"""
TRACEBACK = [
    "Traceback (most recent call last):",
    "in answer",
    "upstream(number)",
    "in upstream",
    "raise RuntimeError(",
]


def write(cli: Cli, **spec: Any) -> None:
    """Write a spec of 12 cases: 0 to 3 are answered, 2 and 4 wrongly, and from 5 on the agent raises."""
    lines = [
        json.dumps(
            {
                "id": f"case-{number}",
                "question": f"question {number}",
                "answer": "right",
                "category": "even" if number % 2 == 0 else "odd",
                **({"expected_sources": ["Manual"]} if number == 2 else {}),
            }
        )
        for number in range(12)
    ]
    cli.write("qa.jsonl", "\n".join(lines))
    cli.write("agent.py", AGENT)
    agent = {"adapter": "python", "target": "agent:answer", "retries": 0}
    metrics = ["exact_match", "latency", "hit_rate", "tokens"]
    cli.write("assay.yaml", {"name": "why", "dataset": "qa.jsonl", "agent": agent, "metrics": metrics, **spec})
    cli.env["PROVIDER_API_KEY"] = "sk-very-secret-1"


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, shared_home: Path, command_server: ForkServer
) -> tuple[Cli, str, str]:
    """Run once; return the command, what it printed, and the run."""
    cli = Cli(tmp_path_factory.mktemp("why"), shared_home, command_server)
    write(cli)
    done = cli.run("run", "assay.yaml", "--no-progress", "--output-dir", "out", status=1)
    return cli, done.stdout, json.loads(cli.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]


def rows_of(cli: Cli) -> dict[str, Any]:
    """Return the rows of the report by case."""
    report = json.loads((cli.folder / "out/results.json").read_text("utf-8"))
    return {row["case_id"]: row for row in report["rows"]}


def test_failing_rows_show_answer_and_reference(ran: tuple[Cli, str, str]) -> None:
    """Below the question stand what came and what was wanted, in a pipe cut after 240 characters; one row has all."""
    cli, text, run_id = ran
    entry = text[text.index("  case-4: exact_match") :].splitlines()
    assert entry[1] == "    asked: question 4"
    assert re.fullmatch("    got:   (wrong )+[wrong]*…", entry[2])
    assert len(entry[2]) == 240
    assert entry[3] == "    want:  right"
    hint = f"  texts that end in … are cut: see the reports or `assay runs show {run_id} --case case-4`"
    assert hint in text.splitlines()
    assert "got:    " + "wrong " * 60 + "END" in cli.run("runs", "show", run_id, "--case", "case-4").stdout


def test_identical_errors_are_one_entry_with_the_first_traceback(ran: tuple[Cli, str, str]) -> None:
    """Seven equal errors are counted; the traceback has the agent's frames alone, and no secret of the environment."""
    cli, text, _ = ran
    assert "9 failing rows:" in text
    assert "  7 x RuntimeError: upstream 401 for [redacted] (first: case-5)" in text
    assert text.count("upstream 401") == 3  # the entry, the line that raises, and the end of the traceback
    assert text.count("Traceback (most recent call last)") == 1
    for part in TRACEBACK:
        assert part in text
    assert "/assay/" not in text[text.index("Traceback") : text.index("recommendations:")]
    error = rows_of(cli)["case-9"]["response"]["error"]
    assert (error["type"], error["message"]) == ("RuntimeError", "RuntimeError: upstream 401 for [redacted]")
    for part in TRACEBACK:
        assert part in error["traceback"]
    assert "very-secret" not in (cli.folder / "out/results.json").read_text("utf-8")


def test_the_summary_explains_skips_latency_and_what_to_do(ran: tuple[Cli, str, str]) -> None:
    """Skips have their number and reason, latency stands in one line with its tiers, advice comes from the report."""
    cli, text, _ = ran
    lines = text.splitlines()
    assert "skipped  hit_rate on 11 of 12 rows: the case names no expected sources" in lines
    assert "skipped  tokens on 12 of 12 rows: the answer does not report its tokens" in lines
    (latency,) = (line for line in lines if line.startswith("latency"))
    assert "(5 rows: 5 below 2 s)" in latency
    assert "(3 of 12 rows passed)" in text
    report = json.loads((cli.folder / "out/results.json").read_text("utf-8"))
    advice = lines[lines.index("recommendations:") + 1 :][: len(report["summary"]["recommendations"])]
    assert advice == [f"  - {sentence}" for sentence in report["summary"]["recommendations"]]
    assert lines[-1].endswith("  pass rate 25.0% (3 of 12)  exit status 1")


def test_rows_have_their_times_in_the_report(ran: tuple[Cli, str, str]) -> None:
    """Latency of the agent's call, start and duration of the whole row."""
    cli, _, _ = ran
    for row in rows_of(cli).values():
        assert row["started_at"].endswith("Z")
        assert row["duration_ms"] >= row["latency_ms"] > 0


def test_a_stored_run_tells_the_same(ran: tuple[Cli, str, str]) -> None:
    """`runs show` prints where the run stands and the summary of `assay run`, without reports and exit status."""
    cli, text, run_id = ran
    shown = cli.run("runs", "show", run_id).stdout
    *parts, reports, _ = text.split("\n\n")
    assert reports.startswith("report: ")
    assert shown.partition("\n\n")[2] == "\n\n".join(parts) + "\n"


def test_everything_about_one_row(ran: tuple[Cli, str, str]) -> None:
    """`runs show --case` has question, answer, reference, scores with details, sources, calls, times, traceback."""
    cli, _, run_id = ran
    text = cli.run("runs", "show", run_id, "--case", "case-2").stdout
    for part in (
        "case-2  category even  FAIL", "asked:  question 2", "got:    x", "want:   right", "exact_match", "hit_rate",
        "100.0%  passed", "rating: Excellent", "skipped: the answer does not report its tokens",
        "1. Manual  manual.pdf",
        '1. search({"q":"red"}) -> [1]', "whole row", "started 2",
    ):  # fmt: skip
        assert part in text.replace('{"q": "red"}', '{"q":"red"}'), part
    failed = cli.run("runs", "show", run_id, "--case", "case-7").stdout
    for part in ("agent error (raised): RuntimeError: upstream 401", *TRACEBACK):
        assert part in failed
    assert json.loads(cli.run("runs", "show", run_id, "--case", "case-2", "--json").stdout) == {
        "schema": "assay/case/1",
        "case_id": "case-2",
        "previous_case": "case-1",
        "next_case": "case-3",
        "rows": [{**rows_of(cli)["case-2"], "earlier_attempts": []}],
    }
    assert "no case 'case-99'" in cli.run("runs", "show", run_id, "--case", "case-99", status=2).stderr
    assert "give one" in cli.run("runs", "show", run_id, "--case", "case-2", "--failed", status=2).stderr


def test_every_failing_row(ran: tuple[Cli, str, str]) -> None:
    """`runs show --failed` has the entries of the summary, and names every row of a group."""
    cli, text, run_id = ran
    shown = cli.run("runs", "show", run_id, "--failed").stdout
    entry = text[text.index("  case-4: exact_match") : text.index("  texts that end in")].strip("\n")
    assert entry in shown
    assert "    rows: case-5, case-6, case-7, case-8, case-9, case-10, case-11\n" in shown
    assert shown.endswith("9 failing rows\n")
    failing = json.loads(cli.run("runs", "show", run_id, "--failed", "--json").stdout)["rows"]
    assert failing == [row for row in rows_of(cli).values() if not row["passed"]]


def test_verbose_prints_each_row(shared_cli: Cli) -> None:
    """A numbered block for each row, with question, metrics, latency and verdict; the verdict line stays the last."""
    write(shared_cli)
    lines = shared_cli.run("run", "assay.yaml", "--verbose", "--limit", "3", status=1).stdout.splitlines()
    heads = [line for line in lines if line.startswith("[")]
    assert [head.split()[0] for head in heads] == ["[1/3]", "[2/3]", "[3/3]"]
    assert {" ".join(head.split()[1:]) for head in heads} == {"case-0 even", "case-1 odd", "case-2 even"}
    at = next(number for number, line in enumerate(lines) if line.endswith("case-2  even"))
    block = lines[at + 1 : lines.index("", at)]
    assert block[:3] == ["  asked: question 2", "  got:   x", "  want:  right"]
    assert [" ".join(line.split()) for line in block[3:-1]] == [
        'exact_match 0.0% failed: the answer is "x", the reference "right"', "hit_rate 100.0% passed",
        "tokens - skipped: the answer does not report its tokens"
    ]  # fmt: skip
    assert block[-1].startswith("  latency 0.")
    assert "Excellent  FAIL  exact_match: the answer is" in block[-1]
    assert lines[-1].startswith("verdict  FAIL")
    refused = shared_cli.run("run", "assay.yaml", "--verbose", "--json", status=2)
    assert "--json and --verbose ask for different output" in refused.stderr


def test_a_terminal_cuts_at_its_width(ran: tuple[Cli, str, str]) -> None:
    """On a terminal of 100 columns long answers end with an ellipsis at the margin; other lines stay."""
    cli, _, run_id = ran
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        cli.command("runs", "show", run_id, "--failed"), cwd=cli.folder, stdout=writer, stderr=subprocess.DEVNULL,
        env={**cli.env, "COLUMNS": "100"},
    )  # fmt: skip
    os.close(writer)
    found = b""
    while True:
        try:
            found += (piece := os.read(reader, 65536))
        except OSError:  # what Linux says at the end
            break
        if not piece:
            break
    os.close(reader)
    assert process.wait(110) == 0
    (got,) = (line for line in found.decode().splitlines() if "got:   wrong wrong" in line)
    assert got.startswith("    got:   wrong")
    assert got.endswith("…")
    assert len(got) == 100


def test_repeats_are_rows_of_their_own(shared_cli: Cli) -> None:
    """A run with repeats numbers its rows, and `--case` shows each of them."""
    write(shared_cli)
    shared_cli.run("run", "assay.yaml", "--no-progress", "--limit", "3", "--repeats", "2", status=1)
    run_id = json.loads(shared_cli.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    text = shared_cli.run("runs", "show", run_id, "--case", "case-2").stdout
    assert "case-2  repeat 1 of 2" in text
    assert "case-2  repeat 2 of 2" in text
    assert "  case-2 #2: exact_match" in shared_cli.run("runs", "show", run_id).stdout
