"""Pages and tables hold what the code has: keys, options, flags, figures and fields, none missing and none too many."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_cli_help import OPTIONS

import assay
import assay.rpc.observed_calls
import assay.telemetry.exporter
import assay_embedder.instruments
import assay_judge.instruments
import assay_orchestrator.instruments
from assay.model.answers.response_expressions import RESPONSE_FIELDS
from assay.model.canary_summary import CanaryKind
from assay.model.frameworks import FRAMEWORKS
from assay.model.judging_summary import JudgingSummary
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    GateResult,
    LatencySummary,
    PauseCause,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    RunSummary,
    RunVerdict,
)
from assay.model.run_spec import CANARY_LIMIT
from assay.model.stopping import StoppedEarly
from assay.parsing.yaml_nodes import parse_yaml
from assay.reports.document import preset_names
from assay.reports.document.document import head_document
from assay.specs import judge_reader, loader, prompt_options, server_options
from assay.specs.agents import ADAPTERS
from assay.specs.judge_reader import JudgesReader
from assay.statistics.trust import LEAST_ITEMS, TENTATIVE_ALPHA, TRUSTED_ALPHA
from assay.telemetry.instruments import Instrument
from assay_cli.commands.judge.drift import BUILT_IN_ANCHORS
from assay_cli.commands.judge.labels import FIELDS, Labels, read_items
from assay_cli.commands.judge.sample import COLUMNS
from assay_cli.commands.runs.group import runs
from assay_cli.output import run_documents
from assay_embedder.settings import Settings as Embedder
from assay_judge.settings import Settings as Judge
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from assay.errors import Problem


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


def test_adapters() -> None:
    """The table of adapters has every one, and so has the glossary."""
    assert sorted(keys(section("docs/spec.md", "Agents"), "`adapter`")) == sorted(ADAPTERS)
    (row,) = re.findall(r"^\| adapter \| (.*)", section("docs/glossary.md", "Runs"), re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", row)) == ADAPTERS


@pytest.mark.parametrize(
    ("page", "heading", "first", "names"),
    [
        ("spec", "The spec, `assay.yaml`", "key", loader._KEYS),
        ("spec", "Judges", "key", judge_reader._KEYS),
        ("spec", "Prompts", "key", prompt_options.PROMPT_KEYS),
        ("http", "Google ADK behind its server", "key", server_options.ADK_SERVER_KEYS),
        ("frameworks", "Google ADK", "key", {"target", *FRAMEWORKS["adk"].options}),
        ("frameworks", "LangGraph", "option", FRAMEWORKS["langgraph"].options),
        ("frameworks", "pydantic-ai", "option", FRAMEWORKS["pydantic_ai"].options),
        ("frameworks", "OpenAI Agents SDK", "option", FRAMEWORKS["openai_agents"].options),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_and_options(page: str, heading: str, first: str, names: Iterable[str]) -> None:
    """The table under a heading lists every key of the spec, of `judge` or of an adapter."""
    assert set(keys(section(f"docs/{page}.md", heading), first)) == set(names)


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
    settings = RunSpec("test", AgentSpec("replay"), (), ())
    return Run("r", settings, DatasetRef("d", "qa.json", 1), RunState.COMPLETED, "", RunCounts(1, 1), "now")


def test_documents_of_runs() -> None:
    """Every field of a run in the documents that `assay runs` prints; of an event, those that rows lack there."""
    table = section("docs/runs.md", "JSON output for programs")
    (brief,) = re.findall(r"^\| `runs list` \| (.*) \|$", table, re.MULTILINE)
    (full,) = re.findall(r"^\| `runs show`, .* \| (.*) \|$", table, re.MULTILINE)
    (case,) = re.findall(r"^\| `row` \| .*without (.*) \|$", table, re.MULTILINE)
    run = finished_run()
    of_brief = set(re.findall(r"`(\w+)`", brief)) - {"runs", "adapter", "target"}
    assert of_brief == run_documents.brief(run).keys()
    assert of_brief | set(re.findall(r"`(\w+)`", full)) == run_documents.full(run).keys()
    assert tuple(re.findall(r"`(\w+)`", case)) == run_documents._NOT_IN_EVENTS


def test_the_summary_of_a_report() -> None:
    """Every field of `summary` in results.json, and of its parts, is in the table."""
    (summary,) = re.findall(r"^\| `summary` \| (.*) \|$", section("docs/report.md", "JSON"), re.MULTILINE)
    empty = RunSummary(RunVerdict.PASS, (), (), None, 0, 0, (), LatencySummary())
    names = {*head_document(dataclasses.replace(finished_run(), summary=empty), None)["summary"]}
    for part in (LatencySummary, GateResult, JudgingSummary, StoppedEarly):
        names |= {field.name for field in dataclasses.fields(part)}
    assert names - set(re.findall(r"\w+", summary)) == set()
    of_presets = {"avg_latency", "num_questions", "metadata", "num_tokens"}
    of_presets |= {*preset_names._AGGREGATES, *preset_names._SCORES}
    assert of_presets - set(re.findall(r"\w+", section("docs/report.md", "Names of presets"))) == set()


def test_arguments_of_evaluate() -> None:
    """Every argument of `assay.evaluate`."""
    named = keys(section("docs/python.md", "Evaluating"), "argument")
    assert sorted(named) == sorted(inspect.signature(assay.evaluate).parameters)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("list_runs", "python"),
        ("get_run", "python"),
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


def test_every_option_is_on_a_page() -> None:
    """An option that no page names is found only by readers of `--help`."""
    missing = [
        f"{path} {option.opts[-1]}"
        for path, option in OPTIONS
        if "--help" not in option.opts
        and not any(re.search(rf"{re.escape(name)}(?![\w-])", PAGES) for name in option.opts)
    ]
    assert missing == []


RUNS_GUIDE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")


def test_every_command_of_the_group_is_in_the_guide() -> None:
    """No command is left for its users to find out about."""
    assert {name for name in runs.commands if f"assay runs {name}" not in RUNS_GUIDE} == set()


def test_the_tables_hold_every_state_and_cause() -> None:
    """The states and causes of the guide are those of the contract."""
    for value in (*RunState, *PauseCause):
        assert f"| `{value.value}` |" in RUNS_GUIDE


def test_the_figures_are_those_of_the_settings() -> None:
    """The defaults that the guide tells are the orchestrator's, and its flags exist."""
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert (defaults["watch_bookmark_s"], defaults["watch_stall_s"], defaults["row_try_limit"]) == (15.0, 30.0, 3)
    assert defaults["unattended_pause_s"] == 30 * 60
    for flag in ("--unattended-pause-s", "--watch-bookmark-s", "--watch-stall-s", "--row-try-limit"):
        assert flag in RUNS_GUIDE
        assert flag.removeprefix("--").replace("-", "_") in defaults


READERS = {"embedder": Embedder.read, "judge": Judge.read, "orchestrator": Settings.read}
ROW = re.compile(r"^\| (`--[^|]*) \| ([^|]*) \| [^|]+ \|$", re.MULTILINE)
OPTION = re.compile(r"^  (--[a-z-]+(?:, --[a-z-]+)?)(?: [A-Z_|]+)? +(.*)$", re.MULTILINE)
OWN = ("--help", "--version")


def comparable(default: str) -> float | str:
    """Return a default as a number where it is one, else as text with the home folder as ~."""
    text = default.strip("`").replace(str(Path.home()), "~")
    try:
        return float(text)
    except ValueError:
        return text


def flags_of_help(service: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float | str]:
    """Return every flag of a program with the default that its help shows."""
    with pytest.raises(SystemExit):
        READERS[service](["--help"], {})
    on_one_line = re.sub(r"\n {9,}", " ", capsys.readouterr().out)
    flags = dict(OPTION.findall(on_one_line))
    assert all(text.endswith(")") and " (default: " in text for flag, text in flags.items() if flag not in OWN), flags
    return {flag: comparable(text.rpartition(" (default: ")[2][:-1]) for flag, text in flags.items() if flag not in OWN}


@pytest.mark.parametrize("service", READERS)
def test_every_flag_is_in_the_readme_with_its_default(
    service: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help and README agree on flags and defaults; each flag has one row."""
    monkeypatch.setenv("COLUMNS", "1000")
    rows = ROW.findall((ROOT / "services" / service / "README.md").read_text(encoding="utf-8"))
    listed = {flag.replace("`", ""): comparable(default) for flag, default in rows}
    assert listed == flags_of_help(service, capsys)
    assert len(listed) == len(rows)


SECTIONS: dict[str, tuple[ModuleType, ...]] = {
    "Every service": (assay.rpc.observed_calls, assay.telemetry.exporter),
    "Orchestrator": (assay_orchestrator.instruments,),
    "Embedder": (assay_embedder.instruments,),
    "Judge": (assay_judge.instruments,),
}
UNITS = ("_seconds", "_total", "_info", "_tokens", "_texts", "_models", "_shards", "_rows", "_runs", "_open", "_work",
         "_flight", "_processes", "_orders")  # fmt: skip


def instruments(section: str) -> list[Instrument]:
    """Return the instruments that the modules of a section declare, by name."""
    values = [value for module in SECTIONS[section] for value in vars(module).values()]
    return sorted((value for value in values if isinstance(value, Instrument)), key=lambda instrument: instrument.name)


def row(instrument: Instrument) -> str:
    """Return the row of an instrument."""
    labels = ", ".join(f"`{label}`" for label in instrument.labels) or "–"
    return f"| `{instrument.name}` | {instrument.kind} | {labels} | {instrument.text} |"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_instrument_has_its_row(section: str) -> None:
    """Name, kind, labels and text are those of the code; a row without an instrument is none of this service."""
    text = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `assay_.*$", text.partition(f"### {section}\n")[2].partition("\n#")[0], re.MULTILINE)
    assert listed == [row(instrument) for instrument in instruments(section)]


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Counters end in _total, others in their unit or what they count; a cache has no team."""
    for instrument in (instrument for section in SECTIONS for instrument in instruments(section)):
        assert re.fullmatch(r"assay_[a-z_]+", instrument.name)
        assert (instrument.kind == "counter") == instrument.name.endswith("_total"), instrument.name
        assert instrument.name.endswith(UNITS), instrument.name
        if "cache" in instrument.text:
            assert "team" not in instrument.labels, instrument.name


JUDGES_GUIDE = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")
JUDGES_WORDS = " ".join(JUDGES_GUIDE.split())


def judges_block(language: str) -> str:
    """Return the guide's block in a language."""
    match = re.search(rf"```{language}\n(.*?)```", JUDGES_GUIDE, re.DOTALL)
    assert match is not None
    return match[1]


def labels_of_block(tmp_path: Path, language: str) -> Labels:
    """Return the labels that a block of the guide holds."""
    path = tmp_path / f"labels.{language}"
    path.write_text(judges_block(language), encoding="utf-8")
    return read_items(path)


def test_the_files_of_the_guide_are_read(tmp_path: Path) -> None:
    """Scores of two people, and pairs of which one has three labels."""
    scores, pairs = labels_of_block(tmp_path, "csv"), labels_of_block(tmp_path, "jsonl")
    assert (scores.kind, [item.people for item in scores.items]) == ("scores", [(5.0, 5.0), (1.0, 2.0), (4.0, 4.0)])
    assert (pairs.kind, [item.people for item in pairs.items]) == ("pairs", [("a",), ("tie", "tie", "b")])


def test_the_spec_of_the_guide_is_valid() -> None:
    """Its judge has the canaries that the guide tells of."""
    problems: list[Problem] = []
    data, _ = parse_yaml(judges_block("yaml"), file="", problems=problems)
    reader = JudgesReader(Path(), problems)
    reader.read(data)
    assert problems == []
    (judge,) = reader.judges
    assert judge.canary_rate == 0.05


def test_the_guide_names_what_there_is() -> None:
    """Fields, kinds of canaries and bounds are those of the code."""
    for name in (*CanaryKind, *FIELDS, *COLUMNS):
        assert f"`{name}`" in JUDGES_WORDS
    for bound in (
        f"at least {TRUSTED_ALPHA:g}",
        f"{TENTATIVE_ALPHA:g}",
        f"{LEAST_ITEMS} items",
        f"{CANARY_LIMIT:.0%}".replace("%", " %"),
    ):
        assert bound in JUDGES_WORDS
    assert f"{len(read_items(BUILT_IN_ANCHORS).items)} answers that come with Assay" in JUDGES_WORDS
