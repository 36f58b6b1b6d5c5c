"""What the formats of other tools share: cells of tables, messages, outputs."""

from __future__ import annotations

from typing import Any

import pytest

from assay.datasets.foreign.answers import recorded_in
from assay.datasets.foreign.messages import messages_of
from assay.datasets.values.cells import value_in_cell

SAID: dict[str, Any] = {"role": "assistant", "content": "said"}


@pytest.mark.parametrize(("depth", "read"), [(50, True), (51, False)])
def test_a_cell_is_read_to_fifty_levels(depth: int, read: bool) -> None:
    """Python's way of writing lists is read as deep as that; what is deeper stays a text."""
    cell = "[" * depth + "'a'" + "]" * depth
    assert isinstance(value_in_cell(cell), list) is read


@pytest.mark.parametrize(("brackets", "read"), [(2000, True), (2001, False)])
def test_a_cell_is_read_with_two_thousand_brackets(brackets: int, read: bool) -> None:
    """The parser is no match for texts that are made to exhaust it."""
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
    found = recorded_in(output, "outputs")
    assert found is not None
    assert (found["text"], found["output"]) == ("said", output)
