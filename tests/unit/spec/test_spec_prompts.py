"""Specs of the openai and anthropic adapters: their options, and prompts from files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.errors import SpecError
from assay.model.run import AgentSpec
from assay.specs.agents import ADAPTERS, check_agent
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.prompt_options import PROMPT_KEYS, PROVIDERS


def read(tmp_path: Path, adapter: str = "openai", **options: Any) -> AgentSpec:
    """Return the agent of a spec with these options."""
    agent = {"adapter": adapter, "target": "some-model", **options}
    data = {"dataset": "d.jsonl", "agent": agent, "metrics": ["exact_match"]}
    return spec_from_mapping(data, base_dir=tmp_path).settings.agent


def test_every_provider_fills_a_prompt() -> None:
    """What a run does with a prompt, e.g. name its price, is the same for every provider of a spec."""
    assert {name for name in ADAPTERS if AgentSpec(name).fills_prompt} == set(PROVIDERS)


def test_a_prompt_file_travels_as_text_with_its_name_and_hash(tmp_path: Path) -> None:
    """The orchestrator never reads files of its users; the run says which file it was."""
    content = "\ufeffLabel this:\r\n{{ticket}}\r\n".encode()
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.md").write_bytes(content)
    (tmp_path / "s.txt").write_text("Be brief.")
    options = read(tmp_path, prompt_file="prompts/a.md", system_file="s.txt", temperature=0).options
    assert options == {
        "prompt": "Label this:\n{{ticket}}",
        "prompt_file": "prompts/a.md",
        "prompt_sha256": hashlib.sha256(content).hexdigest(),
        "system": "Be brief.",
        "system_file": "s.txt",
        "system_sha256": hashlib.sha256(b"Be brief.").hexdigest(),
        "temperature": 0,
    }


def test_the_least_that_a_prompt_needs(tmp_path: Path) -> None:
    """A model is enough: the question is then the message."""
    assert read(tmp_path).options == {}


@pytest.mark.parametrize(
    ("adapter", "options", "field", "message"),
    [
        ("openai", {"target": ""}, "agent.target", "id of a model"),
        ("openai", {"api_key": "sk-secret"}, "agent.api_key", r"written as \$\{OPENAI_API_KEY\}"),
        ("anthropic", {"api_key": "x ${KEY}"}, "agent.api_key", "ANTHROPIC_API_KEY"),
        ("openai", {"base_url": "ftp://x"}, "agent.base_url", "http or https"),
        ("openai", {"base_url": "http://a b"}, "agent.base_url", "http or https"),
        ("openai", {"base_url": 8000}, "agent.base_url", "must be a URL"),
        ("openai", {"base_url": "http://me:sk-secret@x/v1"}, "agent.base_url", "api_key"),
        ("openai", {"base_url": "htp://me:sk-secret@x y"}, "agent.base_url", "api_key"),
        ("openai", {"base_url": "http://me:sk-secret@[x"}, "agent.base_url", "api_key"),
        ("openai", {"base_url": "http://x/v1?key=sk-secret"}, "agent.base_url", "must end with its path"),
        ("openai", {"base_url": "http://X.example/v1"}, "agent.base_url", "lower-case"),
        ("openai", {"base_url": "http://x/v1?a=b"}, "agent.base_url", "must end with its path"),
        ("openai", {"base_url": "http://x/v1/chat/completions"}, "agent.base_url", "must not end with"),
        ("anthropic", {"base_url": "http://x/v1/"}, "agent.base_url", "must not end with /v1"),
        ("openai", {"prompt": "Hello"}, "agent.prompt", "no {{variable}}"),
        ("openai", {"prompt": "Hello {input}"}, "agent.prompt", "write {{input}}"),
        ("openai", {"prompt": "{{input}} {{x}"}, "agent.prompt", "without }}"),
        ("openai", {"prompt": ["x"]}, "agent.prompt", "must be a string"),
        ("openai", {"prompt": "  "}, "agent.prompt", "empty"),
        ("openai", {"prompt": "{{x}}", "prompt_file": "a.md"}, "agent.prompt_file", "keep one"),
        ("openai", {"prompt_file": "nowhere.md"}, "agent.prompt_file", "no file 'nowhere.md'"),
        ("openai", {"system_file": "latin.md"}, "agent.system_file", "not UTF-8"),
        ("openai", {"prompt_file": "."}, "agent.prompt_file", "cannot be read"),
        ("openai", {"prompt_file": 3}, "agent.prompt_file", "file name"),
        ("openai", {"max_tokens": 0}, "agent.max_tokens", "whole number"),
        ("openai", {"temperature": 2.5}, "agent.temperature", "from 0 to 2"),
        ("anthropic", {"temperature": 1.5}, "agent.temperature", "from 0 to 1"),
        ("openai", {"temperature": True}, "agent.temperature", "number"),
        ("openai", {"extra": [1]}, "agent.extra", "mapping"),
        ("openai", {"extra": {"a": float("nan")}}, "agent.extra", "what JSON can hold"),
        ("openai", {"extra": {"a": "\ud800"}}, "agent.extra", "what JSON can hold"),
        ("openai", {"extra": {"a": "x" * 100_001}}, "agent.extra", "100,000 bytes"),
        ("openai", {"extra": {"max_tokens": 5}}, "agent.extra.max_tokens", "use agent.max_tokens"),
        ("openai", {"extra": {"stream": True}}, "agent.extra.stream", "use agent.stream"),
        ("openai", {"extra": {"n": 2}}, "agent.extra.n", "adapter sets it"),
        (
            "openai",
            {"extra": {"max_completion_tokens": 2}},
            "agent.extra.max_completion_tokens",
            "use agent.max_tokens",
        ),
        ("openai", {"api": "responses", "extra": {"input": "x"}}, "agent.extra.input", "use agent.prompt"),
        ("openai", {"api": "responses", "extra": {"background": True}}, "agent.extra.background", "adapter sets it"),
        ("openai", {"api": "assistants"}, "agent.api", "must be chat or responses"),
        ("anthropic", {"api": "chat"}, "agent.api", "must be one of messages"),
        ("openai", {"base_url": "http://x/v1/responses"}, "agent.base_url", "must not end with /responses"),
        ("openai", {"stream": "yes"}, "agent.stream", "must be true or false"),
        ("openai", {"headers": ["x"]}, "agent.headers", "must be a mapping"),
        ("openai", {"headers": {"api-key": "sk-secret"}}, "agent.headers.api-key", r"as in \$\{NAME\}"),
        ("openai", {"headers": {"Host": "x"}}, "agent.headers.Host", "set by Assay"),
        ("openai", {"headers": {"x y": "z"}}, "agent.headers.x y", "not a valid header"),
        ("openai", {"query": {"a": [1]}}, "agent.query.a", "must be a string"),
        ("openai", {"prices": 3}, "agent.prices", "must be a mapping such as {input: 2.5, output: 10}"),
        ("openai", {"prices": "cheap"}, "agent.prices", "must be a mapping such as"),
        ("openai", {"prices": {"input": 1}}, "agent.prices.output", "is missing"),
        ("openai", {"prices": {"input": -1, "output": 1}}, "agent.prices.input", "not negative"),
        ("openai", {"prices": {"input": 1, "output": 1, "inptu": 1}}, "agent.prices.inptu", "did you mean 'input'"),
        ("openai", {"prices": {"input": 1, "output": 1, "batch": 1}}, "agent.prices.batch", "unknown price"),
        ("openai", {"prices": "list"}, "agent.prices", "no list price of 'some-model'"),
        (
            "openai",
            {"prices": "list", "target": "gpt-4o", "base_url": "http://x/v1"},
            "agent.prices",
            "no list price at http://x/v1",
        ),
        ("anthropic", {"extra": {"model": "x"}}, "agent.extra.model", "use agent.target"),
        ("openai", {"promptt": "x"}, "agent.promptt", "did you mean 'prompt'"),
        ("openai", {"prompt_sha256": "x"}, "agent.prompt_sha256", "unknown field"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path, adapter: str, options: dict[str, Any], field: str, message: str
) -> None:
    """Each mistake is one sentence about one field, and a key is never repeated."""
    (tmp_path / "latin.md").write_bytes("schön".encode("latin-1"))
    with pytest.raises(SpecError, match=message) as caught:
        read(tmp_path, adapter, **options)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["headers", "query"])
def test_variables_of_a_service_are_looked_for_before_anything_is_sent(tmp_path: Path, name: str) -> None:
    """A gateway's key that is not set is found by `assay validate`."""
    agent = {"adapter": "openai", "target": "m", "base_url": "http://x/v1", name: {"api-key": "${AZURE_KEY}"}}
    data = {"dataset": "d.jsonl", "agent": agent, "metrics": ["exact_match"]}
    with pytest.raises(SpecError, match="AZURE_KEY is not set") as caught:
        spec_from_mapping(data, base_dir=tmp_path, environ={})
    assert [problem.field for problem in caught.value.problems] == [f"agent.{name}.api-key"]
    assert spec_from_mapping(data, base_dir=tmp_path, environ={"AZURE_KEY": "k"}).settings.agent.options[name]


def test_a_list_price_needs_no_numbers(tmp_path: Path) -> None:
    """The judge's table has the list price."""
    assert read(tmp_path, target="gpt-4o-mini", prices="list").options == {"prices": "list"}


def test_all_mistakes_come_with_their_lines(tmp_path: Path) -> None:
    """A spec is refused once, with everything that is wrong with its prompt."""
    file = tmp_path / "assay.yaml"
    file.write_text(
        "dataset: d.jsonl\nmetrics: [exact_match]\nagent:\n  adapter: openai\n  prompt_file: p.md\n"
        "  temperature: hot\n  max_tokens: -1\n"
    )
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert [(problem.line, problem.field) for problem in caught.value.problems] == [
        (5, "agent.prompt_file"),
        (3, "agent.target"),
        (7, "agent.max_tokens"),
        (6, "agent.temperature"),
    ]


def test_a_server_refuses_a_prompt_file_without_its_text() -> None:
    """A file name alone means nothing to a server with other files."""
    agent = AgentSpec("openai", "m", options={"prompt_file": "prompt.md"})
    assert [problem.field for problem in check_agent(agent)] == ["agent.prompt_file"]


def test_the_guide_shows_a_valid_prompt_and_every_option(tmp_path: Path) -> None:
    """The section on prompts holds a spec that is read as it stands, and a line for each option."""
    guide = (Path(__file__).resolve().parents[3] / "docs" / "spec.md").read_text(encoding="utf-8")
    section = guide[guide.index("## Prompts") : guide.index("## Gates")]
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "label.md").write_text("Label <review>{{review}}</review>")
    spec = yaml.safe_load(section.partition("```yaml")[2].partition("```")[0])
    agent = spec_from_mapping(spec | {"dataset": "d", "metrics": ["exact_match"]}, base_dir=tmp_path).settings.agent
    assert check_agent(agent) == []
    assert agent.options["system"] == "You label reviews for {{shop}}."
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"[a-z_]+", row)} == set(PROMPT_KEYS)
