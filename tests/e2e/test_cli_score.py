"""`assay score`, as a subprocess."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

ROWS = """{"answer": "a b", "reference": "a b"}
{"answer": "x", "reference": "a b"}
{"question": "q", "answer": {"text": "a"}}
"""


def test_an_answer_is_scored_with_a_real_model(cli: Cli) -> None:
    """`assay score similarity A B` starts the embedder alone, gives the cosine, and leaves nothing running."""
    done = cli.run("score", "similarity", "The cat sits on the mat.", "A cat is on the mat.", "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["value"] == pytest.approx(0.94, abs=0.05)
    assert (document["passed"], document["parameters"]["threshold"]) == (True, 0.75)
    assert not (cli.home / "assay.db").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["exact-match", "Riyadh", "riyadh"], 0, "exact_match  1.0000  passed"),
        (["exact_match", "a", "--reference", "b", "--reference", "a"], 0, "1.0000"),
        (["rouge", "a b", "a c"], 0, "0.5000"),
        (["rouge", "a b", "a c", "--threshold", "0.6"], 1, "failed  (threshold 0.6)"),
        (["rouge", "a b", "a c", "--threshold", "0.5"], 0, "passed"),
        (["hit-rate", "", "--field", "sources=[A, B]", "--field", "expected_sources=[B]", "--set", "k=1"], 0, "0.0000"),
        (["retrieval", "--field", "sql=SELECT ': x' FROM t", "--field", "expected_table=t"], 0, "1.0000"),
        (["exact_match", "a.csv", "a.csv"], 0, "1.0000"),
        (["exact_match", "a\x1b[31m", "a\x1b[31m"], 0, "1.0000"),
    ],
)
def test_one_answer(cli: Cli, arguments: list[str], status: int, said: str) -> None:
    """Value and verdict are printed; only a threshold that was given decides the exit status."""
    done = cli.run("score", *arguments, status=status)
    assert said in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exat_match", "a", "--set", "k"], ["did you mean 'exact_match'", "must be KEY=VALUE", "2 problems"]),
        (["exact_match"], ["the answer: is missing"]),
        (["exact_match", "a", "--answer", "b", "--map", "a=b"], ["is given twice", "--map: needs --file"]),
        (["exact_match", "a", "--file", "rows.jsonl"], ["--file: takes answers and references from the file"]),
        (["contains", "a", "--set", "values=[]"], ["contains.values: must hold at least one text"]),
        (["exact_match", "--file", "nowhere.jsonl"], ["nowhere.jsonl: there is no such file"]),
        (
            ["exact_match", "answers.jsonl"],
            ["score its rows with --file answers.jsonl, or the text"],
        ),
        (["hit_rate", "a", "--set", "k=0"], ["hit_rate.k: must be from 1"]),
        (["mrr", "a", "--field", "sorces=[A]"], ["did you mean 'sources'"]),
        (
            ["exact_match", "a"],
            ["nothing was scored (the case has no reference); exact_match reads answer, references"],
        ),
    ],
)
def test_wrong_input_is_told_whole(cli: Cli, arguments: list[str], said: list[str]) -> None:
    """Every problem at once, exit status 2, no traceback."""
    done = cli.run("score", *arguments, status=2)
    assert all(text in done.stderr for text in said), done.stderr
    assert "Traceback" not in done.stderr


def test_the_answer_may_come_from_stdin(cli: Cli) -> None:
    """`-` reads stdin without its last line end; broken characters of an answer are replaced, as in a run."""
    for data, reference, value in (
        ("في الرياض\n".encode(), "في الرياض", "1.0000"), (b"a\0b", "a\ufffdb", "1.0000"), (b"", "a", "0.0000"),
    ):  # fmt: skip
        done = cli.run("score", "exact_match", "--answer", "-", "--reference", reference, stdin=data, status=None)
        assert value in done.stdout
    assert "1.0000" in cli.run("score", "exact_match", "-", "a", stdin=b"a").stdout
    for data, said in ((b"\xff\xfe", "stdin: is not UTF-8 (byte 0)"), (b"x" * 2_097_153, "more than 2 MiB")):
        done = cli.run("score", "exact_match", "-", "a", stdin=data, status=None)
        assert done.returncode == 2
        assert said in done.stderr


def test_a_file_is_scored_row_by_row(cli: Cli) -> None:
    """One line a row, then the aggregate; with --json one document; a missed threshold is status 1."""
    cli.write("rows.jsonl", ROWS)
    lines = cli.run("score", "exact_match", "--file", "rows.jsonl").stdout.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["1.0000", "0.0000", "skipped"]
    assert lines[-1].startswith("exact_match  0.5000  scored 2  skipped 1  passed 1  failed 1")
    done = cli.run("score", "exact_match", "--file", "rows.jsonl", "--threshold", "0.9", "--json", status=1)
    document = json.loads(done.stdout)
    assert [row["value"] for row in document["rows"]] == [1.0, 0.0, None]
    assert document["rows"][0]["case_id"] == "row-1"
    assert (document["summary"]["value"], document["summary"]["meets_threshold"]) == (0.5, False)


@pytest.mark.parametrize("content", [ROWS, json.dumps([json.loads(line) for line in ROWS.splitlines()])])
def test_rows_may_come_from_stdin(cli: Cli, content: str) -> None:
    """`--file -` reads a list or lines of JSON; what is wrong there is told by its place in stdin."""
    done = cli.run("score", "exact_match", "--file", "-", stdin=content.encode(), status=None)
    assert "exact_match  0.5000  scored 2  skipped 1" in done.stdout
    done = cli.run("score", "exact_match", "--file", "-", stdin=content.encode() + b"{", status=None)
    assert done.returncode == 2
    assert "stdin:" in done.stderr
    assert "stdin: is empty" in cli.run("score", "exact_match", "--file", "-", stdin=b"", status=None).stderr


def test_a_threshold_on_answers_to_different_questions_is_refused(cli: Cli) -> None:
    """How alike the questions are is a value and no verdict: neither a pass nor a failure."""
    cli.write("rows.jsonl", '{"question": "q", "recorded": ""}\n{"question": "r", "recorded": " "}\n')
    done = cli.run("score", "consistency", "--file", "rows.jsonl", "--threshold", "0.5", status=2)
    assert "consistency has a value and no verdict: its threshold needs several runs of each case" in done.stderr
    assert done.stdout.endswith("threshold >= 0.5 no verdict\nverdict  INCOMPLETE  threshold >= 0.5  exit status 2\n")


def test_hostile_ids_and_reasons_cannot_steer_the_terminal(cli: Cli) -> None:
    """Escape sequences and direction marks of a file do not reach the terminal."""
    cli.write("rows.jsonl", json.dumps({"id": "a\u202eb", "category": "\x1b[2J", "answer": "a", "reference": "a"}))
    done = cli.run("score", "exact_match", "--file", "rows.jsonl")
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_wrong_records_of_a_file_are_refused_or_left_out(cli: Cli) -> None:
    """As in a run: refused with 2, or listed and left out, with the rest scored and the exit status 3."""
    cli.write("bad.jsonl", ROWS + '{"answer": "x", "weight": "heavy"}\n')
    refused = cli.run("score", "exact-match", "--file", "bad.jsonl", status=2)
    assert "weight" in refused.stderr
    done = cli.run("score", "exact-match", "--file", "bad.jsonl", "--on-bad-case", "skip", status=3)
    assert "left out: bad.jsonl:4" in done.stderr
    assert "incomplete" in done.stderr
    assert "scored 2" in done.stdout
    printed = cli.run("score", "exact-match", "--file", "bad.jsonl", "--on-bad-case", "skip", "--json", status=3)
    document = json.loads(printed.stdout)
    assert (document["left_out_count"], len(document["rows"])) == (1, 3)
    failed = ("exact-match", "--file", "bad.jsonl", "--on-bad-case", "skip", "--threshold", "0.9")
    cli.run("score", *failed, status=1)
    assert "needs --file" in cli.run("score", "rouge", "a", "b", "--on-bad-case", "skip", status=2).stderr
