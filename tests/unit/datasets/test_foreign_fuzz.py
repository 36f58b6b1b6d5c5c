"""Records of any shape end in cases or in a DatasetError, whatever format they look like or are said to be."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import FORMAT_NAMES, open_dataset, records_dataset
from assay.datasets.values.cells import value_in_cell
from assay.errors import DatasetError
from assay.model.case import case_from_json, case_to_json
from assay.wire.case import case_from_wire, case_to_wire

_NAMES = [
    "input", "question", "query", "user_input", "inputs", "outputs", "expectations", "expected_response",
    "messages", "expected_output", "actual_output", "context", "contexts", "retrieval_context",
    "retrieved_contexts", "answer", "retrieved_context_ids", "tools_called", "expected_tools", "name",
    "arguments", "args", "function", "completion_time", "input_token_count", "additional_metadata",
    "ground_truth", "reference", "reference_contexts", "rubrics", "target", "reference_context_ids",
    "reference_tool_calls", "reference_answer", "query_by", "ideal", "item", "sample", "output_text", "choices",
    "files", "vars", "assert", "type", "value", "threshold", "options", "__expected", "metadata", "evaluators",
    "cases", "conversation", "user_content", "final_response", "intermediate_data", "toolUses", "parts", "text",
    "invocation_events", "content", "role", "data", "expected_tool_use", "tool_name", "tool_input",
    "session_input", "state", "initial_session", "eval_id", "id", "output_1", "output_2", "label", "tags",
    "category", "recorded", "turns", "scenario", "skip", "weight", "labels", "expected", "doc_uri",
    "expected_retrieved_context", "Q", "", "\ud800", "a_b", "messages", "history", "Frage", "Antwort", "truth",
    "references", "expected_sources", "answer_2", "Unnamed: 0",
]  # fmt: skip
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(
        [
            "user",
            "assistant",
            "human",
            "ai",
            "Q",
            "A",
            "1",
            "B",
            "{{a}}",
            "['a' 'b']",
            '{"a": 1}',
            "\ud800",
            "a;b",
            "http://a;b|c",
            "[{'role': 'user'}]",
        ]
    )
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=10,
)
_RECORDS = st.lists(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6), min_size=1, max_size=3)
_SKELETONS: dict[str, list[str]] = {
    "promptfoo": ["vars", "assert", "options", "threshold", "metadata"],
    "adk": ["eval_id", "conversation", "session_input", "data", "name", "query", "expected_tool_use"],
    "openai-evals": ["input", "ideal", "item", "sample"],
    "inspect": ["input", "target", "choices", "id", "metadata"],
    "ragas": [
        "user_input",
        "response",
        "reference",
        "retrieved_contexts",
        "reference_tool_calls",
        "reference_context_ids",
    ],
    "deepeval": [
        "input",
        "actual_output",
        "expected_output",
        "context",
        "tools_called",
        "expected_tools",
        "completion_time",
    ],
    "mlflow": ["inputs", "expectations", "outputs", "tags"],
    "langsmith": ["inputs", "outputs", "metadata", "id"],
    "pydantic-evals": ["name", "inputs", "expected_output", "evaluators", "metadata"],
    "llama-index": ["query", "reference_answer", "reference_contexts", "query_by"],
    "pairwise": ["input", "output_1", "output_2", "label", "instruction"],
}


def _look_at(error: DatasetError) -> None:
    assert error.problems
    assert all(problem.message for problem in error.problems)
    str(error).encode()


def _try(records: list[Any], **options: Any) -> None:
    dataset = records_dataset(records, **options)
    try:
        info = dataset.check()
    except DatasetError as error:
        _look_at(error)
        return
    cases = list(dataset.cases())
    assert len(cases) == info.case_count > 0
    assert len({case.case_id for case in cases}) == len(cases)
    for case in cases:
        json.dumps(case_to_json(case), ensure_ascii=False, allow_nan=False).encode()
        assert case_from_wire(case_to_wire(case)) == case
        assert case_from_json(case_to_json(case)) == case


@given(_RECORDS, st.none() | st.sampled_from(FORMAT_NAMES))
def test_any_records(records: list[dict[str, Any]], name: str | None) -> None:
    """Records of any shape are cases that fit wire and store, or problems."""
    _try(records, format=name)


@pytest.mark.parametrize("name", _SKELETONS)
@given(st.data())
def test_records_with_the_marks_of_a_format(name: str, data: st.DataObject) -> None:
    """The fields of a format with values of any kind are read or refused."""
    records = st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys(_SKELETONS[name], _VALUES)), min_size=1, max_size=3
    )
    _try(data.draw(records), format=data.draw(st.sampled_from([None, name])))


@given(st.lists(_VALUES, max_size=3), st.none() | st.sampled_from(FORMAT_NAMES))
def test_items_that_are_no_objects(items: list[Any], name: str | None) -> None:
    """Items that are not objects are refused."""
    _try(items, format=name)


@given(
    _RECORDS,
    st.dictionaries(st.sampled_from(["input", "references", "recorded", "id", "variables"]), st.sampled_from(_NAMES)),
    st.sampled_from(FORMAT_NAMES),
)
def test_any_mapping(records: list[dict[str, Any]], field_map: dict[str, str], name: str) -> None:
    """Any mapping of any format gives cases or problems."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_text(json.dumps(records), encoding="utf-8")
        try:
            open_dataset(path, field_map=field_map, format=name).check()
        except DatasetError as error:
            _look_at(error)


@given(st.text("[]{}'\",: \\\n#ab1\u0633", max_size=30).map(lambda text: f"[{text}]") | st.text(max_size=20))
def test_any_cell(cell: str) -> None:
    """A cell is the list or object that it holds, or the text that it is."""
    value = value_in_cell(cell)
    assert value == cell or isinstance(value, list | dict)
    json.dumps(value, allow_nan=False)
