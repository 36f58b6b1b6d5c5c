"""The command adapter in a spec: command lines, options, and the programs that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.command.launcher import find_command
from assay.errors import InvalidInputError, SpecError
from assay.model.run import AgentSpec
from assay.specs.loader import spec_from_mapping

if TYPE_CHECKING:
    from pathlib import Path


def agent(**more: Any) -> AgentSpec:
    """Return the settings of a command in a spec."""
    data = {"dataset": "d", "metrics": ["exact_match"], "agent": {"adapter": "command", **more}}
    return spec_from_mapping(data).settings.agent


def problems(**more: Any) -> list[str]:
    """Return what is wrong with a command in a spec."""
    with pytest.raises(SpecError) as caught:
        agent(**more)
    return [f"{problem.field}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize("target", ["node 'my agent.js' --port=$HOME", ["node", "my agent.js", "--port=$HOME"]])
def test_a_command_is_a_line_or_a_list_of_words(target: str | list[str], tmp_path: Path) -> None:
    """A list becomes the line that is split into its words again; nothing in it means anything to a shell."""
    program = tmp_path / "node"
    program.touch(mode=0o755)
    line = agent(target=target).target.replace("node", "./node", 1)
    assert find_command(line, tmp_path) == ["./node", "my agent.js", "--port=$HOME"]


def test_as_many_questions_at_once_as_processes() -> None:
    """The default concurrency gives each process one question at a time; with one process each it is that of others."""
    assert agent(target="x").concurrency == 1
    assert agent(target="x", processes=4).concurrency == 4
    assert agent(target="x", processes=4, concurrency=8).concurrency == 8
    assert agent(target="x", mode="per_question").concurrency == 16


def test_every_mistake_is_named() -> None:
    """All mistakes are reported at once."""
    refused = problems(target="node 'agent.js", mode="both", processes=0, shell=True)
    assert refused == [
        (
            "agent.shell: unknown field of agent 'shell'; known: adapter, target, timeout, concurrency, retries, mode, "
            "processes, traces"
        ),
        (
            "agent.target: cannot be split into words (no closing quotation): quote them as in a shell, or give a "
            "list of words"
        ),
        "agent.mode: unknown mode 'both'; known: stream, per_question",
        "agent.processes: must be a whole number from 1 to 100, not 0",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "  "}, "agent.target: must be a command line"),
        ({"target": []}, "agent.target: must be a string"),
        ({"target": ["node", 3]}, "agent.target: must be a string"),
        ({"target": ["", "x"]}, "agent.target: must be a command line"),
        ({"target": "a\0b"}, "agent.target: holds a NUL character"),
        ({"target": "x", "processes": True}, "agent.processes: must be a whole number"),
        ({"target": "x", "processes": 2, "mode": "per_question"}, "agent.processes: a process answers one question"),
    ],
)
def test_what_is_no_command_is_refused(given: dict[str, Any], message: str) -> None:
    """Each has a sentence of its own."""
    assert any(problem.startswith(message) for problem in problems(**given))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no-such-program x", "there is no program 'no-such-program' on PATH: install it"),
        (
            "agent.sh",
            "there is no program 'agent.sh' on PATH: install it, or write ./agent.sh for the file in the spec",
        ),
        ("./missing", "missing: a name with a slash is found from the spec's folder"),
        ("./agent.sh", "agent.sh is not executable: `chmod +x` it, or name what runs it, e.g. 'sh ./agent.sh'"),
        ("./folder", "there is no program"),
    ],
)
def test_a_program_is_looked_for_before_a_run(target: str, message: str, tmp_path: Path) -> None:
    """What is missing is named with its remedy."""
    (tmp_path / "agent.sh").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInputError) as caught:
        find_command(target, tmp_path)
    (problem,) = caught.value.problems
    assert problem.field == "agent.target"
    assert message in problem.message
