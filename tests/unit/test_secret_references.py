"""References to secrets: no name is ever a path, and every spelling is either a reference or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import Problem
from assay.model.run import AgentSpec
from assay.parsing.secret_references import REFERENCE, SecretReference, form_problem, parse_path
from assay.specs.agents import check_agent
from assay.specs.judge_reader import JudgesReader
from assay.specs.variables import NAMED


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("search/agent-key", SecretReference("search", "agent-key")),
        ("agent-key", SecretReference("", "agent-key")),
        ("a/b.c_D-9", SecretReference("a", "b.c_D-9")),
        ("", None),
        ("/", None),
        ("a/", None),
        ("/b", None),
        ("a/b/c", None),
        ("..", None),
        ("a/..", None),
        ("../b", None),
        ("a/.b", None),
        ("a/b.", None),
        ("A/b", None),
        ("a/b\n", None),
        ("a/é", None),
        ("a/" + "x" * 129, None),
        ("a" * 64 + "/b", None),
    ],
)
def test_paths_of_references(path: str, expected: SecretReference | None) -> None:
    """A team and a name, or a name alone; nothing that leaves the folder of the team."""
    assert parse_path(path) == expected
    assert (form_problem(path) == "") is (expected is not None)


@given(st.text(alphabet="ab./\\-_%A9 \n\0", max_size=12))
def test_no_reference_leaves_its_folder(path: str) -> None:
    """Whatever is written, team and name are plain names of one folder and one file."""
    reference = parse_path(path)
    for part in () if reference is None else filter(None, (reference.team, reference.name)):
        assert part not in (".", "..")
        assert not set(part) & set("/\\\0%\n ")


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("Bearer secret://search/key", ["search/key"]),
        ("secret://key", ["key"]),
        ("https://h/?a=secret://t/k&b=${secret://k2}x", ["t/k", "k2"]),
        ("${secret://t/k}secret://t/k", ["t/k", "t/k"]),
        ("secret:/key and Secret://key", []),
    ],
)
def test_references_in_a_text(text: str, hits: list[str]) -> None:
    """References stand anywhere in a text, in braces where letters follow."""
    assert [each[1] or each[2] for each in REFERENCE.finditer(text)] == hits
    assert len(list(NAMED.finditer(text))) == len(hits)


@pytest.mark.parametrize(
    ("adapter", "target", "options", "field"),
    [
        ("http", "http://h/", {"headers": {"x-key": "secret://a/b/c"}}, "agent.headers.x-key"),
        ("http", "http://h/", {"body": {"k": ["secret://"]}}, "agent.body.k[0]"),
        ("http", "http://h/?k=${secret://../../etc/passwd}", {}, "agent.target"),
        ("grpc", "h:1", {"metadata": {"authorization": "Bearer secret://Team/x"}}, "agent.metadata.authorization"),
        ("openai", "m", {"api_key": "secret://a/b/c"}, "agent.api_key"),
    ],
)
def test_what_is_no_reference_is_refused_with_its_field(
    adapter: str, target: str, options: dict[str, object], field: str
) -> None:
    """Otherwise the text itself would be sent in place of a key."""
    problems = check_agent(AgentSpec(adapter, target, options=options))
    assert field in [problem.field for problem in problems if "secret://" in problem.message]


def test_a_header_with_a_credential_may_be_a_secret() -> None:
    """A literal value is refused, as it would be stored with the run."""
    for value, problems in (("secret://key", []), ("Bearer secret://t/key", []), ("Bearer abc", ["agent.headers.x"])):
        options = {"headers": {"authorization": value}}
        found = check_agent(AgentSpec("http", "http://h/", options=options))
        assert len(found) == len(problems)


def test_the_key_of_a_judge_may_be_a_secret() -> None:
    """Its form is checked with the spec; no variable is missed then."""
    for key, count in (("secret://openai", 0), ("secret://search/openai", 0), ("secret://a/b/c", 1)):
        problems: list[Problem] = []
        JudgesReader(Path(), problems).read({"judge": {"provider": "openai", "model": "m", "key_variable": key}})
        assert len(problems) == count
