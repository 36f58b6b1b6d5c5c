"""Variables that a spec names and that are not set where the agent is called from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.errors import SpecError
from assay.local_stack.stack import environment_for
from assay.specs.loader import load_spec, spec_from_mapping

HTTP = {"adapter": "http", "target": "http://127.0.0.1/${TENANT}"}


def problems_of(agent: dict[str, Any], environ: dict[str, str] | None) -> list[tuple[str, str]]:
    """Return field and first words of what is wrong with a spec that has this agent."""
    try:
        spec_from_mapping({"agent": agent, "metrics": ["latency"]}, needs_dataset=False, environ=environ)
    except SpecError as error:
        return [(problem.field, problem.message.partition(":")[0]) for problem in error.problems]
    return []


def unset(name: str) -> str:
    return f"the environment variable {name} is not set"


@pytest.mark.parametrize(
    ("agent", "environ", "hits"),
    [
        ({"adapter": "openai", "target": "m"}, {}, [("agent.api_key", unset("OPENAI_API_KEY"))]),
        ({"adapter": "openai", "target": "m"}, {"OPENAI_API_KEY": ""}, [("agent.api_key", unset("OPENAI_API_KEY"))]),
        ({"adapter": "openai", "target": "m"}, {"OPENAI_API_KEY": "k"}, []),
        ({"adapter": "anthropic", "target": "m"}, {}, [("agent.api_key", unset("ANTHROPIC_API_KEY"))]),
        ({"adapter": "anthropic", "target": "m", "api_key": "${MINE}"}, {}, [("agent.api_key", unset("MINE"))]),
        ({"adapter": "openai", "target": "m", "base_url": "http://127.0.0.1:1/v1"}, {}, []),
        (
            HTTP | {"headers": {"a": "Bearer ${TOKEN}"}, "body": {"x": ["${TOKEN}", {"y": "${OTHER}"}]}},
            {},
            [
                ("agent.target", unset("TENANT")),
                ("agent.headers.a", unset("TOKEN")),
                ("agent.body.x[1].y", unset("OTHER")),
            ],
        ),
        (HTTP, {"TENANT": "t"}, []),
        ({"adapter": "python", "target": "${A}.py:f"}, {}, []),
    ],
)
def test_a_variable_that_is_not_set_is_a_problem_of_the_spec(
    agent: dict[str, Any], environ: dict[str, str], hits: list[tuple[str, str]]
) -> None:
    """Each unset variable is reported once at its field; a user's own service needs no key by default."""
    assert problems_of(agent, environ) == hits
    assert problems_of(agent, None) == []


def test_it_is_told_beside_what_else_is_wrong(tmp_path: Path) -> None:
    """All problems of a spec come at once, with their lines; a wrong agent's variables come once it is right."""
    path = tmp_path / "assay.yaml"
    path.write_text("dataset: d.jsonl\nagent:\n  adapter: openai\n  target: m\n  api_key: ${K}\nmetrics: [nope]\n")
    with pytest.raises(SpecError) as caught:
        load_spec(path, environ={})
    assert {(problem.line, problem.field) for problem in caught.value.problems} == {
        (5, "agent.api_key"),
        (6, "metrics[0]"),
    }
    assert problems_of({"adapter": "openai", "target": "", "api_key": "${K}"}, {})[0][0] == "agent.target"


def test_another_machine_has_another_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variables of this machine say nothing about a server's."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    monkeypatch.setenv("SET_HERE", "1")
    assert environment_for("host:1") is None
    assert (environment_for(None) or {})["SET_HERE"] == "1"
    monkeypatch.setenv("ASSAY_HOME", "/dev/null/x")
    assert (environment_for(None) or {})["SET_HERE"] == "1"
