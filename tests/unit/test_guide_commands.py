"""Commands in guides: every `assay` command that a page shows exists, with the options that it gives."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from assay_cli.commands import assay

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/metrics/*.md"),
    *ROOT.glob("services/*/README.md"),
    *ROOT.glob("examples/*/README.md"),
]
COMMAND = re.compile(r"(?:^ *|[`|;&] ?|\$ |\| )(?:\.venv/bin/)?assay ((?:--?)?[a-z][^`|;#\n]*)", re.MULTILINE)
SERVED = ("orchestrator", "embedder", "judge")
"""Arguments of `serve` that begin another program, whose flags `test_service_readmes.py` compares."""


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, without its comment and the brackets of what may be left out."""
    for found in COMMAND.finditer(text.replace("\\\n", " ")):
        line = re.split(r"\s{2,}|\s[>(]|\s+\.\.\.", found[1].strip())[0]
        line = re.sub(r"[\[\]]|\.\.\.|…", " ", line)
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        yield words


def problem_of(words: list[str]) -> str:
    """Return what is wrong with a command; the empty text where nothing is."""
    command: click.Command = assay
    context = click.Context(assay, info_name="assay")
    for word in words:
        name = word.split("=")[0].rstrip(",.:")
        if name.startswith("-") and name != "-":
            known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
            if name not in known:
                return f"{command.name} has no option {name}"
        elif isinstance(command, click.Group):
            if not re.fullmatch(r"[a-z-]+", name):  # a placeholder
                return ""
            found = command.get_command(context, name)
            if found is None:
                return f"{command.name} has no command {name}"
            command, context = found, click.Context(found, parent=context, info_name=name)
        elif command.name == "serve" and name in SERVED:
            return ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path) -> None:
    """Each word is a command of its group, each option one of its command."""
    wrong = {" ".join(words): found for words in commands_of(page.read_text()) if (found := problem_of(words))}
    assert wrong == {}


def test_commands_are_found() -> None:
    """The search finds commands in text, blocks and tables, and notices what does not exist."""
    lines = [
        "`assay run x --tag a` and",
        "    assay runs shwo RUN   # comment",
        "| `assay runs list --stat` |",
        "$ assay doctor",
    ]
    text = "\n".join(lines)
    assert [" ".join(words) for words in commands_of(text)] == [
        "run x --tag a",
        "runs shwo RUN",
        "runs list --stat",
        "doctor",
    ]
    assert [problem_of(words) for words in commands_of(text)] == [
        "",
        "runs has no command shwo",
        "list has no option --stat",
        "",
    ]
    assert sum(len(list(commands_of(page.read_text()))) for page in PAGES) > 120
