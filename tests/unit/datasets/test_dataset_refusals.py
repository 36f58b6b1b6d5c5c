"""What is refused, with the file, the line and the field named, and what to do about it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from assay.datasets import open_dataset
from assay.errors import DatasetError
from assay.model.run_spec import CaseSelection
from assay_cli.failures import exit_status

Write = Callable[..., str]
Refusal = Callable[..., list[str]]

GOOD = {"question": "Q", "answer": "A"}


def only(problems: list[str]) -> str:
    """Return the one problem there is."""
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", "", "is empty: a dataset needs at least one case"),
        ("x.json", " \n \n", "is empty: a dataset needs at least one case"),
        ("x.json", "[]", "holds no cases: a dataset needs at least one"),
        ("x.json", '{"eval_cases": []}', "holds no cases: a dataset needs at least one"),
        ("x.csv", "question,answer\n", "holds no cases: a dataset needs at least one"),
        ("x.yaml", "[]", "holds no cases: a dataset needs at least one"),
        ("x.yaml", "# nothing\n", "holds no cases: a dataset needs at least one"),
        ("x.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run `git lfs pull`"),
        ("x.jsonl", b"PAR1\x15\x04", "is a parquet file that cannot be read"),
        ("x.csv", b"PK\x03\x04\x14\x00", "save the sheet as CSV"),
        ("x.json", b"<!DOCTYPE html><p>", "is a web page"),
        ("x.json", b"BZh91AY", "compressed with bzip2"),
        ("x.xlsx", "question,answer\nQ,A\n", "is a spreadsheet, which cannot be read: save the sheet as CSV (UTF-8)"),
        ("x.json", '{"resourceSpans": [{"scopeSpans": []}]}', "holds an export of traces (OTLP), which say what"),
        ("x.jsonl", '{"traceId": "1", "spanId": "2", "name": "agent"}\n', "holds an export of traces (spans)"),
        ("x.json", '{"data": [{"traceID": "1", "spans": []}]}', "holds an export of traces (spans)"),
        ("x.csv", "context.span_id,attributes.input.value\n1,Q\n", "holds an export of traces (spans of Phoenix)"),
        ("x.jsonl", '{"run_type": "llm", "dotted_order": "1", "inputs": {}, "outputs": {}}\n', "(runs of LangSmith)"),
        ("x.json", '[{"input": "Q", "output": "A", "observations": [], "projectId": "p"}]', "(traces of Langfuse)"),
        ("x.txt", "question,answer\nQ,A\n", "unknown file type: rename it to end with .json, .jsonl"),
        ("x.json", "question: Q", "begins with neither [ nor {"),
        ("x.jsonl", "{\0\0\0", "holds NUL bytes"),
        ("x.jsonl", '{"a":1}'.encode("utf-16-le"), "`encoding: utf-16-le`"),
        ("x.jsonl.gz", b"{}", "is named .gz but is not compressed"),
        ("x.gz", gzip.compress(gzip.compress(b"[]", mtime=0), mtime=0), "compressed with gzip twice"),
        ("x.jsonl.gz", gzip.compress(b'{"input": "Q"}\n' * 99, mtime=0)[:-12], "is damaged"),
        ("x.jsonl.gz", gzip.compress(b'{"input": "Q"}\n', mtime=0)[:12] + b"\xff" * 20, "is damaged"),
    ],
)
def test_no_datasets(write: Write, refusal: Refusal, name: str, content: str | bytes, message: str) -> None:
    """A file that is no dataset is refused by its kind."""
    problem = only(refusal(write(name, content)))
    assert problem.startswith(f"{name}:")
    assert message in problem


def test_cases_may_keep_their_trace(write: Write) -> None:
    """A record with a question is a case, whatever other fields it has; `format: plain` reads any record as a case."""
    case = open_dataset(write("x.jsonl", [{"question": "Q", "trace_id": "1", "span_id": "2"}]))
    assert case.check().case_count == 1
    spans = write("y.jsonl", [{"input": "Q", "trace_id": "1", "span_id": "2"}])
    assert open_dataset(spans, format="plain").check().case_count == 1


def test_missing_files_and_folders(write: Write, refusal: Refusal, tmp_path: Path) -> None:
    """A missing file, a folder, a pipe and a hopeless name are refused in the user's words."""
    write("x.jsonl", [GOOD])
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert only(refusal("no/x.jsonl")) == "no/x.jsonl: there is no such file: check the name and the folder"
    assert only(refusal(".")) == ".: is a folder: name one file in it"
    assert "is not a regular file" in only(refusal("pipe.jsonl"))
    assert "NUL" in only(refusal("a\0b.jsonl"))


def test_wrong_encoding(write: Write, refusal: Refusal) -> None:
    """Bytes that are not in the encoding are refused with their offset and line, however far down they are.

    Pitfall: cp1256 and latin-1.
    """
    good = '{"question": "س"}\n' * 20_000
    content = good.encode() + '{"question": "é"}\n'.encode("latin-1")
    problem = only(refusal(write("x.jsonl", content)))
    offset = content.index(b"\xe9")
    assert problem.startswith(f"x.jsonl:20001: is not UTF-8: byte 0xe9 at offset {offset:,}; save the file as UTF-8")
    assert "cp1256" in problem
    assert "byte 0xd8 at offset 14" in only(refusal("x.jsonl", encoding="ascii"))
    assert "UTF-16" in only(refusal(write("y.csv", "input\nس".encode("utf-16")[:-1])))


@pytest.mark.parametrize("encoding", ["klingon", "base64", "rot13", "idna", "unicode_escape", "", "utf-8\0"])
def test_unknown_encodings(write: Write, refusal: Refusal, encoding: str) -> None:
    """An unknown encoding is refused."""
    assert "is not known: use a name such as utf-8" in only(refusal(write("x.jsonl", [GOOD]), encoding=encoding))


def test_encoding_against_the_mark(write: Write, refusal: Refusal) -> None:
    """A byte order mark and a named encoding that contradict each other are refused."""
    name = write("x.jsonl", '{"input": "Q"}'.encode("utf-8-sig"))
    assert "begins with the mark of utf-8, but `encoding` says cp1256" in only(refusal(name, encoding="cp1256"))


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ('[\n{"input": "a"},\n{"input": "b"', 3, "the file ends there: it may be cut off"),
        ('[\n{"input": "a"},\n{"input": "b', 3, "string, column 11; the file ends there: it may be cut off"),
        ('[\n{"input": "a"},\n', 3, "cut off"),
        ('[\n{"input": "a"}\n', 3, "the file ends here: it may be cut off"),
        ('[{"input": "a"},\n]', 2, "a comma before ], which JSON does not allow: remove it, column 1"),
        ('[{"input": "a",}]', 1, "is not valid JSON"),
        ('[{"input": "a"}\n{"input": "b"}]', 2, '"," or "]" is due, found "{"'),
        ('[\n{"input": "a"}, // no\n{"input": "b"}]', 2, "is not valid JSON: Expecting value"),
        ("[\n{'input': 'a'}]", 2, "is not valid JSON"),
        ('[{"input": "a"}]\n{}', 2, "more follows after its end"),
        ('{"cases": [{"input": "a"}], }', 1, "a name in double quotes is due"),
        ('{"cases": [{"input": "a"}]\n "x": 1}', 2, '"}" or "," is due'),
        ('{"cases"\n[]}', 2, '":" is due'),
        ("{1: []}", 1, "a name in double quotes is due"),
        ('{"a": [{"input": "Q"}]}', 1, 'it has "a", and the list must be under one of eval_cases'),
        ('{"data": {"cases": []}}', 1, "holds no list of cases"),
        ('{"cases": [{"input": "a"}], "tests": [{"input": "b"}]}', 1, "two lists of cases, 'cases' and 'tests'"),
        ("[" * 100_000, 1, "is nested far too deep"),
        ('[{"input": ' + "9" * 5000 + "}]", 1, "a number with more than 4,300 digits"),
    ],
)  # fmt: skip
def test_broken_json(write: Write, refusal: Refusal, content: str, line: int, message: str) -> None:
    """JSON that is not JSON is refused with the line and what is wrong there.

    Pitfall: comments, trailing commas, truncated arrays.
    """
    problem = refusal(write("x.json", content))[-1]
    assert problem.startswith(f"x.json:{line}: ")
    assert message in problem


def test_all_faults_of_json_lines_in_one_pass(write: Write, refusal: Refusal) -> None:
    """Every bad line is named at once, and what is right in between does not hide it.

    Pitfall: NaN and infinity; lone surrogates.
    """
    lines = [
        '{"input": "Q"}',
        '{"input": "Q",}',
        "",
        "[1]",
        '{"input": NaN}',
        '{"input": "Q", "score": 1e999}',
        '{"input": "Q"} {"input": "R"}',
        '{"input": "' + "[" * 5 + '", "x": ' + "[" * 101 + "]" * 101 + "}",
        '{"input": ' + "[" * 100_000,
        '{"input": ' + "9" * 5000 + "}",
        '{"input": "\\ud800"}',
        '{"input": "Q", "\\u0000": 1}',
        '{"input": "a\tb"}',
        "nonsense",
    ]
    problems = refusal(write("x.jsonl", "\n".join(lines)))
    expected = [
        (2, "record 2: is not valid JSON: "),
        (4, "record 3: must be an object with named fields, not [1]"),
        (5, "record 4: holds NaN, which is not a JSON number: write null"),
        (6, "record 5: holds 1e999"),
        (7, "record 6: is not valid JSON: more follows after the value, column 15"),
        (8, "record 7: is nested more than 100 levels deep"),
        (9, "record 8: is nested far too deep"),
        (10, "record 9: holds a number with more than 4,300 digits"),
        (11, "record 10: holds half a character (a lone surrogate) in "),
        (12, 'record 11: holds the character NUL in "\\u0000"'),
        (13, "record 12: is not valid JSON: Invalid control character"),
        (14, "record 13: is not valid JSON: Expecting value, column 1"),
    ]
    assert len(problems) == len(expected), problems
    for problem, (line, said) in zip(problems, expected, strict=True):
        assert problem.startswith(f"x.jsonl:{line}: {said}"), problem


def test_not_finite_numbers_in_json(write: Write, refusal: Refusal) -> None:
    """NaN and infinity are refused in an array too, each with its record, and reading goes on.

    Pitfall: NaN and infinity.
    """
    content = '[{"input": "Q", "n": NaN},\n{"input": "Q", "id": "b", "n": -Infinity},\n{"input": 3}, {"input": 1e400}]'
    problems = refusal(write("x.json", content))
    assert [problem.split(",")[0] for problem in problems] == [
        "x.json:1: record 1: holds NaN",
        "x.json:2: record 2: holds -Infinity",
        "x.json:3: record 4: holds 1e400",
    ]


def test_the_fiftieth_problem_is_the_last_one_listed(write: Write, refusal: Refusal) -> None:
    """At most fifty problems of a file are listed."""
    problems = refusal(write("x.jsonl", [{"input": [n]} for n in range(60)]))
    assert len(problems) == 51
    assert problems[-1] == "x.jsonl: ... and 10 more"


def test_a_command_counts_the_problems_that_it_does_not_list(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line has the number of all problems, the last line the number of unlisted ones."""
    path = write("x.jsonl", [{"input": [n]} for n in range(60)])
    monkeypatch.setattr("sys.argv", ["assay"])
    assert exit_status(click.Command("check", callback=open_dataset(path).check)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("60 problems:", "  x.jsonl: ... and 10 more")
    assert len(lines) == 52


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": None}, "record 2, question: is blank: every case needs a question"),
        ({"question": "  "}, "record 2, question: is blank"),
        ({"other": 1}, "record 2, input: is missing: every case needs a question"),
        ({"question": True}, "record 2, question: must be a string, not true"),
        ({"question": ["a", "b"]}, 'record 2, question: must be a string, not ["a", "b"]'),
        ({"question": {}}, "record 2, question: is blank"),
        ({"question": {"a": 1}, "variables": {"b": 2}}, "record 2, question: is an object of variables, and so is"),
        ({"question": "Q", "answer": {"text": "A"}}, "record 2, answer: must be a string or a list of strings, not"),
        ({"question": "Q", "answer": ["A", False]}, "record 2, answer[1]: must be a string, not false"),
        ({"question": "Q", "category": ["c"]}, 'record 2, category: must be a string, not ["c"]'),
        ({"question": "Q", "tags": {"a": 1}}, "record 2, tags: must be a string"),
        ({"question": "Q", "filters": "all"}, 'record 2, filters: must be an object, not "all"'),
        ({"question": "Q", "variables": [1]}, "record 2, variables: must be an object, not [1]"),
        ({"question": "Q", "id": ["x"]}, 'record 2, id: must be a string, not ["x"]'),
        ({"question": "Q", "id": "x" * 201}, "record 2, id: must have at most 200 characters, not 201"),
        ({"question": "Q", "id": "a\nb"}, "record 2, id: must not hold control characters: 'a\\nb'"),
        ({"question": "Q", "history": "hi"}, "record 2, history: must be a list of messages"),
        ({"question": "Q", "history": [{"role": "boss", "content": "x"}]}, "record 2, history[0]: must be a message"),
        (
            {"question": "Q", "history": [{"role": "user", "content": [1]}]},
            "record 2, history[0].content: must be a string",
        ),
        ({"question": "Q", "recorded": [1]}, "record 2, recorded: must be a string, not [1]"),
        (
            {"question": "Q", "recorded": {"text": []}},
            "record 2, recorded: is not a valid recorded answer: text must be a string, not a list",
        ),
        ({"turns": []}, "record 2, turns: must be a list of turns, not []"),
        ({"turns": [3]}, "record 2, turns[0]: must be an object with an input, not 3"),
        ({"turns": [{"input": ""}]}, "record 2, turns[0].input: is blank"),
        (
            {"turns": [{"input": "Q", "referense": "A"}]},
            "record 2, turns[0].referense: unknown field of a turn 'referense'; did you mean 'references'?",
        ),
        ({"turns": [{"input": "Q"}], "question": "R"}, "record 2, turns: is set beside an input"),
        ({"question": "Q" * (1024 * 1024)}, "record 2: is larger than 1 MiB"),
        ({"question": "ع" * (512 * 1024)}, "record 2: is larger than 1 MiB"),
        (
            {"question": "Q", "recorded": "a" * (2 * 1024 * 1024 + 1)},
            "record 2, recorded: the answer is larger than 2 MiB: shorten it",
        ),
    ],
)
def test_values_of_the_wrong_kind(write: Write, refusal: Refusal, record: dict[str, Any], message: str) -> None:
    """A value of the wrong kind is refused with line, record, field and value."""
    problem = only(refusal(write("x.jsonl", [GOOD, record])))
    assert problem.startswith(f"x.jsonl:2: {message}"), problem


def test_no_input_field(write: Write, refusal: Refusal) -> None:
    """A file without a question is refused with its fields, the expected names, and the nearest one."""
    problem = only(refusal(write("x.jsonl", [{"qestion": "Q", "answer": "A"}] * 3)))
    assert problem.startswith('x.jsonl:1: no field holds the question (fields found: "qestion", "answer"; read as')
    assert problem.endswith('say which it is, for example `map: {input: "qestion"}`')
    assert "say which field is the question" not in problem
    assert "say which field is the question: `map: {input: ...}`" in only(refusal(write("x.csv", "xx,yy\n1,2\n")))


def test_records_without_fields(write: Write, refusal: Refusal) -> None:
    """If no record has a field, the message says so, with and without a mapping."""
    name = write("x.jsonl", [{}, {}])
    assert "no field holds the question (fields found: none; read as" in only(refusal(name))
    assert 'no record has a field "frage"; fields found: none' in only(refusal(name, field_map={"input": "frage"}))


def test_explicit_duplicates(write: Write, refusal: Refusal) -> None:
    """A duplicate id is refused with both places."""
    problem = only(refusal(write("x.jsonl", [{"id": "a", **GOOD}, {"id": "b", **GOOD}, {"id": "a", **GOOD}])))
    assert problem.startswith('x.jsonl:3: record 3, id: "a" is the id of line 1 too: give every case an id of its own')
    assert "is the id of record 1 too" in only(refusal(write("x.json", [{"id": 1, **GOOD}, {"id": "1", **GOOD}])))


def test_a_late_contradiction_about_the_answer(write: Write, refusal: Refusal) -> None:
    """An `answer` that was the reference and then is set beside another reference must be mapped by the user."""
    records: list[dict[str, Any]] = [dict(GOOD) for _ in range(60)]
    records.append({"question": "Q", "answer": "said", "reference": "right"})
    problem = only(refusal(write("x.jsonl", records)))
    assert problem.startswith('x.jsonl:61: record 61, answer: is set beside "reference", unlike in earlier records')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"messages": [{"role": "user", "content": "Q"}]}], "looks like chat data for training"),
        ([{"conversations": [{"from": "human", "value": "Q"}]}], "looks like chat data for training"),
        ([{"item": {}}], "record 1, item: holds nothing"),
        ([{"sample": {"output_text": "A"}}], "record 1, sample: lacks the `item` that it answers"),
        ([{"datasource_item": {"q": "Q"}, "sample": {}}], "record 1, datasource_item: makes it a result"),
        ([{"vars": {"q": "Q"}, "options": {"transform": "x"}}], "options.transform: is code"),
        ({"tests": "file://tests.csv"}, "names its cases under 'tests' as \"file://tests.csv\", which is not opened"),
        ([{"input": "Q", "target": "A", "sandbox": "docker"}], "record 1, sandbox: needs a sandbox"),
        ([{"input": "Q", "target": "A", "files": {"a": "b"}}], "record 1, files: needs files in a sandbox"),
        ([{"eval_id": "a", "conversation_scenario": {"starting_prompt": "Q"}}], "lets a model play the user"),
        ([{"scenario": "A customer calls", "expected_outcome": "Calm", "turns": []}], "makes it a conversation"),
        ([{"input": "Q", "output_1": "a", "label": 1}, {"input": "Q", "output_1": "a", "output_2": None}], "output_2"),
    ],
)  # fmt: skip
def test_what_is_not_read_of_other_tools(write: Write, refusal: Refusal, content: Any, message: str) -> None:
    """What has no place in a case is refused by name, never misread or dropped.

    Pitfall: code in data.
    """
    problem = refusal(write("x.json", content))[-1]
    assert message in problem


def test_two_formats_that_fit_alike(write: Write, refusal: Refusal) -> None:
    """Records that fit two formats are refused until the user names one."""
    record = {"input": "Q", "ideal": "A", "target": "B"}
    (problem,) = refusal(write("x.jsonl", [record] * 3))
    assert problem == "x.jsonl:1: looks like openai-evals and inspect alike: set `format:` to the one that it is"
    (case,) = open_dataset(write("x.jsonl", [record]), format="inspect").cases()
    assert case.references == ("B",)
    assert case.expected == {"ideal": "A"}


def test_the_first_fifty_records_decide(write: Write, refusal: Refusal) -> None:
    """One record with marks that nothing else has decides; marks that plain records may have count from the half on."""
    plain: dict[str, Any] = {"input": "Q", "reference": "A"}
    assert open_dataset(write("x.jsonl", [plain, {**plain, "target": "A"}, plain])).check().format == "plain/jsonl"
    assert open_dataset(write("x.jsonl", [plain, {"input": "Q", "target": "A"}])).check().format == "inspect/jsonl"
    pair = {"input": "Q", "output_1": "a", "output_2": "b"}
    assert "record 1, output_1: is missing: a pair has two answers" in refusal(write("x.jsonl", [plain, pair]))[0]


def test_a_mapped_field_is_no_foreign_format(write: Write) -> None:
    """A mapped field is not taken as the mark of a format."""
    dataset = open_dataset(write("x.json", [{"vars": {"q": "Q"}}]), field_map={"variables": "vars"})
    assert [case.variables for case in dataset.cases()] == [{"q": "Q"}]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("question,answer\nQ,A\nQ,A,B\nR\n", 3, "record 2: has 3 cells, but the first row names 2 columns"),
        ('question,answer\n"a\nb",A\nR\n', 4, "record 2: has 1 cells, but the first row names 2 columns"),
        ('question,answer\nQ,A\n"never closed,A\nQ,B\n', 3, "is not valid CSV: unexpected end of data in the row that"),
        ('question,answer\nQ,"a" b\n', 2, "is not valid CSV: ',' expected after '\"'"),
        ("question,answer,answer\nQ,A,B\n", 1, 'names two columns "answer"'),
        ("question,answer\nQ,a\0b\n" + "Q,A\n" * 2000, 2, 'record 1: holds the character NUL in "a\\u0000b"'),
    ],
)
def test_broken_csv(write: Write, refusal: Refusal, content: str, line: int, message: str) -> None:
    """A table whose rows do not fit is refused with the physical line at which the row begins.

    Pitfall: ragged rows of CSV; multi-line cells.
    """
    # NUL in the first bytes would make the file no text at all.
    if "\0" in content:
        content = content.replace("Q,a", "Q" * 5000 + ",a")
    problem = refusal(write("x.csv", content))[0]
    assert problem.startswith(f"x.csv:{line}: {message}"), problem


def test_columns_without_a_name_may_be_empty(write: Write) -> None:
    """Empty, nameless columns at the right are ignored."""
    assert open_dataset(write("x.csv", "question,answer,,\nQ,A,,\nR,B\n")).check().case_count == 2


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("- &a {question: Q}\n- *a\n", 1, "uses an anchor (&)"),
        ("- question: Q\n- *a\n", 2, "alias"),
        (
            "- question: Q\n  answer: !!python/name:os.system x\n",
            1,
            "uses the tag tag:yaml.org,2002:python/name:os.system",
        ),
        ("- question: Q\n- !thing {question: Q}\n", 2, "uses the tag !thing"),
        ("- question: Q\n  question: R\n", 1, "question: is given twice"),
        ("- question: Q\n  score: .nan\n", 1, "score: must be a finite number, not .nan"),
        ("- question: Q\n  answer: [\n", 3, "is not valid YAML"),
        ("- question: Q\n---\n- question: R\n", 2, "holds more than one YAML document"),
        ("just a text\n", 1, "holds neither a list of cases nor a mapping"),
        ("things:\n- question: Q\n", 1, "holds no list of cases"),
        ("cases: []\ntests: 1\ntests: 2\n", 3, "gives 'tests' twice"),
        ("cases:\n- question: Q\ntests:\n- question: R\n", 4, "two lists of cases"),
        ("- question: Q\n  x: " + "[" * 60 + "]" * 60, 2, "is nested more than"),
        ("- question: 'a\x01b'\n", None, "is not valid YAML"),
    ],
)
def test_broken_yaml(write: Write, refusal: Refusal, content: str, line: int | None, message: str) -> None:
    """YAML that is wrong, or does more than hold data, is refused with its line.

    Pitfall: bombs of anchors in YAML.
    """
    problem = refusal(write("x.yaml", content))[0]
    assert problem.startswith(f"x.yaml:{line}: " if line else "x.yaml: "), problem
    assert message in problem


def test_all_faults_of_yaml_in_one_pass(write: Write, refusal: Refusal) -> None:
    """A fault in one item does not hide a fault in the next."""
    problems = refusal(write("x.yaml", "- question: Q\n  n: .inf\n- question: Q\n- question: [1]\n"))
    assert [problem.split(":")[1] for problem in problems] == ["1", "4"]


def test_oversized_records(write: Write, refusal: Refusal) -> None:
    """A record that no memory is kept for is refused in every container; JSON Lines go on after it."""
    huge = "x" * (9 * 1024 * 1024)
    lines = refusal(write("x.jsonl", f'{{"input": "{huge}"}}\n{{"input": 1}}\n{{"input": []}}\n'))
    assert lines[0] == "x.jsonl:1: record 1: is longer than 8 MiB"
    assert lines[1].startswith("x.jsonl:3: record 3, input: ")
    assert "x.json:2: record 1: is larger than 1 MiB" in only(refusal(write("x.json", f'[\n{{"input": "{huge}"}}]')))
    unclosed = f'[\n{{"input": "{huge}{huge}'
    assert "x.json:2: holds a value larger than 8 MiB, or a quote that is never" in only(
        refusal(write("x.json", unclosed))
    )
    assert "x.csv:2: is not valid CSV: a row longer than 8 MiB" in only(refusal(write("x.csv", f"input,a\n{huge},b\n")))
    assert "holds a record larger than 8 MiB" in only(refusal(write("x.yaml", f"- input: {huge}\n")))


def test_large_cells_are_read(write: Write) -> None:
    """A long cell is no fault as long as the case fits in a message.

    Pitfall: CSV fields of more than 131,072 characters.
    """
    assert open_dataset(write("x.csv", f"input,answer\nQ,{'a' * 1_000_000}\n")).check().reference_count == 1


def test_gzip_bombs(write: Write, refusal: Refusal) -> None:
    """A file that expands like a bomb is refused before it has been unpacked to the end.

    Pitfall: gzip bombs.
    """
    bomb = gzip.compress(b'{"input": "Q"}\n' + b" " * (20 * 1024 * 1024), 1)
    assert "expands more than 200-fold" in only(refusal(write("x.jsonl.gz", bomb)))


def test_limit_must_be_positive(write: Write, refusal: Refusal) -> None:
    """A limit below 1 is refused."""
    assert "the limit must be at least 1, not 0" in only(
        refusal(write("x.jsonl", [GOOD]), selection=CaseSelection(limit=0))
    )


def test_cases_checks_first(write: Write) -> None:
    """No case is given out of a dataset that is wrong further down.

    Pitfall: what is wrong further down is found before anything is spent.
    """
    dataset = open_dataset(write("x.jsonl", json.dumps(GOOD) + "\nnonsense\n"))
    with pytest.raises(DatasetError):
        next(dataset.cases())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"input": "Greater â‰¥ 5"}', "looks like UTF-8 that was read in another encoding"),
        ('{"input": "Ø§Ù„Ø³Ø¹ÙˆØ¯ÙŠØ©"}', "looks like UTF-8 that was read in another encoding"),
        ('{"input": "Q", "answer": "cafÃ©"}', "looks like UTF-8 that was read in another encoding"),
        ('{"input": "a\ufffdb"}', "holds U+FFFD where characters were lost"),
    ],
)  # fmt: skip
def test_warnings(write: Write, content: str, message: str) -> None:
    """What is odd but readable is told once, with its place.

    Pitfall: mojibake.
    """
    warnings = [str(warning) for warning in open_dataset(write("x.jsonl", content)).check().warnings]
    assert [warning for warning in warnings if message in warning and warning.startswith("x.jsonl:1: record 1")], (
        warnings
    )


@pytest.mark.parametrize("text", ["NÃO", "SÃO PAULO", "naïve café", "ما هي؟", "日本語", "smørrebrød Ø"])
def test_real_letters_are_no_mojibake(write: Write, text: str) -> None:
    """Letters that are typical of mojibake are valid in some languages."""
    assert open_dataset(write("x.jsonl", [{"input": text}])).check().warnings == ()


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_a_field_that_is_given_twice(write: Write, refusal: Refusal, name: str) -> None:
    """Readers differ in which of the two values they take: the record is refused, as in YAML.

    Pitfall: duplicate keys of JSON.
    """
    records = ['{"input": "Q", "input": "R"}', '{"input": "x", "x": {"a": 1, "a": 2}}']
    content = "\n".join(records) if name == "x.jsonl" else f"[{', '.join(records)}]"
    first, second = refusal(write(name, content))
    assert 'record 1: gives the field "input" twice: keep one of them' in first
    assert 'record 2: gives the field "a" twice: keep one of them' in second


def test_many_columns_take_no_longer_than_they_must(write: Write, refusal: Refusal) -> None:
    """Names are compared in one pass: two loops over 200,000 of them take minutes."""
    names = ["question", *(f"c{index}" for index in range(40_000))]
    dataset = open_dataset(write("x.json", [dict.fromkeys(names, "Q")]))
    assert [case.input for case in dataset.cases()] == ["Q"]
    assert "names 500,000 columns, more than 10,000" in only(refusal(write("x.csv", ",".join("c" * 500_000) + "\nQ\n")))
