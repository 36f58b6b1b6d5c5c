"""Containers, aliases and the user's mapping: what is read, and as what."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import open_dataset, records_dataset
from assay.errors import DatasetError
from assay.model.answers.agent_response import AgentStatus, Message
from assay.model.case import Case, Turn, case_to_json
from assay.model.run_spec import CaseSelection

Write = Callable[..., str]
Read = Callable[..., list[Case]]

QUESTION = {"question": "ما هي أبرز الفعاليات؟", "answer": "مهرجان الرياض"}


def test_prompt_benchmark(write: Write, read: Read) -> None:
    """The ids, questions and reference answers of a prompt benchmark are read without a mapping."""
    name = write(
        "cases.json",
        {
            "version": 2,
            "eval_cases": [{"eval_id": "e1", "user_query": "Q?", "reference_answer": "A", "city": "Riyadh"}],
        },
    )
    info = open_dataset(name).check()
    assert info.format == "prompt-benchmark/json"
    assert info.mapping == {"id": "eval_id", "input": "user_query", "references": "reference_answer"}
    assert (info.case_count, info.reference_count, info.recorded_count) == (1, 1, 0)
    assert read(name) == [Case("e1", (Turn("Q?", references=("A",)),), metadata={"city": "Riyadh"})]


def test_rag_with_both_names_of_the_reference(write: Write, read: Read) -> None:
    """A rag file may name the reference `answer` in one line and `ground_truth` in another."""
    name = write("qa.jsonl", [QUESTION, {"question": "Q2", "ground_truth": "A2"}])
    info = open_dataset(name).check()
    assert info.mapping["references"] == "answer | ground_truth"
    assert [case.references for case in read(name)] == [("مهرجان الرياض",), ("A2",)]


@pytest.mark.parametrize("key", ["eval_cases", "examples", "tests", "cases", "data", "test_cases", "Test-Cases"])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_containers(write: Write, read: Read, key: str, suffix: str) -> None:
    """An object may hold the list under any of the known keys, with other things before and after it."""
    name = write(f"x.{suffix}", {"about": {"cases": 1}, key: [{"input": "Q"}, {"input": "R"}], "after": [1]})
    assert [case.input for case in read(name)] == ["Q", "R"]


@pytest.mark.parametrize("field", ["input", "question", "query", "user_query", "user_input", "prompt", "instruction"])
def test_input_aliases(write: Write, read: Read, field: str) -> None:
    """Every alias of the input is recognised, whatever its case and separators."""
    spelled = field.upper().replace("_", "-")
    assert [case.input for case in read(write("x.jsonl", [{field: "Q"}]))] == ["Q"]
    assert [case.input for case in read(write("x.jsonl", [{spelled: "Q"}]))] == ["Q"]


@pytest.mark.parametrize(
    "field",
    ["references", "reference", "reference_answer", "ground_truth", "ground_truths", "expected_answer",
     "expected_output", "expected", "expected_response", "ideal", "target", "answer"],
)  # fmt: skip
def test_reference_aliases(write: Write, read: Read, field: str) -> None:
    """Every alias of the reference is recognised; a list holds several right answers."""
    name = write("x.jsonl", [{"question": "Q", field: "A"}, {"question": "R", field: ["A", 7, None]}])
    assert [case.references for case in read(name)] == [("A",), ("A", "7")]


def test_canonical_names(write: Write, read: Read) -> None:
    """Assay's own names are read as their fields; unknown fields are kept."""
    record = {
        "id": 7,
        "input": "Q",
        "references": ["A", "B"],
        "history": [{"role": "user", "content": "earlier"}],
        "expected_sources": ["Page 1"],
        "variables": {"tone": "warm"},
        "parameters": {"city": "Riyadh"},
        "contexts": ["passage"],
        "category": "events",
        "tags": ["a", "b"],
        "expected": {"expected_table": "events"},
        "metadata": {"owner": "team"},
        "difficulty": 3,
        "recorded": {"text": "said", "latency_ms": 12.5, "events": ["E1"]},
    }
    (case,) = read(write("x.json", [record]))
    assert case.case_id == "7"
    assert case.turns == (Turn("Q", (Message("user", "earlier"),), ("A", "B"), ("Page 1",)),)
    assert (case.variables, case.parameters) == ({"tone": "warm"}, {"city": "Riyadh"})
    assert (case.contexts, case.category, case.tags) == (("passage",), "events", ("a", "b"))
    assert case.expected == {"expected_table": "events"}
    assert case.metadata == {"owner": "team", "difficulty": 3}
    assert case.recorded is not None
    assert (case.recorded.text, case.recorded.latency_ms) == ("said", 12.5)
    assert case.recorded.retrieved is not None


def test_stored_cases_are_read_back(write: Write, read: Read) -> None:
    """The output of `case_to_json` is a dataset, turns included."""
    case = Case("c", (Turn("one", references=("1",)), Turn("two", expected_sources=("s",))), tags=("t",))
    assert read(write("x.json", [case_to_json(case)])) == [case]


def test_recorded_answers_beside_a_reference(write: Write, read: Read) -> None:
    """`answer` is the recorded answer if another field is the reference, even if one record lacks it."""
    name = write(
        "x.jsonl", [{"question": "Q", "answer": "said", "reference": "right"}, {"question": "R", "answer": "x"}]
    )
    cases = read(name)
    assert [case.references for case in cases] == [("right",), ()]
    assert [case.recorded.text for case in cases if case.recorded] == ["said", "x"]
    assert open_dataset(name).check().recorded_count == 2


@pytest.mark.parametrize("field", ["output", "actual_output", "response", "recorded"])
def test_other_names_of_recorded_answers(write: Write, read: Read, field: str) -> None:
    """Recorded answers have several names, and an object is a whole answer."""
    value = {"text": "said", "status": "out_of_scope"}
    (case,) = read(write("x.jsonl", [{"question": "Q", "reference": "A", field: value}]))
    assert case.recorded is not None
    assert case.recorded.status is AgentStatus.OUT_OF_SCOPE
    assert case.references == ("A",)


def test_an_output_without_reference_is_recorded_with_a_warning(write: Write) -> None:
    """A `response` that may be right or merely given is recorded, with a warning."""
    info = open_dataset(write("x.jsonl", [{"question": "Q", "response": "A"}])).check()
    assert info.recorded_count == 1
    assert "map: {references: response}" in str(info.warnings[0])


def test_answers_never_reach_the_metadata(write: Write, read: Read) -> None:
    """Second references and everything under `expected` are hidden from agents, which see the metadata."""
    record = {"question": "Q", "reference": "A", "ground_truth": "B", "expected_table": "t", "note": "n"}
    (case,) = read(write("x.jsonl", [record]))
    assert case.references == ("A",)
    assert case.expected == {"expected_table": "t", "ground_truth": "B"}
    assert case.metadata == {"note": "n"}


def test_two_inputs_are_told(write: Write) -> None:
    """A choice between two possible questions is a warning that names both."""
    info = open_dataset(write("x.jsonl", [{"input": "Q", "prompt": "P"}] * 3)).check()
    (choice,) = [str(warning) for warning in info.warnings if "is read as input" in str(warning)]
    assert '"input" is read as input, "prompt" is not' in choice
    assert choice.endswith("(and 2 more)")


def test_variables_in_place_of_an_input(write: Write, read: Read) -> None:
    """A prompt template's cases hold variables, as `variables` or as an input that is an object."""
    name = write(
        "x.json", [{"variables": {"a": 1}}, {"input": {"b": [2]}, "expected": "E"}, {"vars": {"c": 3}, "expected": ""}]
    )
    cases = read(name)
    assert [case.variables for case in cases] == [{"a": 1}, {"b": [2]}, {"c": 3}]
    assert [case.input for case in cases] == ["", "", ""]


def test_field_map(write: Write, read: Read) -> None:
    """The user's mapping takes precedence over every alias; an empty name disables a field."""
    name = write("x.jsonl", [{"Frage": "Q", "input": "other", "Antwort": "A", "name": "n"}])
    options: dict[str, Any] = {"field_map": {"input": "frage", "reference": "Antwort", "id": ""}}
    (case,) = read(name, **options)
    assert (case.input, case.references) == ("Q", ("A",))
    assert len(case.case_id) == 12
    assert case.metadata == {"input": "other", "name": "n"}
    assert open_dataset(name, **options).check().mapping == {"input": "Frage", "references": "Antwort"}


def test_field_map_faults_are_named(write: Write, refusal: Callable[..., list[str]]) -> None:
    """An unknown canonical name is answered with the nearest, a missing source field with the fields there are."""
    name = write("x.jsonl", [{"question": "Q", "antwort": "A"}])
    assert refusal(name, field_map={"inptu": "question"}) == [
        "x.jsonl: map: unknown field in map 'inptu'; did you mean 'input'?"
    ]
    assert refusal(name, field_map={"references": "antwrot"}) == [
        'x.jsonl: map: references: no record has a field "antwrot"; did you mean "antwort"?'
    ]
    assert (
        'no record has a field "zzz"; fields found: "question", "antwort"'
        in refusal(name, field_map={"input": "zzz"})[0]
    )


def test_csv(write: Write, read: Read) -> None:
    """A row is a case; empty cells are absent, cells may span lines, objects and lists stand as JSON."""
    content = (
        "id,question,reference,tags,parameters,note\r\n"
        'a,"Q, with\r\nlines",A,"x, y","{""city"": ""Riyadh""}",\r\n'
        "\r\n"
        'b,"He said ""hi""",,,,n\r\n'
    )
    first, second = read(write("x.csv", content))
    assert first == Case(
        "a", (Turn("Q, with\r\nlines", references=("A",)),), parameters={"city": "Riyadh"}, tags=("x", "y")
    )
    assert second == Case("b", (Turn('He said "hi"'),), metadata={"note": "n"})


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_delimiters(write: Write, read: Read, delimiter: str) -> None:
    """The separator is found by the rows, not by guessing from letters.

    Pitfall: CSV sniffing.
    """
    rows = [["question", "answer"], ["one, two; three", "a|b\tc"], ["x", "y"]]
    content = "\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows)
    assert [case.input for case in read(write("x.csv", content))] == ["one, two; three", "x"]


def test_csv_with_one_column(write: Write, read: Read) -> None:
    """A file of one column is no reason to take a letter for the separator.

    Pitfall: CSV sniffing.
    """
    assert [case.input for case in read(write("x.csv", "question\nfoo boo\ngoo\n"))] == ["foo boo", "goo"]


def test_csv_texts_that_look_like_json(write: Write, read: Read) -> None:
    """A reference that is JSON by itself stays a text; only a column of several references holds lists."""
    assert read(write("x.csv", 'question,reference\nQ,"[""a"", ""b""]"\n'))[0].references == ('["a", "b"]',)
    assert read(write("x.csv", 'question,references\nQ,"[""a"", ""b""]"\n'))[0].references == ("a", "b")
    assert read(write("x.csv", "question,references\nQ,[1]\n"))[0].references == ("1",)


def test_tsv(write: Write, read: Read) -> None:
    """A .tsv file is cut at tabs only."""
    assert read(write("x.tsv", "question\tanswer\na, b\tc\n"))[0].references == ("c",)


def test_yaml_keeps_what_a_person_wrote(write: Write, read: Read) -> None:
    """`no` and dates are texts in YAML datasets, not booleans and date objects.

    Pitfall: YAML's `no` and dates.
    """
    content = (
        "- question: no\n  answer: 2024-05-01\n- question: 'yes'\n  answer: on\n- {question: 12, answer: !!str 7}\n"
    )
    cases = read(write("x.yaml", content))
    assert [(case.input, case.references) for case in cases] == [
        ("no", ("2024-05-01",)),
        ("yes", ("on",)),
        ("12", ("7",)),
    ]


def test_json_lines_under_another_name(write: Write, read: Read) -> None:
    """A .json file may hold one object per line, a .jsonl file an array, and no name need say anything."""
    lines = '{"question": "Q"}\n\n{"question": "R"}\n'
    array = '[\n{"question": "Q"},\n{"question": "R"}\n]'
    for name, content in (("a.json", lines), ("b.jsonl", array), ("c", lines), ("d.txt", array)):
        assert [case.input for case in read(write(name, content))] == ["Q", "R"], name


def test_a_single_object(write: Write, read: Read) -> None:
    """A single object that is a case is a dataset of one."""
    assert [case.input for case in read(write("x.json", '{\n "question": "Q",\n "answer": "A"\n}'))] == ["Q"]
    assert [case.input for case in read(write("x.yaml", "question: Q\n"))] == ["Q"]


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "yaml"])
def test_gzip(write: Write, read: Read, suffix: str) -> None:
    """Every container may be compressed."""
    plain = {"json": '[{"input": "Q"}]', "jsonl": '{"input": "Q"}', "csv": "input\nQ", "yaml": "- input: Q"}[suffix]
    name = write(f"x.{suffix}.gz", gzip.compress(plain.encode()))
    assert [case.input for case in read(name)] == ["Q"]
    assert open_dataset(name).check().format == f"plain/{suffix}.gz"


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "yaml"])
@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(write: Write, read: Read, suffix: str, codec: str) -> None:
    """A byte order mark says how to read a file, and is no part of it.

    Pitfall: UTF-8 BOM; UTF-16 from a spreadsheet.
    """
    plain = {"json": '[{"input": "س"}]', "jsonl": '{"input": "س"}', "csv": "input\nس", "yaml": "- input: س"}[suffix]
    name = write(f"x.{suffix}", plain.encode(codec))
    assert [case.input for case in read(name)] == ["س"]
    assert [case.input for case in read(name, encoding=codec.removesuffix("-sig"))] == ["س"]


def test_encodings(write: Write, read: Read) -> None:
    """An encoding that the user names is used."""
    name = write("x.csv", "question,answer\nأين؟,هنا\n".encode("cp1256"))
    assert read(name, encoding="cp1256")[0].references == ("هنا",)
    assert [
        case.input for case in read(write("x.jsonl", '{"input": "س"}'.encode("utf-16-le")), encoding="utf-16-le")
    ] == ["س"]


def test_line_separators_do_not_cut_json_lines(write: Write, read: Read) -> None:
    """U+2028, U+0085 and a lone carriage return are characters of a text, not ends of a line.

    Pitfall: U+2028 in JSON Lines.
    """
    text = "a\u2028b\u0085c\u000bd"
    assert [case.input for case in read(write("x.jsonl", [{"input": text}, {"input": "Q"}]))] == [text, "Q"]


def test_numbers_are_texts_where_texts_are_due(write: Write, read: Read) -> None:
    """A number as question or answer is its digits; big ones keep every digit.

    Pitfall: big integers.
    """
    (case,) = read(write("x.jsonl", '{"input": 12345678901234567890, "answer": 1.5, "n": 12345678901234567890}'))
    assert (case.input, case.references) == ("12345678901234567890", ("1.5",))
    assert case.metadata == {"n": 12345678901234567890}


def test_limit(write: Write, read: Read) -> None:
    """Only cases within the limit are checked and read."""
    name = write("x.jsonl", '{"input": "a"}\n{"input": "b"}\nnonsense\n')
    dataset = open_dataset(name, selection=CaseSelection(limit=2))
    assert dataset.check().case_count == 2
    assert [case.input for case in dataset.cases()] == ["a", "b"]


def test_info_names_the_bytes(write: Write) -> None:
    """The digest is that of the whole file, whatever the limit, so that a run can name what it read."""
    name = write("x.jsonl", [{"input": "a"}, {"input": "b"}])
    info = open_dataset(name, selection=CaseSelection(limit=1)).check()
    assert info.sha256 == hashlib.sha256(Path(name).read_bytes()).hexdigest()
    assert (info.name, info.path) == ("x.jsonl", Path("x.jsonl"))


def test_objects_in_memory() -> None:
    """Objects in memory are read like records, repeatedly, and without a file name in problems."""
    dataset = records_dataset(({"question": f"Q{i}", "answer": i} for i in range(3)), name="mine")
    info = dataset.check()
    assert (info.format, info.name, info.case_count, info.path) == ("plain/objects", "mine", 3, None)
    assert [case.references for case in dataset.cases()] == [("0",), ("1",), ("2",)]
    assert list(dataset.cases()) == list(dataset.cases())
    with pytest.raises(DatasetError) as caught:
        records_dataset([{"question": "Q", "x": b"1"}, {"question": float("nan")}, {"question": "\ud800"}, 5]).check()
    places = [str(problem).split(":")[0] for problem in caught.value.problems]
    assert places == ["record 1, x", "record 2, input", "record 3", "record 4"]


def test_two_readers_at_once(write: Write) -> None:
    """Iterators over the cases of one dataset do not disturb each other."""
    dataset = open_dataset(write("x.jsonl", [{"input": str(n)} for n in range(5)]))
    one, two = dataset.cases(), dataset.cases()
    assert [(a.input, b.input) for a, b in zip(one, two, strict=True)] == [(str(n), str(n)) for n in range(5)]


def test_a_file_that_changes_is_refused(write: Write) -> None:
    """A file that changes after the check is refused."""
    name = write("x.jsonl", [{"input": "a"}])
    dataset = open_dataset(name)
    dataset.check()
    write(name, [{"input": "a"}, {"input": "b"}])
    with pytest.raises(DatasetError, match=r"x\.jsonl: has changed since it was checked: start again"):
        list(dataset.cases())


def test_the_quick_way_and_the_long_way_agree(write: Write, read: Read) -> None:
    """The short cut for plain records gives the same cases as full reading."""
    plain: dict[str, Any] = {"id": " a ", "question": " Q ", "answer": "A", "category": "c", "x": 1}
    (quick,) = read(write("x.jsonl", [plain]))
    (long,) = read(write("x.jsonl", [plain | {"tags": None}]))
    assert json.dumps(case_to_json(quick)) == json.dumps(case_to_json(long))


@pytest.mark.parametrize("spaces", [70_000, 1_000_000])
def test_a_file_may_begin_with_much_space(write: Write, read: Read, spaces: int) -> None:
    """The first text of a file decides its kind, however late it comes."""
    assert [case.input for case in read(write("x.json", " " * spaces + '[{"input": "Q"}]'))] == ["Q"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", '[{"question": "q"}]'), ("x.jsonl", '{"question": "q"}\n'), ("x.csv", "question\nq\n"),
        ("x.yaml", "- question: q\n"),
    ],
)  # fmt: skip
def test_a_file_may_begin_with_many_blank_lines(write: Write, read: Read, name: str, text: str) -> None:
    """Only a file of nothing but blank lines is empty."""
    (case,) = read(write(name, 70_000 * "\n" + text))
    assert case.input == "q"
