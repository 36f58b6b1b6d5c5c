"""Words that are never right in pages, help texts, errors and log lines: they name no actor, or no event."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docker-compose.yml", "Makefile")),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("services/*/README.md"),
    *ROOT.glob("examples/*/README.md"),
    *ROOT.glob("examples/*/assay.yaml"),
    *ROOT.glob("cli/assay_cli/templates/*/*.yaml"),
    *ROOT.glob("benchmarks/README.md"),
    *ROOT.glob("protos/**/*.proto"),
]
PROMPTS = ("library/assay/judging/canaries.py", "services/judge/assay_judge/verdicts/prompt.py")
"""Texts for models: another word would be another prompt, whose verdicts could not be compared with earlier ones."""
SOURCES = [
    path
    for folder in ("library", "cli", "services")
    for path in (ROOT / folder).rglob("*.py")
    if "v1" not in path.relative_to(ROOT).parts and str(path.relative_to(ROOT)) not in PROMPTS
]
NEVER = re.compile(
    r"\b(whoever|somebody|nobody|everybody|is told|are told|tells?|goes on|go on|going on|once more|in its midst|erred|"
    r"left alone|under way|for good|and its kin|as it stands|at its word|without further ado)\b",
    re.IGNORECASE,
)

NEVER_READ = re.compile(f"{NEVER.pattern}|\\btold\\b", re.IGNORECASE)
"""Of docstrings: processes publish and return, they do not tell."""


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings of a module that users may see: all but docstrings, of which commands show theirs as help."""
    hidden: set[int] = set()
    for node in ast.walk(tree):
        decorators = getattr(node, "decorator_list", [])
        is_command = any(
            "command" in ast.unparse(decorator) or "group" in ast.unparse(decorator) for decorator in decorators
        )
        body = getattr(node, "body", None)
        if isinstance(body, list) and not is_command:
            hidden |= {id(part.value) for part in body if isinstance(part, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            parts = [part.value for part in body if isinstance(part, ast.Expr)]
            yield from (str(part.value) for part in parts if isinstance(part, ast.Constant))


def test_pages_name_actors_and_events() -> None:
    """No page, contract or comment of the installation has one of the words."""
    lines_with_words = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        # Quotations are another's.
        lines = (re.sub(r'"[^"\n]*"', "", text) if page.suffix == ".md" else text).splitlines()
        lines_with_words += [f"{page}:{number}: {line}" for number, line in enumerate(lines, 1) if NEVER.search(line)]
    assert lines_with_words == []


def suspects(words: re.Pattern[str]) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules whose text has one of the words; a string may continue on the next line."""
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if words.search(re.sub(r"""["']\s+\w?["']""", "", text)):
            yield path, ast.parse(text)


def test_texts_of_the_program_name_actors_and_events() -> None:
    """No help text, error or log line has one of the words."""
    assert [
        f"{path}:{text.lineno}: {text.value!r}"
        for path, tree in suspects(NEVER)
        for text in texts(tree)
        if NEVER.search(str(text.value))
    ] == []


def test_docstrings_name_actors_and_events() -> None:
    """No docstring of the product has one of the words."""
    assert [
        f"{path}: {docstring.splitlines()[0]}: {word[0]}"
        for path, tree in suspects(NEVER_READ)
        for docstring in docstrings(tree)
        for word in NEVER_READ.finditer(docstring)
    ] == []
