"""The python adapter's options in a spec: `map` has the rules of an http agent's `response`."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import SpecError
from assay.specs.loader import spec_from_mapping


def agent_of(value: object) -> Any:
    """Return the settings of a Python agent with a map."""
    data = {"metrics": ["latency"], "agent": {"adapter": "python", "target": "agent:answer", "map": value}}
    return spec_from_mapping(data, needs_dataset=False).settings.agent


def test_a_map_names_answer_fields_and_expressions() -> None:
    """Every field of an answer may be found by an expression."""
    expressions = {"text": "reply.body", "sources": "docs[].{title: name, uri: url}", "usage": "{input_tokens: n}"}
    assert agent_of(expressions).options == {"map": expressions}


@pytest.mark.parametrize(
    ("value", "field", "said"),
    [
        ("text", "agent.map", "must be a mapping of names to strings"),
        ({"text": 1 < 2}, "agent.map.text", "must be a string"),
        ({"text": "a["}, "agent.map.text", "is not valid JMESPath"),
        ({"txt": "a"}, "agent.map.txt", "unknown answer field 'txt'; did you mean 'text'?"),
        ({"usage": "u"}, "agent.map", "must say where the answer's text is: add text: EXPRESSION"),
        ({}, "agent.map", "must say where the answer's text is"),
        ({"text": "|".join(["[@, @]"] * 30)}, "agent.map.text", "may produce too large a result"),
    ],
)
def test_a_wrong_map_is_refused_with_its_field(value: object, field: str, said: str) -> None:
    """What is wrong is found before anything is started, and says where."""
    with pytest.raises(SpecError) as refusal:
        agent_of(value)
    (problem,) = refusal.value.problems
    assert problem.field == field
    assert said in problem.message
