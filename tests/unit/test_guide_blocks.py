"""Every fenced block of README and guides is run or read by a test: of this file, or of the one that is named here."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.docs.compose_file import SERVICES
from tests.support.docs.guides import NOT_RUN, PAGES, ROOT, Block, blocks
from tests.unit.test_printed_commands import problem_of

from assay.datasets import open_dataset
from assay.judging.recorded_verdicts import read_recorded_verdicts
from assay.judging.rubric_file import read_rubric
from assay.parsing.yaml_nodes import parse_yaml
from assay.specs.loader import load_spec
from assay_judge.calls.provider_registry import read_limits
from assay_orchestrator.identity.issuers import read_issuers

if TYPE_CHECKING:
    from pathlib import Path

    from assay.errors import Problem

HERE = ("bash", "json", "yaml")
"""Languages of which this file reads every block."""
ELSEWHERE = {
    ("clients/typescript/README.md", "ts"): "test_foreign_clients.py",
    ("docs/agent-service.md", "python"): "test_agent_server.py",
    ("docs/api.md", "go"): "test_foreign_clients.py",
    ("docs/api.md", "sh"): "test_foreign_clients.py",
    ("docs/api.md", "ts"): "test_foreign_clients.py",
    ("docs/approvals.md", "python"): "test_framework_approvals.py",
    ("docs/pytest.md", "python"): "test_pytest_plugin.py",
    ("docs/pytest.md", "text"): "test_pytest_plugin.py",
    ("docs/comparison-report.md", "text"): "test_comparison_reports.py",
    ("docs/reading-a-comparison.md", "text"): "test_comparison_reports.py",
    ("CONTRIBUTING.md", "console"): "test_contributing.py",
    ("README.md", "console"): "test_readme.py",
    ("README.md", "python"): "test_readme.py",
    ("docs/compare.md", "python"): "test_compare_guide.py",
    ("docs/compare.md", "text"): "test_planning.py",
    ("docs/database.md", "sql"): "test_database_guide.py",
    ("docs/datasets.md", "python"): "test_dataset_docs.py",
    ("docs/frameworks.md", "jsonl"): "test_frameworks_guide.py",
    ("docs/frameworks.md", "python"): "test_frameworks_guide.py",
    ("docs/metrics/composites.md", "python"): "test_metric_functions.py",
    ("docs/judges.md", "csv"): "test_guide_tables.py",
    ("docs/operating.md", ""): "test_backups.py",
    ("docs/judges.md", "jsonl"): "test_guide_tables.py",
    ("docs/python.md", "python"): "test_python_guide.py",
    ("docs/runs.md", "mermaid"): "test_run_lifecycle.py",
    ("docs/scoring.md", "python"): "test_scoring.py",
    ("docs/spec.md", "jsonl"): "test_lifespan.py",
    ("docs/spec.md", "perl"): "test_hosting_commands.py",
    ("docs/spec.md", "python"): "test_hosting_calling.py",
}
"""Which test runs the blocks of a page in a language."""
NOT_READ = {
    ("docs/agent-service.md", "const grpc"): "needs Node and its gRPC packages, which no test installs",
    ("docs/architecture.md", "dataset -> agent"): "a drawing",
    ("docs/architecture.md", "client"): "the floors, which `test_docs_references.py` compares with the contract",
    ("docs/ci.md", "evaluate:"): "a GitLab job, which `test_action.py` reads",
    ("docs/ci.md", "jobs:"): "a GitHub workflow, which `test_action.py` reads",
    ("docs/ci.md", "pipeline {"): "a Jenkins pipeline, whose command `test_action.py` reads",
    ("docs/database.md", "CREATE ROLE"): "needs a server's administrator",
    ("docs/database.md", "GRANT USAGE"): "needs a server's administrator",
    ("docs/datasets.md", "$ assay datasets list"): "an example; `test_cli_datasets.py` runs the command",
    ("docs/filters.md", "filter     ="): "a grammar, whose examples `test_row_filter_text.py` reads",
    ("docs/http.md", "agent.response.text"): "the reason of a run, which `test_http_runs.py` compares",
    ("docs/installation.md", "PYTHON_IMAGE="): "lines of .env with a digest to be filled in",
    ("docs/installation.md", "... INFO"): "log lines of several tests, which `test_cli_observability.py` compares",
    ("docs/judges.md", "calibration  quality"): "a line of output, whose form `test_judged_preflight.py` compares",
    ("docs/judges.md", "verdict  NO ALARM"): "a line of output, whose sentence `test_statistics_pairs.py` compares",
    ("docs/metrics/checks.md", "3 of 4 checks"): "a line of output, which `test_cli_checks.py` compares",
    ("docs/python.md", "<Evaluation capitals"): "a repr, which `test_api_result.py` compares",
    ("docs/security.md", "store              deleted"): "a table, whose form `test_cli_identity.py` compares",
    ("docs/spec.md", '{"status": "interrupted"'): "an answer, which `test_answers_interrupts.py` reads",
    ("docs/runs.md", "every answer is stored"): "a line of output, which `test_cli_judged.py` compares",
}
"""Why no test reads a block, by its page and its beginning."""
FILES = {
    "prompts/label.md": "<review>{{review}}</review>",
    "rubrics/tone.yaml": "",  # of the judge's README
    "verdicts.jsonl": "",  # of docs/judges.md
}
"""What specs of the guides name beside the dataset."""


def not_read(block: Block) -> bool:
    """Tell whether a block is excused."""
    return any(block.page == page and block.text.startswith(start) for page, start in NOT_READ)


def of(language: str) -> pytest.MarkDecorator:
    """Parametrise a test with every block in a language that is not excused and has no other test."""
    selected = [block for block in blocks(language=language) if not not_read(block)]
    return pytest.mark.parametrize("block", selected, ids=str)


def test_every_block_is_read_by_a_test() -> None:
    """A block in a language that no test knows, or a page with code of its own, does not go by unseen."""
    unread = [
        str(block)
        for block in blocks()
        if block.language not in HERE and (block.page, block.language) not in ELSEWHERE and not not_read(block)
    ]
    assert unread == []


def test_code_is_fenced() -> None:
    """Every code block is fenced, because this file would not find an indented one."""
    for page in set(PAGES) - {"CHANGELOG.md"}:
        text = re.sub(
            r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        assert re.findall(r"\n\n(    +\S.*)", text) == [], page


def test_no_excuse_is_left_over() -> None:
    """Every excuse names a block or a command, and every named test exists and names the page."""
    tests = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for (page, language), name in ELSEWHERE.items():
        assert blocks(page, language), (page, language)
        assert page.rpartition("/")[2] in tests[name], (page, name)
    for page, start in NOT_READ:
        assert any(block.text.startswith(start) for block in blocks(page)), (page, start)
    commands = {page: [line for block in blocks(page, "bash") for line in block.commands()] for page in NOT_RUN}
    for page, reasons in NOT_RUN.items():
        for start in reasons:
            assert any(line.startswith(start) for line in commands[page]), (page, start)
    sentence = " ".join([*NOT_READ.values(), *(reason for each in NOT_RUN.values() for reason in each.values())])
    assert set(re.findall(r"`(test_\w+\.py)`", sentence)) <= set(tests)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that specs of the guides name."""
    (rubric,) = [block for block in blocks("services/judge/README.md", "yaml") if "criteria:" in block.text]
    (verdicts,) = blocks("docs/judges.md", "json")
    for name, text in (FILES | {"rubrics/tone.yaml": rubric.text, "verdicts.jsonl": verdicts.text}).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@of("yaml")
def test_yaml_is_what_its_reader_takes(block: Block, folder: Path) -> None:
    """A spec, completed where it is a part; a rubric, limits, issuers, a file of promptfoo's, compose's, an overlay."""
    path = folder / "assay.yaml"
    problems: list[Problem] = []
    data, _ = parse_yaml(block.text, file=block.page, problems=problems)
    assert problems == []
    path.write_text(block.text, encoding="utf-8")
    if "criteria" in data:
        assert read_rubric(block.text).name == data["name"]
    elif "limits" in data:
        assert read_limits(path) == data["limits"]
    elif "defaultTest" in data:
        assert open_dataset(str(path)).check().format == "promptfoo/yaml"
    elif "issuers" in data:
        assert [issuer.audience for issuer in read_issuers(path)] == ["assay"]
    elif data.get("kind") == "Kustomization":
        assert all((ROOT / "deploy" / "overlays" / "ours" / folder).resolve().is_dir() for folder in data["resources"])
        assert {each["name"] for each in data["images"]} == {
            f"assay-{each.removeprefix('services/')}" for each in _services()
        }
    elif "patches" in data:
        names = {path.stem for path in (ROOT / "deploy" / "base").glob("*.yaml")}
        assert all(set(each["target"]["name"].split("|")) <= names for each in data["patches"])
        assert all(step["op"] == "add" for each in data["patches"] for step in yaml.safe_load(each["patch"]))
    elif "services" in data:
        assert set(data["services"]) <= set(SERVICES)
    else:
        rest: dict[str, Any] = {"dataset": "qa.jsonl", "agent": {"adapter": "replay"}}
        rest["metrics"] = sorted(_metrics_of(data.get("gates", []))) or ["exact_match", "judge_score"]
        if any(".3 " in gate for gate in data.get("gates", [])):
            rest["repeats"] = 3
        added = "".join(f"{key}: {json.dumps(value)}\n" for key, value in rest.items() if key not in data)
        path.write_text(block.text + added, encoding="utf-8")
        spec = load_spec(path)
        assert bool(spec.settings.judges) is ("judge" in data or "judges" in data)
        assert len(spec.settings.gates) == len(data.get("gates", []))


def _metrics_of(gates: list[str]) -> set[str]:
    """Return the metrics that gates read, which a spec with these gates must have."""
    known = {"hit_rate", "latency", "generation_fidelity", "exact_match", "semantic_similarity"}
    return {name for gate in gates for name in re.findall(r"\w+", gate) if name in known}


@of("json")
def test_json_is_a_dataset_or_verdicts(block: Block, tmp_path: Path) -> None:
    """Each line is one object; together they are cases, or what a judge has said."""
    path = tmp_path / "lines.jsonl"
    path.write_text(block.text, encoding="utf-8")
    lines = [json.loads(line) for line in block.text.splitlines()]
    if "verdict" in lines[0]:
        assert len(read_recorded_verdicts(path).lines) == len(lines)
    else:
        assert len(list(open_dataset(str(path)).cases())) == len(lines)


@of("bash")
def test_commands_exist(block: Block) -> None:
    """Targets of make, extras of pip, files of the checkout, commands of `assay` with their options."""
    for command in block.commands():
        for part in re.split(r" \| | && ", command):
            assert shell_problem(part) == "", command


def shell_problem(command: str) -> str:
    """Return what a command names that is not there; the empty text where all is."""
    words = [word for word in shlex.split(command, posix=True) if not re.match(r"[A-Z_]+=", word)]
    match words:
        case ["assay", *rest]:
            return problem_of([word for word in rest if word != "[--yes]"])
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            return "" if re.search(rf"^{target}:", makefile, re.MULTILINE) else f"there is no target {target}"
        case ["pip", "install", *rest]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            named = {extra for word in rest for part in re.findall(r"\[(.*)\]", word) for extra in part.split(",")}
            if any(re.match(r"assay\b(?!-)", word) for word in rest):
                return "the package assay is another project's"
            return "".join(sorted(named - set(project["optional-dependencies"])))
        case ["python" | ".venv/bin/python", "-m", module, *_]:
            places = [ROOT / root / module.replace(".", "/") for root in ("", "library", "cli", *_services())]
            exists = module == "pytest" or any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
            return "" if exists else f"there is no module {module}"
        case ["python" | "tools/install-locked" | "git" | "docker" | "kubectl", *rest]:
            # The overlay `ours` is the reader's own.
            mine = r"(examples|tools|requirements|deploy/(?!overlays/ours))/?"
            files = [word for word in rest if re.match(mine, word)]
            return "".join(name for name in files if not (ROOT / name).exists())
        case ["." | "export" | "printf" | "chmod" | "echo" | "cat" | "cp" | "touch" | "sqlite3", *_] | []:
            return ""
        case ["pg_dump" | "pg_restore" | "pg_basebackup", *_]:
            return ""
        case _:
            return f"no test knows {words[0]}"


def _services() -> list[str]:
    return [f"services/{name}" for name in ("orchestrator", "embedder", "judge")]


def test_commands_that_do_not_exist_are_found() -> None:
    """The check of commands is not blind."""
    wrong = (
        "make dinner", "pip install 'assay-scoring[cli,judges]'", "pip install 'assay[cli]'", "python -m assay_jury",
        "python examples/none.py", "ls",
    )  # fmt: skip
    assert all(shell_problem(command) for command in (*wrong, "assay runs shwo", "A=1 assay run --fast"))
