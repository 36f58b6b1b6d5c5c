"""MLflow: rows of inputs, expectations and recorded outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

ROWS: list[dict[str, Any]] = [
    {
        "inputs": {"question": "What is MLflow?", "language": "en"},
        "expectations": {
            "expected_response": "A platform for machine learning.",
            "expected_facts": ["open source"],
            "guidelines": ["be brief"],
            "expected_retrieved_context": [{"doc_uri": "docs/intro.md"}, {"content": "no address"}],
        },
        "outputs": {"response": "MLflow is a platform.", "tokens": 9},
        "tags": {"team": "docs"},
        "dataset_record_id": "dr-1",
    },
    {
        "inputs": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "And Spark?"}]},
        "expectations": {"expected_facts": ["an engine"]},
        "outputs": {"choices": [{"message": {"role": "assistant", "content": "An engine."}}]},
    },
    {"inputs": {"topic": "llamas", "tone": "calm"}, "expectations": {}, "outputs": "A text."},
]


def test_rows(write: Write, wired: Read) -> None:
    """Expectations stay with the metrics; outputs are recorded answers, wherever in them the text is."""
    one, two, three = wired(write("x.jsonl", ROWS))
    assert (one.case_id, one.input, one.parameters) == ("dr-1", "What is MLflow?", {"language": "en"})
    assert one.references == ("A platform for machine learning.",)
    assert one.turns[0].expected_sources == ("docs/intro.md",)
    assert set(one.expected) == {"expected_facts", "guidelines", "expected_retrieved_context"}
    assert one.metadata == {"team": "docs"}
    assert one.recorded is not None
    assert one.recorded.text == "MLflow is a platform."
    assert (two.input, [message.content for message in two.turns[0].history]) == ("And Spark?", ["S"])
    assert two.recorded is not None
    assert two.recorded.text == "An engine."
    assert (three.input, three.variables) == ("", {"topic": "llamas", "tone": "calm"})
    info = open_dataset("x.jsonl").check()
    assert (info.format, info.case_count, info.reference_count, info.recorded_count) == ("mlflow/jsonl", 3, 1, 3)
    assert info.mapping["references"] == "expectations.expected_response"
    assert info.warnings == ()


def test_a_table(write: Write, wired: Read) -> None:
    """Objects in cells are read as JSON and as a data frame writes them."""
    content = (
        "inputs,expectations,outputs\n"
        '"{""question"": ""Q""}","{""expected_response"": ""A""}",said\n'
        "\"{'question': 'R'}\",\"{'expected_response': None, 'n': 1}\",\n"
    )
    one, two = wired(write("x.csv", content))
    assert (one.input, one.references) == ("Q", ("A",))
    assert one.recorded is not None
    assert (two.input, two.references, two.recorded) == ("R", (), None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"inputs": {"q": "Q"}, "expectations": "A"}, "expectations: must be an object"),
        (
            {"inputs": {"q": "Q"}, "expectations": {"expected_response": {}}},
            "expectations.expected_response: must be a string",
        ),
        (
            {"inputs": {"q": "Q"}, "expectations": {}, "outputs": {"a": "x", "b": "y"}},
            "outputs: must hold the answer's",
        ),
        ({"inputs": {"q": "Q"}, "expectations": {}, "outputs": 3.5}, ""),
        ({"inputs": [1], "expectations": {}}, "inputs[0]: must be a message with role and content"),
        ({"inputs": {}, "expectations": {}}, "input: is missing: every case needs a question"),
        ({"inputs": {"messages": [{"role": "user"}, 7]}, "expectations": {}}, "inputs.messages[1]: "),
    ],
)
def test_rows_that_are_refused(write: Write, refusal: Refusal, row: dict[str, Any], message: str) -> None:
    """A row that cannot be read is refused with file, line and field; a number is a text."""
    name = write("x.jsonl", [*ROWS, row])
    if not message:
        assert open_dataset(name).check().case_count == 4
        return
    (problem,) = refusal(name)
    assert problem.startswith(f"x.jsonl:4: record 4, {message}"), problem
