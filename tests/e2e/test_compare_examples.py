"""`assay compare` on examples whose variants differ by a known change, which it finds; and where they do not differ."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.providers import ScriptedProvider

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TITLES = """
import agent

async def answer(request):
    answered = await agent.answer(request)
    if answered["events"]:
        answered["text"] = ", ".join(event["title"] for event in answered["events"])
    return answered
"""


def compared(cli: Cli, *arguments: str | Path) -> dict[str, Any]:
    """Run and compare variants; return the figures of the metric that decides."""
    document = json.loads(cli.run("compare", *arguments, "--json", "--no-progress", "--fail-on", "never").stdout)
    comparison = document["comparison"]
    figures: list[dict[str, Any]] = comparison["pairs"][0]["metrics"]
    return next(one for one in figures if one["metric"] == comparison["primary"])


def test_a_better_prompt_is_found(shared_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 mails, the prompt that names words gets 23 right and the one without them 4: as in the example's README."""
    folder = EXAMPLES / "prompt-quality"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with ScriptedProvider(import_module("keyword_model").reply) as model:
        found = compared(
            shared_cli,
            *("--prompts", folder / "prompts/triage-first.md", folder / "prompts/triage.md"),
            *("--test-cases", folder / "mails.jsonl", "--model", "openai:keyword-model"),
            *("--set", f"agent.base_url={model.openai_url}"),
            *("--set", f"agent.system_file={folder / 'prompts/system.md'}"),
            *("--set", "metrics=[exact_match, rouge, latency]"),
        )
    assert (found["metric"], found["verdict"]) == ("exact_match", "b_better")
    assert (found["n_pairs"], found["wins"] - found["losses"]) == (32, 19)


def test_a_changed_agent_is_found_and_an_equal_one_is_not(shared_cli: Cli) -> None:
    """Of the city-events assistant, one that names titles alone is worse, and a copy is no better and no worse."""
    shutil.copytree(EXAMPLES / "city-events", shared_cli.folder, dirs_exist_ok=True)
    shared_cli.write("titles.py", TITLES)
    shared_cli.write("copy.py", "from agent import answer\n")
    found = compared(shared_cli, "--agents", "agent:answer", "titles:answer")
    assert (found["metric"], found["verdict"]) == ("semantic_similarity", "a_better")
    found = compared(shared_cli, "--agents", "agent:answer", "copy:answer")
    assert (found["verdict"], found["difference"], found["ties"]) == ("inconclusive", 0.0, 35)
