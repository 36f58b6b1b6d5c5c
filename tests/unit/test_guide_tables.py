"""Tables of the guides hold what the code has: keys, options, arguments and fields, none missing and none too many."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import assay
from assay.model.answers.response_expressions import RESPONSE_FIELDS
from assay.model.frameworks import FRAMEWORKS
from assay.model.judging_summary import JudgingSummary
from assay.model.run import (
    AgentSettings,
    DatasetRef,
    GateResult,
    LatencySummary,
    Run,
    RunCounts,
    RunSettings,
    RunState,
    RunSummary,
)
from assay.model.stopping import StoppedEarly
from assay.reports.document.document import _FLAT, head_document
from assay.specs import judging, loader, prompt_options, server_options
from assay.specs.agents import ADAPTERS
from assay_cli.commands import assay as command_line
from assay_cli.output import run_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join(
    page.read_text(encoding="utf-8")
    for page in (
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/metrics/*.md"),
        *ROOT.glob("services/*/README.md"),
    )
)


def section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of its level or above."""
    text = (ROOT / page).read_text(encoding="utf-8")
    start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert start is not None, f"{page} has no heading {heading!r}"
    rest = text[start.end() :]
    plain = re.sub(r"```.*?```", lambda block: "x" * len(block[0]), rest, flags=re.DOTALL)  # "#" begins comments there
    end = re.search(rf"^#{{1,{len(start[1])}}} ", plain, re.MULTILINE)
    return rest[: end.start()] if end else rest


def keys(text: str, first: str = "key") -> list[str]:
    """Return the names in the first column of the first table with this heading."""
    table = re.search(rf"^\| {first} \|.*\n\|[-| :]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return re.findall(r"`([\w-]+)`", "\n".join(line.split("|")[1] for line in table[1].splitlines()))


def test_the_spec() -> None:
    """Every key of a spec is in the table at the top of its page."""
    assert set(keys(section("docs/spec.md", "The spec, `assay.yaml`"))) == set(loader._KEYS)


def test_adapters() -> None:
    """The table of adapters has every one, and so has the glossary."""
    assert sorted(keys(section("docs/spec.md", "Agents"), "`adapter`")) == sorted(ADAPTERS)
    (row,) = re.findall(r"^\| adapter \| (.*)", section("docs/glossary.md", "Runs"), re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", row)) == ADAPTERS


def test_judges() -> None:
    """Every key of `judge`."""
    assert set(keys(section("docs/spec.md", "Judges"))) == set(judging._KEYS)


def test_prompts() -> None:
    """Every option of the adapters openai and anthropic."""
    assert set(keys(section("docs/spec.md", "Prompts"))) == set(prompt_options.PROMPT_KEYS)


@pytest.mark.parametrize(
    ("adapter", "heading", "first"),
    [
        ("adk", "Google ADK", "key"),
        ("langgraph", "LangGraph", "option"),
        ("pydantic_ai", "pydantic-ai", "option"),
        ("openai_agents", "OpenAI Agents SDK", "option"),
    ],
)
def test_frameworks(adapter: str, heading: str, first: str) -> None:
    """Every option of a framework's adapter."""
    assert set(keys(section("docs/frameworks.md", heading), first)) - {"target"} == set(FRAMEWORKS[adapter].options)


def test_the_server_of_adk() -> None:
    """Every option of the adapter adk with a URL."""
    assert set(keys(section("docs/http.md", "Google ADK behind its server"))) == set(server_options.ADK_SERVER_KEYS)


def test_mappings_of_replies() -> None:
    """Every field that an expression may find."""
    first = section("docs/http.md", "Mapping replies").partition("`text` is required")[0].partition(":")[2]
    assert re.findall(r"`(\w+)`", first) == list(RESPONSE_FIELDS)


def test_extras() -> None:
    """Every extra that a user may install, and which of them `all` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    table = section("docs/installation.md", "On a laptop")
    assert set(keys(table, "extra")) == extras.keys() - {"frameworks", "frameworks-newest", "dev", "docs"}
    (brought,) = re.findall(r"^\| `all` \| (.*) \|$", table, re.MULTILINE)
    (all_of_them,) = extras["all"]
    assert set(re.findall(r"[\w-]+", all_of_them)) - {"assay-scoring"} == set(re.findall(r"`([\w-]+)`", brought))


def finished_run() -> Run:
    """Return a run without a summary."""
    settings = RunSettings("test", AgentSettings("replay"), (), ())
    return Run(
        "r", settings, DatasetRef("d", "qa.json", "plain/json", 1), RunState.SUCCEEDED, "", RunCounts(1, 1), "now"
    )


def test_documents_of_runs() -> None:
    """Every field of a run in the documents that `assay runs` prints; of an event, those that rows lack there."""
    table = section("docs/runs.md", "JSON output for programs")
    (brief,) = re.findall(r"^\| `runs list` \| (.*) \|$", table, re.MULTILINE)
    (full,) = re.findall(r"^\| `runs show`, .* \| (.*) \|$", table, re.MULTILINE)
    (case,) = re.findall(r"^\| `case` \| .*without (.*) \|$", table, re.MULTILINE)
    run = finished_run()
    of_brief = set(re.findall(r"`(\w+)`", brief)) - {"adapter", "target"}
    assert of_brief == run_documents.brief(run).keys()
    assert of_brief | set(re.findall(r"`(\w+)`", full)) == run_documents.full(run).keys()
    assert tuple(re.findall(r"`(\w+)`", case)) == run_documents._NOT_IN_EVENTS


def test_the_summary_of_a_report() -> None:
    """Every field of `summary` in results.json, and of its parts, is in the table."""
    (summary,) = re.findall(r"^\| `summary` \| (.*) \|$", section("docs/report.md", "JSON"), re.MULTILINE)
    empty = RunSummary("PASS", (), (), None, 0, 0, (), LatencySummary())
    names = {*head_document(dataclasses.replace(finished_run(), summary=empty), None)["summary"], *_FLAT}
    for part in (LatencySummary, GateResult, JudgingSummary, StoppedEarly):
        names |= {field.name for field in dataclasses.fields(part)}
    assert names - set(re.findall(r"\w+", summary)) == set()


def test_arguments_of_evaluate() -> None:
    """Every argument of `assay.evaluate`."""
    named = keys(section("docs/python.md", "Evaluating"), "argument")
    assert sorted(named) == sorted(inspect.signature(assay.evaluate).parameters)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("runs", "python"),
        ("run", "python"),
        ("compare", "compare"),
        ("score", "scoring"),
        ("score_many", "scoring"),
        ("score_file", "scoring"),
        ("agent_server", "agent-service"),
    ],
)
def test_arguments_of_functions(name: str, page: str) -> None:
    """Every keyword of a public function is on its page, with a value or as code."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    known = inspect.signature(getattr(assay, name)).parameters.values()
    keywords = [each.name for each in known if each.kind is each.KEYWORD_ONLY]
    assert [each for each in keywords if not re.search(rf"\b{each}=|`{each}`", text)] == []


def options(command: click.Command, path: str) -> Iterator[tuple[str, click.Option]]:
    """Yield every option of a command and of the commands below it."""
    context = click.Context(command, info_name=path)
    yield from ((path, each) for each in command.get_params(context) if isinstance(each, click.Option))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")


def test_every_option_is_on_a_page() -> None:
    """An option that no page names is found only by those who read `--help`."""
    missing = [
        f"{path} {option.opts[-1]}"
        for path, option in options(command_line, "assay")
        if "--help" not in option.opts
        and not any(re.search(rf"{re.escape(name)}(?![\w-])", PAGES) for name in option.opts)
    ]
    assert missing == []
