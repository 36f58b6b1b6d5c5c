"""Commands that messages name are commands that there are: each is parsed by the real command line."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from assay_cli.commands import assay
from assay_cli.resume_hint import find_command, pasted

if TYPE_CHECKING:
    from collections.abc import Iterator


_ROOT = Path(__file__).parents[2]
_PACKAGES = ("library", "cli", "services")
_NAMED = re.compile(r"`assay ([a-z][^`]*)`")
_EXAMPLE = re.compile(r"^ +assay ([a-z].*)$", re.MULTILINE)


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, a value that is filled in as X."""
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            values = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def printed_commands() -> dict[str, str]:
    """Return every command that a text of the packages names, with one place that names it."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        for path in (_ROOT / package).rglob("*.py"):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            for text in texts(ast.parse(path.read_text("utf-8"))):
                words = [*_NAMED.findall(text), *_EXAMPLE.findall(text)]
                found |= {" ".join(word.split()): str(path.relative_to(_ROOT)) for word in words}
    return found


def problem(words: str) -> str:
    """Return why a command cannot be given like that; empty where it can, or where a command is only spoken of."""
    if " | " in words:  # several commands in one: the heading of a module
        return ""
    command, given = find_command(assay, shlex.split(words.partition(" < FILE")[0]))
    if not given or command.name == "serve":
        return "" if command.name != "assay" else "there is no such command"
    if isinstance(command, click.Group):
        return f"{command.name} has no command {given[0]}"
    context = click.Context(command)
    parser = command.make_parser(context)
    try:
        values, rest, _ = parser.parse_args(list(given))
    except click.UsageError as error:
        # `assay run --against` speaks of the option.
        return "" if len(given) == 1 and "requires an argument" in error.message else error.format_message()
    has_many = any(isinstance(each, click.Argument) and each.nargs == -1 for each in command.params)
    named = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    missing = [each.name for each in named if not isinstance(values.get(str(each.name)), str | tuple)]
    return f"lacks {missing}" if missing else f"has {rest} too many" if rest and not has_many else ""


def test_every_printed_command_can_be_given() -> None:
    """Each exists, has the options that the text names, and every argument that it needs."""
    printed = printed_commands()
    assert {"runs resume RUN --spec SPEC", "baseline set RUN", "run SPEC"} <= printed.keys()
    assert len(printed) > 80
    problems = {f"{place}: {words}": problem(words) for words, place in printed.items()}
    assert {place: text for place, text in problems.items() if text} == {}


@pytest.mark.parametrize("words", ["runs resmue X", "runs resume --retry-errors", "run --quik", "runs show A B", "rum"])
def test_a_wrong_command_is_seen(words: str) -> None:
    """The check itself tells a command that cannot be given."""
    assert problem(words)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["assay", "run", "--server", "h:1"], "`assay runs list --server h:1`, `assay metrics list`, `assay runs`"),
        (["assay", "run", "--server=h:1"], "`assay runs list --server h:1`, `assay metrics list`, `assay runs`"),
        (["assay", "run"], "`assay runs list`, `assay metrics list`, `assay runs`"),
    ],
)
def test_commands_name_the_server(argv: list[str], shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given with --server is pasted with it, where the command takes one."""
    monkeypatch.setattr("sys.argv", argv)
    assert pasted("`assay runs list`, `assay metrics list`, `assay runs`", assay) == shown


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
"""Arguments of `serve` that begin another program, whose flags `test_guide_tables.py` compares."""


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
            subcommand = command.get_command(context, name)
            if subcommand is None:
                return f"{command.name} has no command {name}"
            command, context = subcommand, click.Context(subcommand, parent=context, info_name=name)
        elif command.name == "serve" and name in SERVED:
            return ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path) -> None:
    """Each word is a command of its group, each option one of its command."""
    wrong = {" ".join(words): found for words in commands_of(page.read_text()) if (found := problem_of(words))}
    assert wrong == {}


def test_commands_of_pages_are_found() -> None:
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
