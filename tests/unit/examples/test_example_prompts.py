"""examples/prompt-quality: its templates, its mails, and the stand-in whose answers are recorded."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from assay.datasets import open_dataset
from assay.model.answers.agent_response import AgentRequest
from assay.model.case import Case, Turn
from assay.specs.loader import spec_from_mapping
from assay.specs.prompt_template import case_problems, fill, variables_of
from assay.testing.providers import ScriptedProvider
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.prompt import PromptAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "prompt-quality"
PROMPT = (FOLDER / "prompts" / "triage.md").read_text(encoding="utf-8")
FIRST = (FOLDER / "prompts" / "triage-first.md").read_text(encoding="utf-8")
SYSTEM = (FOLDER / "prompts" / "system.md").read_text(encoding="utf-8")
CASES = list(open_dataset(FOLDER / "mails.jsonl").cases())


@pytest.fixture(scope="module")
def model(clean_imports: None) -> Any:
    """Return the module of the stand-in."""
    sys.path.insert(0, str(FOLDER))
    return importlib.import_module("keyword_model")


def test_every_mail_fills_both_prompts_and_expects_one_line() -> None:
    """Variables, an expected line of two known words, a recorded answer with tokens and latency, distinct texts."""
    assert len(CASES) == 32
    topics = {"delivery", "refund", "defect", "invoice", "account", "other"}
    for case in CASES:
        assert case_problems([PROMPT, FIRST, SYSTEM], case) == [], case.case_id
        topic, urgency = case.references[0].split(", ")
        assert topic in topics
        assert urgency in ("urgent", "normal")
        assert len(case.recordings) == 3
        for (answer,) in case.recordings:
            assert answer.usage is not None
            assert answer.latency_ms
    assert len({case.variables["body"] for case in CASES}) == len(CASES)
    assert {topic for case in CASES for topic in case.references[0].split(", ")} >= topics
    assert sum(case.category == "arabic" for case in CASES) == 6


def test_a_mail_cannot_change_the_prompt() -> None:
    """What looks like a variable in a mail arrives as it is."""
    (braces,) = [case for case in CASES if case.case_id == "braces"]
    filled = fill(PROMPT, braces.variables)
    assert "Dear {{customer}}, your package {{id}}" in filled
    assert set(variables_of(PROMPT)) == {"customer", "subject", "body"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case_id)
def test_recorded_answers_are_the_stand_ins_own(case: Case, model: Any) -> None:
    """They are not polished: each is what the stand-in says to the prompt as it is now, at a temperature."""
    sentences = [model.answer(fill(PROMPT, case.variables), Random(f"{case.case_id} {repeat}")) for repeat in range(3)]
    assert [answer.text for (answer,) in case.recordings] == sentences


def test_the_second_prompt_is_better_than_the_first(model: Any) -> None:
    """The figures of the README."""
    right = [
        sum(model.answer(fill(prompt, case.variables)) == case.references[0] for case in CASES)
        for prompt in (FIRST, PROMPT)
    ]
    assert right == [4, 23]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("- a: x\n- b: y\n<mail>y</mail>", "b"),
        ("- a: x\n- b: y\n<mail>x Y's</mail>", "a"),
        ("- a: x\n- b: y\n<mail from='x'>nothing</mail>", "b"),
        ("- a: tie\n- b: knot\n\n- c\n- d: knot\n<mail>knots tied</mail>", "a, d"),
        ("- a: شحنة\n- b\n<mail>شحنة</mail>", "a"),
        ("<mail>x</mail>", ""),
        ("- a: x", "There is no mail in this."),
        ("", "There is no mail in this."),
    ],
)
def test_the_stand_in_counts_words(prompt: str, text: str, model: Any) -> None:
    """The entry with most words of the mail wins, the first of several, the last where there is none."""
    assert model.answer(prompt) == text


@pytest.fixture
def with_provider() -> Iterator[Callable[[Any], ScriptedProvider]]:
    """Start a provider on a free port."""
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(ScriptedProvider(script))


@pytest.mark.parametrize("adapter", ["openai", "anthropic"])
def test_the_agents_in_comments_work_against_the_stand_in(
    adapter: str, model: Any, with_provider: Callable[[Any], ScriptedProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of assay.yaml is a valid agent once its hash signs are gone, and asks what the README says."""
    provider = with_provider(model.reply)
    spec = _uncommented(adapter)
    assert spec["agent"]["base_url"].startswith(f"http://127.0.0.1:{model.PORT}")
    spec["agent"]["base_url"] = provider.openai_url if adapter == "openai" else provider.url
    monkeypatch.setenv("MODEL_KEY", "k")
    spec["agent"]["api_key"] = "${MODEL_KEY}"
    settings = spec_from_mapping(spec, base_dir=FOLDER).settings.agent
    case = CASES[0]

    async def ask() -> Any:
        agent = PromptAgent(settings, AgentAccess(("*",), ("*",)))
        try:
            return await agent.answer(AgentRequest("r", "run", "c", ""), Case("c", (Turn(""),), case.variables))
        finally:
            await agent.aclose()

    response = asyncio.run(ask())
    assert case.recorded is not None
    assert (response.text, response.usage.output_tokens) == (case.recorded.text, 2)
    body = provider.requests[0].body
    assert "the customers of Nordlicht" in json.dumps(body)
    assert body["max_tokens"] == 20


def _uncommented(adapter: str) -> dict[str, Any]:
    """Return the spec with the agent of an adapter in place of the recorded answers."""
    blocks = (FOLDER / "assay.yaml").read_text(encoding="utf-8").split("\n\n")
    (block,) = [block for block in blocks if f"adapter: {adapter}" in block]
    lines = [line.removeprefix("# ") for line in block[block.index("# agent:") :].splitlines()]
    agent = yaml.safe_load("\n".join(lines).replace("# base_url", "base_url"))
    spec: dict[str, Any] = yaml.safe_load("\n\n".join(blocks))
    return {**spec, **agent}
