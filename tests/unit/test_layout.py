"""The shape of the code base: what no reviewer should have to look for."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import assay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "library": "assay",
    "cli": "assay_cli",
    "services/embedder": "assay_embedder",
    "services/judge": "assay_judge",
    "services/orchestrator": "assay_orchestrator",
}
SOURCES = [
    path
    for folder in ("library", "cli", "services", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "v1" not in path.relative_to(ROOT).parts
]


def shape_problems(path: Path) -> Iterator[str]:
    """Yield what a reviewer would say of the shape of a module."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if text.count("\n") > 600:
        yield "more than 600 lines"
    if path.stem in ("utils", "helpers", "misc", "base", "common"):
        yield "a catch-all name"
    if text.strip() and not ast.get_docstring(tree):
        yield "no docstring"
    waiting: list[ast.AST] = [tree]
    while waiting:  # neither expressions nor functions inside functions, which are shorter than the outer ones
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (node.end_lineno or 0) - node.lineno >= 80:
                yield f"{node.name} has more than 80 lines"
        elif not isinstance(node, ast.expr):
            waiting += ast.iter_child_nodes(node)


def test_modules_are_small_and_described() -> None:
    """No function above 80 lines, no module above 600, a docstring everywhere, no catch-all names."""
    assert [f"{path}: {problem}" for path in SOURCES for problem in shape_problems(path)] == []


def test_every_source_root_is_installed_from_here() -> None:
    """The five packages import, and from this checkout: no copy installed elsewhere is tested by mistake."""
    for root, name in PACKAGES.items():
        assert Path(str(importlib.import_module(name).__file__)) == ROOT / root / name / "__init__.py"


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("run", "--help"), ("validate", "--help"), ("metrics", "list"), ("runs", "--help"), ("doctor", "-h")],
    ids=" ".join,
)
def test_a_question_to_the_command_itself_reads_nothing_of_runs(arguments: Sequence[str]) -> None:
    """Help and lists come at once: dataset readers, specs and the wire are imported where they are used."""
    code = (
        "import sys\n"
        f"sys.argv = {['assay', *arguments]!r}\n"
        "from assay_cli.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "slow = ('assay.datasets.', 'assay.specs.', 'assay.client.client', 'grpc', 'google.protobuf', 'yaml')\n"
        "allowed = ('assay.datasets.choices',)\n"
        "print('imported:', sorted(n for n in sys.modules if n.startswith(slow) and n not in allowed))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported: []"


BOUNDARIES = dict(
    re.findall(r"^\| a (\w+) \| (\d+) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
)
"""The number of broad handlers at each boundary, from CONTRIBUTING.md."""
BROAD = re.compile(r"except\*?(?:[ (]+(?:Base)?Exception\b|\s*:)")


def test_broad_handlers_stand_at_a_boundary() -> None:
    """A handler of any exception raises it again, or its comment names one of four boundaries, as often as listed."""
    counts = dict.fromkeys(BOUNDARIES, 0)
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text if BROAD.search(text) else "")):
            if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
                continue
            if node.type is not None and ast.unparse(node.type) not in ("Exception", "BaseException"):
                continue
            place = re.search(r"# .*\bthe boundary of a (\w+)", lines[node.lineno - 1])
            assert place is not None, f"{path}:{node.lineno}"
            assert place[1] in counts, f"{path}:{node.lineno}"
            counts[place[1]] += 1
    assert {name: int(count) for name, count in BOUNDARIES.items()} == counts


NO_CODE = re.compile(
    r'"""(?:.|\n)*?"""'
    r"|(?:^[ \t]*|  )#.*"
    r"|^[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]+(?:\((?:.|\n)*?\)|.*)",
    re.MULTILINE,
)
"""Docstrings, comments and imports: what they name is not used by that."""
DEFINITION = re.compile(r"^[ \t]*(?:async def|def|class) (\w+)", re.MULTILINE)
FRAMEWORKS = re.compile(
    r"Protocol$|Handler$|Server$|Interceptor$|Plugin$|Callback|Transport$|TypeDecorator|SessionABC|Capability|Group$"
    r"|Command$|Strategy$|Item$"
)
"""The bases of classes whose methods are called by what they are handed to."""
PUBLIC = {*assay.__all__, "Runs"}
USED_ELSEWHERE = {
    "do_begin": "called by SQLAlchemy",
    "dumps_typed": "called by LangGraph",
    "first_stop": "the rule of early stopping by its definition, which benchmarks/error_rates measures",
    "loads_typed": "called by LangGraph",
}


def test_every_function_is_used() -> None:
    """What nothing in the product names is dead, whatever tests it has: a function, a class or a method.

    Apart from commands, the methods that frameworks call, the public API, and code for users' tests and projects.
    """
    product = [path for path in SOURCES if not {"examples", "testing", "templates"} & set(path.parts)]
    code = {path: NO_CODE.sub("", path.read_text(encoding="utf-8")) for path in product}
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "library").rglob("*.j2")]
    words = Counter(word for text in (*code.values(), *pages) for word in re.findall(r"\w+", text))
    definitions = Counter(name for text in code.values() for name in DEFINITION.findall(text))
    unused = {name for name, count in definitions.items() if words[name] == count and not name.startswith("__")}
    suspects = [path for path, text in code.items() if unused.intersection(DEFINITION.findall(text))]
    dead = {name for path in suspects for name in _uncalled(ast.parse(path.read_text(encoding="utf-8")), unused)}
    assert dead == set(USED_ELSEWHERE)


def _uncalled(tree: ast.Module, unused: set[str]) -> Iterator[str]:
    """Yield the unused functions and methods of a module that nothing outside the product calls either."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    called = {
        part.name
        for node in classes
        if node.name in PUBLIC or any(FRAMEWORKS.search(ast.unparse(base).partition("[")[0]) for base in node.bases)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name in unused - called and not any(map(_is_command, node.decorator_list)):
            yield node.name


def _is_command(decorator: ast.expr) -> bool:
    return ".command(" in ast.unparse(decorator)


TESTS = sorted((ROOT / "tests").rglob("*.py"))
WRONG_ARGUMENTS = 4
"""How many arguments in tests are of a wrong type on purpose, as a user's may be."""
PATCHED_CONSTANTS = {
    "_INDEX_VERSION": "a later SQLite",
    "_MEMORY": "a machine with little free memory",
    "_SERVER_AGE": "a database server that runs for days, or for a second",
}
"""The private constants that tests replace, with why none of them is a parameter."""


def test_constructors_ask_for_no_more_than_they_use() -> None:
    """No test leaves out a part that a constructor asks for, or replaces a constant that could be its parameter.

    Where a type is wrong on purpose, the line says so. A constructor that takes more than it uses gets a protocol, and
    a constant that a test needs to be another becomes a parameter with the constant as its default.
    """
    ignored: list[str] = []
    patched: set[str] = set()
    for path in TESTS:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"# type: ignore\[[a-z, -]*arg-type", line):
                assert line.endswith("  # wrong on purpose"), f"{path}:{number}: why is this argument of another type?"
                ignored.append(line)
            patched |= set(re.findall(r"""setattr\((?:[\w.]+, ["']|["'][\w.]+\.)(_[A-Z][A-Z_]+)["']""", line))
    assert len(ignored) == WRONG_ARGUMENTS
    assert patched == set(PATCHED_CONSTANTS)


def test_mutation_testing_names_modules_that_exist() -> None:
    """A pattern that matches nothing is a module that was renamed: `make mutants` would leave it out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    assert set(settings["source_paths"]) == {"assay_pytest", *PACKAGES.values()}
    roots = [ROOT / root for root in PACKAGES]
    for pattern in settings["only_mutate"] + settings["do_not_mutate"]:
        assert any(any(root.rglob(pattern)) for root in roots), pattern
