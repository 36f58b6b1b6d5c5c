"""Numbers that are none and texts that break things, through `assay validate`, `assay run` and `assay score`."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

NINES = "9" * 400
LONG = 300_000  # a million takes a slow processor more than the five seconds that scoring a row may take
WRONG: list[tuple[str, str]] = [
    ('{"question": "q", "recorded": {"text": "a", "latency_ms": NaN}}', "holds NaN, which is not a JSON number"),
    ('{"question": "q", "weight": Infinity}', "holds Infinity, which is not a JSON number"),
    ('{"question": "q", "threshold": 1e999}', "holds 1e999, which is not a JSON number"),
    (f'{{"question": "q", "weight": {NINES}}}', "weight: must be a number from 0 to 1e+06, not 9999999999"),
    (f'{{"question": "q", "recorded": {{"text": "a", "data_rows": {NINES}}}}}', "data_rows must be a whole number"),
    ('{"question": "q", "weight": true}', "weight: must be a number from 0 to 1e+06, not true"),
    ('{"question": "q", "threshold": false}', "threshold: must be a number, not false"),
    ('{"question": "q", "recorded": {"text": "a", "usage": {"input_tokens": true}}}', "usage.input_tokens must be"),
    ('{"question": true, "recorded": "a"}', "question: must be a string, not true"),
    ('{"question": "", "recorded": "a"}', "question: is blank"),
    ('{"question": "a \\ud800 b", "recorded": "a"}', "holds half a character (a lone surrogate)"),
    ('{"question": "q", "recorded": "a\\u0000"}', "holds the character NUL"),
    (json.dumps({"question": "x" * 10_000_000, "recorded": "a"}), "is longer than 8 MiB"),
    (json.dumps({"question": "x" * 2_000_000, "recorded": "a"}), "is larger than 1 MiB"),
]
RIGHT: list[dict[str, Any]] = [
    {"id": "empty", "question": "q", "reference": "r", "recorded": ""},
    {"id": "rtl", "question": "\u202eq\u202c", "reference": "\u202bالرياض\u202c", "recorded": "الرياض"},
    {"id": "whole", "question": "q", "reference": "😀", "recorded": "😀", "metadata": {"n": 10**30}},
    {"id": "long", "question": "q " * 200_000, "reference": "r", "recorded": "ع" * LONG},
]
SPEC = {"name": "hostile", "dataset": "qa.jsonl", "agent": {"adapter": "replay"},
        "metrics": [{"exact_match": {"arabic_fold": True, "threshold": None}}, "rouge", "generation_fidelity",
                    "tokens"]}  # fmt: skip


def write(cli: Cli) -> Cli:
    """Write a dataset in which wrong records stand before right ones."""
    lines = [*(line for line, _ in WRONG), *(json.dumps(record, ensure_ascii=False) for record in RIGHT)]
    cli.write("qa.jsonl", "\n".join(lines) + "\n")
    cli.write("assay.yaml", SPEC)
    return cli


def test_every_wrong_record_is_told_with_its_line(cli: Cli) -> None:
    """All of them at once, by every command, and nothing is started."""
    write(cli)
    for arguments in (("validate", "assay.yaml"), ("run", "assay.yaml"), ("score", "rouge", "--file", "qa.jsonl")):
        done = cli.run(*arguments, status=2)
        for line, (_, said) in enumerate(WRONG, start=1):
            (told,) = [each for each in done.stderr.splitlines() if f"qa.jsonl:{line}: record {line}" in each]
            assert said in told
            assert len(told) < 300
        assert "Traceback" not in done.stderr
    assert not (cli.home / "assay.db").exists()


def test_the_right_records_beside_them_are_run_when_asked(shared_cli: Cli) -> None:
    """With --on-bad-case skip every wrong record is listed, the rest is scored, and the exit status is 3."""
    done = write(shared_cli).run("run", "assay.yaml", "--on-bad-case", "skip", "--output-dir", "out", status=3)
    assert done.stderr.count("\nleft out: ") == len(WRONG)
    assert "\u202e" not in done.stdout + done.stderr
    report = json.loads((shared_cli.folder / "out" / "results.json").read_text(encoding="utf-8"))
    rows = {row["case_id"]: row for row in report["rows"]}
    assert list(rows) == [record["id"] for record in RIGHT]
    matches = {case_id: row["scores"]["exact_match"]["value"] for case_id, row in rows.items()}
    assert matches == {"empty": 0.0, "rtl": 1.0, "whole": 1.0, "long": 0.0}
    assert len(rows["long"]["answer"]) == LONG
    assert rows["rtl"]["question"] == "\u202eq\u202c"
    assert report["run"]["dataset"]["left_out_count"] == len(WRONG)


AGENT = """
def answer(request):
    return {
        "nan": {"text": "a", "reported_latency_ms": float("nan")},
        "bool": {"text": "a", "data_rows": True},
        "huge": {"text": "a", "usage": {"total_tokens": 10**400}},
        "surrogate": {"text": "a \\ud800 b"},
        "nul": "a\\0b",
        "large": "x" * 10_000_000,
        "empty": "",
        "good": "r",
    }[request.case_id]
"""


def test_what_an_agent_returns_harms_no_other_row(shared_cli: Cli) -> None:
    """A number that is none or an answer that is too large is an error of its row; broken characters are replaced."""
    names = ["nan", "bool", "huge", "surrogate", "nul", "large", "empty", "good"]
    shared_cli.write("agent.py", AGENT)
    shared_cli.write(
        "qa.jsonl", "\n".join(json.dumps({"id": name, "question": "q", "reference": "r"}) for name in names)
    )
    shared_cli.write("assay.yaml", SPEC | {"agent": {"adapter": "python", "target": "agent:answer", "retries": 0}})
    report = json.loads(shared_cli.run("run", "assay.yaml", "--json", status=3).stdout)
    rows = {row["case_id"]: row for row in report["rows"]}
    assert [name for name in names if rows[name]["status"] == "error"] == ["nan", "bool", "huge", "large"]
    assert (rows["surrogate"]["answer"], rows["nul"]["answer"]) == ("a \ufffd b", "a\ufffdb")
    assert "larger than 2 MiB" in rows["large"]["message"]
    assert {name: rows[name]["scores"]["exact_match"]["value"] for name in names} == dict.fromkeys(names, 0.0) | {
        "good": 1.0
    }


def test_files_may_have_names_that_are_no_text(shared_cli: Cli) -> None:
    """A folder, a spec and a dataset whose names are not UTF-8 are used; reports and stored runs escape them."""
    folder = shared_cli.folder / os.fsdecode(b"f\xff")
    folder.mkdir()
    dataset = folder / os.fsdecode(b"qa\xfe.jsonl")
    dataset.write_text('{"id": "a", "question": "q", "reference": "r", "recorded": "r"}\n')
    spec = folder / os.fsdecode(b"spec\xfd.yaml")
    spec.write_text("agent: {adapter: replay}\nmetrics: [exact_match]\n")
    done = shared_cli.run("run", spec, "--dataset", dataset, "--output-dir", "out")
    report = json.loads((shared_cli.folder / "out" / "results.json").read_text(encoding="utf-8"))
    assert report["run"]["dataset"]["name"] == "qa\\xfe.jsonl"
    assert report["run"]["name"] == "f\\xff"
    assert report["test_cases_path"].endswith("f\\xff/qa\\xfe.jsonl")
    assert report["run"]["spec_path"].endswith("spec\\xfd.yaml")
    assert "Traceback" not in done.stderr
    dataset.write_text("{")
    assert "record 1: is not valid JSON" in shared_cli.run("validate", spec, "--dataset", dataset, status=2).stderr


COMMAND = "::error::x\n  ::stop-commands::x\n##[error]y ##vso[task.complete]z"
"""What a CI server would take for commands, where it stands at the beginning of a line."""
SHOWN = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)


def test_no_text_is_a_command_to_a_ci_server(shared_cli: Cli) -> None:
    """Servers read all output of a job: an answer could forget the errors of the run, or make some of its own."""
    cli = shared_cli
    cases = [
        {"id": f"::error::{n} ##[error]", "question": COMMAND, "reference": f"r\n{COMMAND}", "category": "::error::c"}
        | {"tags": ["::error::t"], "recorded": COMMAND if n else {"error": COMMAND}}
        for n in range(3)
    ]
    cli.write("qa.jsonl", "".join(json.dumps(case) + "\n" for case in cases))
    spec = {**SPEC, "name": "::error::name", "metrics": ["exact_match", {"rouge": {"threshold": 0.1}}]}
    cli.write("assay.yaml", spec)
    cli.write("worse.yaml", {**spec, "note": COMMAND, "labels": {"variant": "::error::v"}})
    runs = [
        ("run", "assay.yaml", "--output-dir", "a"),
        ("run", "worse.yaml", "--verbose", "--output-dir", "b"),
        ("validate", "assay.yaml"),
        ("dataset", "check", "qa.jsonl"),
        ("score", "exact_match", "--file", "qa.jsonl"),
        ("runs", "list"),
        ("runs", "show", "latest"),
        ("runs", "show", "latest", "--failed"),
        ("runs", "show", "latest", "--case", "::error::1 ##[error]"),
        ("runs", "show", "latest", "--where", "passed"),
        ("runs", "show", "latest", "--case", "::error::none"),
        ("compare", "a/results.json", "b/results.json"),
        ("run", "assay.yaml", "--name", "::error::again", "--against", "a/results.json"),
        ("run", "::error::none.yaml"),
    ]
    for arguments in runs:
        done = cli.run(*arguments, status=None)
        assert "Traceback" not in done.stderr
        for text in (done.stdout, done.stderr):
            assert SHOWN.search(text) is None, (arguments, text)
