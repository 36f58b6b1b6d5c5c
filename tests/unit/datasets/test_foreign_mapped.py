"""What every format has in common: containers, the user's own format and mapping, and what is shown of both."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from assay.datasets import FORMAT_NAMES, open_dataset, records_dataset
from assay.datasets.counts import count_cases
from assay.datasets.foreign import FORMATS
from assay.datasets.foreign.answers import recorded_in
from assay.datasets.foreign.messages import messages_of
from assay.datasets.values.cells import value_in_cell
from assay.model.case import Case
from assay.specs.loader import spec_from_mapping

if TYPE_CHECKING:
    from pathlib import Path

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

RECORDS: dict[str, dict[str, Any]] = {
    "promptfoo": {"vars": {"question": "Q"}, "assert": [{"type": "equals", "value": "A"}]},
    "adk": {"eval_id": "a", "conversation": [{"user_content": "Q", "final_response": "A"}]},
    "openai-evals": {"input": "Q", "ideal": "A"},
    "inspect": {"input": "Q", "target": "A"},
    "ragas": {"user_input": "Q", "reference": "A"},
    "deepeval": {"input": "Q", "expected_output": "A"},
    "mlflow": {"inputs": {"question": "Q"}, "expectations": {"expected_response": "A"}},
    "langsmith": {"inputs": {"question": "Q"}, "outputs": {"answer": "A"}},
    "pydantic-evals": {"inputs": "Q", "expected_output": "A"},
    "llama-index": {"query": "Q", "reference_answer": "A", "query_by": {"type": "human"}},
    "pairwise": {"input": "Q", "output_1": "A", "output_2": "B", "label": 1},
    "assay-results": {
        "case_id": "c",
        "repeat": 1,
        "status": "success",
        "question": "Q",
        "answer": "A",
        "references": ["A"],
        "scores": {"exact_match": {"value": 1.0}},
        "response": {"model": "m"},
    },
}


def test_every_format_is_here() -> None:
    """Every format has a record in this table."""
    assert list(RECORDS) == [each.name for each in FORMATS]
    assert ("plain", "prompt-benchmark", *RECORDS) == FORMAT_NAMES
    assert ("plain", "prompt-benchmark", *(each.name for each in FORMATS)) == FORMAT_NAMES


def _look_at(case: Case, name: str) -> None:
    assert case.input == "Q"
    if name == "pairwise":
        assert case.human_labels["output_1"] == "A"
    else:
        assert case.references == ("A",)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("container", ["json", "jsonl", "yaml", "json.gz", "jsonl.gz", "yaml.gz"])
def test_containers(write: Write, wired: Read, name: str, container: str) -> None:
    """Every format is recognised and read in every container, compressed or not."""
    lines = json.dumps(RECORDS[name])
    content = (lines if container.startswith("jsonl") else f"[{lines}]").encode()
    file = write(f"x.{container}", gzip.compress(content) if container.endswith("gz") else content)
    assert open_dataset(file).check().format == f"{name}/{container}"
    (case,) = wired(file)
    _look_at(case, name)


@pytest.mark.parametrize("name", RECORDS)
def test_parquet(tmp_path: Path, wired: Read, name: str) -> None:
    """Every format is recognised and read in a parquet file, whose rows hold objects and lists."""
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([RECORDS[name]]), path)
    assert open_dataset(path).check().format == f"{name}/parquet"
    (case,) = wired(path)
    _look_at(case, name)


@pytest.mark.parametrize("name", RECORDS)
def test_objects_in_memory(name: str) -> None:
    """Objects in memory are recognised like records of a file, and read in the named format."""
    dataset = records_dataset([RECORDS[name]])
    assert dataset.check().format == f"{name}/objects"
    _look_at(next(iter(dataset.cases())), name)
    _look_at(next(iter(records_dataset([RECORDS[name]], format=name).cases())), name)


@pytest.mark.parametrize("name", RECORDS)
def test_a_spec_says_format_and_fields(write: Write, name: str) -> None:
    """`format` and `map` of a spec go before what the records look like, and the outcome shows them."""
    file = write("x.json", [{**RECORDS[name], "topic": "t"}])
    data = {"dataset": file, "agent": {"adapter": "replay"}, "metrics": ["exact_match"]}
    spec = spec_from_mapping({**data, "format": name, "map": {"category": "topic", "id": ""}})
    assert spec.dataset is not None
    dataset = open_dataset(spec.dataset, field_map=spec.dataset_map, format=spec.dataset_format)
    info = dataset.check()
    assert info.format == f"{name}/json"
    counts, first = count_cases(dataset.cases())
    assert first is not None
    assert info.mapping["category"] == "topic"
    assert counts.categories == {"t": 1}
    _look_at(first, name)
    assert len(first.case_id) == 12


def test_plain_by_name(write: Write, read: Read) -> None:
    """`format: plain` reads fields by their names alone, whatever the records look like."""
    name = write("x.jsonl", [RECORDS["deepeval"]])
    assert open_dataset(name, format="plain").check().format == "plain/jsonl"
    assert open_dataset(name, format="prompt-benchmark").check().format == "prompt-benchmark/jsonl"
    (case,) = read(write("x.jsonl", [RECORDS["mlflow"]]), format="plain", field_map={"input": "inputs"})
    assert case.variables == {"question": "Q"}


def test_another_format_by_name(write: Write, refusal: Refusal) -> None:
    """The named format is used, even if another one fits: records that do not fit are refused."""
    name = write("x.jsonl", [RECORDS["deepeval"]])
    assert refusal(name, format="adk")[0].startswith("x.jsonl:1: record 1, conversation: must be a list of turns")
    (problem,) = refusal(name, format="deepval")
    assert problem.startswith("x.jsonl: format: unknown format 'deepval'; did you mean 'deepeval'?")


def test_mapped_fields_of_inputs(write: Write, read: Read) -> None:
    """A mapped field is found in a record's inputs too; what would have been the question goes along with it."""
    record = {"inputs": {"question": "Q", "text": "T", "kind": "k"}, "expectations": {"expected_response": "A"}}
    (case,) = read(write("x.json", [record]), field_map={"input": "Text", "category": "kind"})
    assert (case.input, case.category, case.parameters) == ("T", "k", {"question": "Q"})
    assert case.references == ("A",)


def test_mapping_what_no_record_has(write: Write, refusal: Refusal) -> None:
    """A mapped field that no record has is a mistake in every format."""
    name = write("x.json", [RECORDS["mlflow"]])
    assert refusal(name, field_map={"category": "kind"}) == ['x.json: map: category: no record has a field "kind"']


def test_the_outcome_is_shown(write: Write) -> None:
    """The mapping names the file's own fields, also those that Assay knows by itself."""
    record = {**RECORDS["deepeval"], "category": "c", "actual_output": "said", "topic": "t"}
    info = open_dataset(write("x.json", [record]), field_map={"tags": "topic"}).check()
    assert info.mapping == {
        "input": "input",
        "references": "expected_output",
        "recorded": "actual_output",
        "category": "category",
        "tags": "topic",
    }


def test_nothing_is_dropped(write: Write, read: Read) -> None:
    """Unknown fields are kept: those about the answer for metrics only, the others as metadata."""
    extra = {"note": "n", "gold_sql": "SELECT 1", "expected_rows": [1], "empty": None}
    for name, record in RECORDS.items():
        (case,) = read(write("x.json", [{**record, **extra}]), format=name)
        told = {**case.metadata, **case.expected}
        assert told["note"] == "n", name
        assert told["expected_rows"] == [1], name
        assert "expected_rows" not in case.metadata, name
        assert told["gold_sql"] == "SELECT 1", name


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"\0checks": 5}, "holds the character NUL"),
        ({"note": "\ud800"}, "holds half a character"),
        ({"note": "DEEP"}, "is nested more than 100 levels deep"),
    ],
)
def test_what_no_wire_takes(write: Write, refusal: Refusal, name: str, extra: dict[str, Any], message: str) -> None:
    """NUL, half characters and deep nesting are refused before a format's own reading comes across them.

    Pitfall: lone surrogates.
    """
    deep = "[" * 400 + "]" * 400
    content = json.dumps([RECORDS[name], {**RECORDS[name], **extra}]).replace('"DEEP"', deep)
    (problem,) = refusal(write("x.json", content))
    assert problem.startswith(f"x.json:1: record 2: {message}"), problem
    turn = {"query": "Q", "expected_tool_use": []}
    if name == "adk":
        content = json.dumps([turn, {**turn, **extra}]).replace('"DEEP"', deep)
        assert refusal(write("x.test.json", content))[0].startswith(f"x.test.json:1: record 2: {message}")


SAID: dict[str, Any] = {"role": "assistant", "content": "said"}


@pytest.mark.parametrize(("depth", "read"), [(50, True), (51, False)])
def test_a_cell_is_read_to_fifty_levels(depth: int, read: bool) -> None:
    """Python lists are read up to fifty levels; deeper ones stay text."""
    cell = "[" * depth + "'a'" + "]" * depth
    assert isinstance(value_in_cell(cell), list) is read


@pytest.mark.parametrize(("brackets", "read"), [(2000, True), (2001, False)])
def test_a_cell_is_read_with_two_thousand_brackets(brackets: int, read: bool) -> None:
    """A text made to exhaust the parser is read in time."""
    cell = "[" + ", ".join(["['a']"] * (brackets - 1)) + "]"
    assert isinstance(value_in_cell(cell), list) is read


def test_a_message_keeps_whose_it_is_and_what_it_answers() -> None:
    """The name of who speaks and the call that a tool's message answers; nothing where there is neither."""
    messages = [{"role": "tool", "content": "42", "name": "look", "tool_call_id": "c1"}, {**SAID, "name": ""}]
    assert messages_of(messages, "m") == [
        {"role": "tool", "content": "42", "name": "look", "tool_call_id": "c1"},
        {"role": "assistant", "content": "said"},
    ]


@pytest.mark.parametrize(
    "output",
    [
        {"choices": [{"message": SAID}], "id": 1},
        {"messages": [{"role": "user", "content": "q"}, SAID], "id": 1},
    ],
)
def test_the_last_message_of_an_output_is_its_text(output: dict[str, Any]) -> None:
    """Outputs as providers give them, and as agents do that return their whole conversation."""
    recorded = recorded_in(output, "outputs")
    assert recorded is not None
    assert (recorded["text"], recorded["output"]) == ("said", output)
