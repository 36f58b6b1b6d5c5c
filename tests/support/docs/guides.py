"""The fenced code blocks of README and guides, which tests run as a reader would."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "[!.]*/**/*.md")  # environments, which hold most files, begin with a dot
    for page in ROOT.glob(pattern)
    if not any(part.startswith(".") or part == "node_modules" for part in page.relative_to(ROOT).parts)
)
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Args:
        page: The file, relative to the checkout.
        line: The line of its opening fence, from 1.
        language: The text after the opening fence; may be empty.
        text: Its lines, without the indentation of the fence.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Return the commands of a shell block, without comments and with continued lines joined."""
        lines = (re.sub(r"(^|\s+)#.*", "", line).strip() for line in self.text.replace("\\\n", " ").splitlines())
        return [line for line in lines if line]


def blocks(page: str = "", language: str = "") -> list[Block]:
    """Return the blocks of one page or all pages, in one language or in all."""
    found = []
    for name in [page] if page else PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for match in _FENCED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if language in ("", match["language"]):
                found.append(Block(name, line, match["language"], textwrap.dedent(match["text"])))
    return found


NOT_RUN = {
    "README.md": {
        "make ": "`test_install.py` runs the installation that make calls; the rest takes minutes and the network",
    },
    "docs/chaos.md": {
        "make chaos": "takes half an hour; `test_chaos_short.py` runs a short form",
        "ASSAY_FAILPOINTS=": "serves until it is killed, as `test_chaos_failpoints.py` does",
    },
    "docs/compare.md": {
        "assay compare": "`test_cli_compare.py` runs it",
        "assay plan": "`test_cli_compare.py` runs it",
        "assay baseline": "`test_cli_compare.py` runs it",
        "assay run": "`test_cli_compare.py` runs it",
    },
    "docs/datasets.md": {"assay datasets": "needs stored datasets: `test_cli_datasets.py` runs it"},
    "docs/database.md": {
        "pip install": "needs the network",
        "assay serve": "serves until it is stopped; `test_store_postgres.py` opens such a URL",
    },
    "docs/installation.md": {
        "make ": "needs the network",
        "pip install": "needs the network",
        ". .venv/bin/activate": "changes the shell that it is typed in",
        "git diff": "shows what `make lock` has changed",
        "docker ": "needs Docker; `test_compose_installation.py` runs the file's commands as processes",
        "assay ": "needs that installation: `test_compose_installation.py` runs the smoke script against it",
        "export ": "names that installation",
    },
    "docs/judges.md": {
        "assay judge calibrations delete": "needs a calibration: `test_cli_judge_trust.py` makes one and deletes it",
        "assay judge calibrate": "needs a provider: `test_cli_judge_trust.py` runs it with a scripted one",
        "assay judge sample": "needs a run with a judge: `test_cli_judge_trust.py` runs it",
        "assay judge drift": "needs a provider: `test_cli_judge_trust.py` runs it with a scripted one",
        "assay run assay.yaml --record-verdicts": "needs a judge: `test_cli_recorded_verdicts.py` runs it",
    },
    "docs/kubernetes.md": {
        "docker ": "needs Docker",
        "kubectl ": "needs a cluster; `test_deploy.py` compares the manifests with the services, and the first token",
        "assay login": "needs a server with identities: `test_cli_identity.py` runs it",
        "assay run": "needs that server",
    },
    "docs/mutants.md": {"make mutants": "takes up to four hours"},
    "docs/observability.md": {
        "pip install": "needs the network",
        "assay serve": "serves until it is stopped; `test_cli_observability.py` reads the metrics of such processes",
        "export ": "names a receiver of traces",
        "assay run": "needs that receiver: `test_cli_observability.py` runs it with one",
    },
    "docs/operating.md": {
        "assay admin migrate": "needs a shared PostgreSQL: `test_upgrade_in_use.py` runs it",
        "pg_": "needs a server of its own: `test_backups.py` runs it",
        "cp ": "restores a server: `test_backups.py` runs it",
        "echo ": "restores a server: `test_backups.py` runs it",
        "touch ": "restores a server: `test_backups.py` runs it",
        "sqlite3 ": "needs a file in use: `test_backups.py` makes such a copy",
    },
    "docs/runbook.md": {"kubectl ": "needs a cluster"},
    "docs/runs.md": {
        "assay rescore": "`test_cli_recorded_verdicts.py` runs it",
        "assay runs pause": "needs a run in this state: `test_cli_runs.py` runs it",
        "assay runs resume": "needs a run in this state: `test_cli_runs.py` and `test_cli_checks.py` run it",
        "assay run assay.yaml --resume": "needs a run in this state: `test_cli_runs.py` runs it",
        "assay runs cancel": "needs a run in this state: `test_cli_runs.py` runs it",
        "assay runs delete": "shows what may be given; `test_cli_runs.py` runs it",
        "assay runs prune --older-than 30d [": "shows what may be given; `test_cli_runs.py` runs it",
    },
    "docs/security.md": {
        "assay ": "needs a server with identities: `test_cli_identity.py` runs them",
        "export ": "names that server",
    },
    "docs/statistics.md": {
        ".venv/bin/python": "takes minutes; `test_error_rates.py` compares the page with the figures"
    },
    "docs/variants.md": {"assay compare": "`test_cli_compare.py` runs it with agents that need no provider"},
    "docs/upgrading.md": {
        "git pull": "needs the network",
        "assay admin migrate": "needs a shared PostgreSQL: `test_upgrade_in_use.py` runs it",
        "assay serve": "serves until it is stopped; `test_compose_installation.py` starts such a worker",
        "pip install": "needs the network",
        "make compat": "takes an hour and needs another revision",
    },
    "examples/city-events/README.md": {"assay run": "`test_cli_examples.py` runs it"},
    "examples/encyclopaedia-research/README.md": {"assay run": "`test_cli_examples.py` runs it"},
    "examples/product-manual/README.md": {
        "assay run examples/product-manual/adk.yaml": "needs Google ADK: `tests/frameworks/test_adk.py` runs it",
        "assay run": "`test_cli_examples.py` runs it",
    },
    "examples/prompt-quality/README.md": {
        "assay compare": "needs the stand-in model: `test_cli_examples.py`",
        "assay run": "`test_cli_examples.py` runs it",
        "python examples": "serves until it is stopped; `test_example_prompts.py` starts it",
    },
    "examples/tenders-sql/README.md": {"assay run": "`test_cli_examples.py` runs it"},
    "services/embedder/README.md": {"pip install": "needs the network", "python -m": "serves until it is stopped"},
    "services/judge/README.md": {
        "pip install": "needs the network",
        "assay serve": "serves until it is stopped; `test_cli_judge.py` does so",
    },
    "services/orchestrator/README.md": {"pip install": "needs the network", "python -m": "serves until it is stopped"},
}
"""The reasons for not running commands, by page and the beginning of the command. Tests run all others."""


def reason_not_to_run(page: str, command: str) -> str | None:
    """Return why no test runs a command as printed, or None if `test_guide_shell.py` runs it."""
    return next((reason for start, reason in NOT_RUN.get(page, {}).items() if command.startswith(start)), None)
