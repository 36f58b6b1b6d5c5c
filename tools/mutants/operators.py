"""Small changes of a module's text that its tests should notice: one mutant is one change at one place."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_METHODS = {"startswith": "endswith", "endswith": "startswith", "lstrip": "rstrip", "rstrip": "lstrip"}
# What no result depends on: how a text is encoded in a file of this machine, what a log or a task is called.
_IDLE_KEYWORDS = {"encoding", "strict", "stacklevel", "name", "repr"}
_IDLE_NAMES = {"__all__", "__slots__"}
_LOGS = {"_log", "log", "logger", "_logger"}
# Places at which chaos tests end a process: a test compares them with their list.
_HOOKS = {"failpoint"}
_Node = ast.expr | ast.stmt
_CODE = re.compile(r"[\w.:/-]{1,40}")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Args:
        path: The module, relative to the root.
        function: Where in it, as a dotted name; empty at its top.
        operator: What kind of change.
        number: Which of equal changes in the function, from 0.
        line: First line of what is changed, from 1.
        end_line: Last line of it.
        start: Where the changed bytes begin.
        end: Where they end.
        replacement: What is there instead.
        before: The first line as it is, without indentation.
        after: The same line changed.
    """

    path: str
    function: str
    operator: str
    number: int
    line: int
    end_line: int
    start: int
    end: int
    replacement: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """What the mutant is called in results: stable while its function keeps its lines."""
        return f"{self.path}::{self.function}::{self.before} -> {self.after}::{self.number}"

    def applied_to(self, source: bytes) -> bytes:
        """Return the module's text with the change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


@dataclass(frozen=True, slots=True)
class _Change:
    operator: str
    start: int
    end: int
    replacement: str


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text.

    Args:
        path: What the module is called in the mutants.
        source: Its text.
    """
    finder = _Finder(source)
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for function, change in sorted(finder.find(), key=lambda each: (each[1].start, each[1].end, each[1].replacement)):
        line, before = finder.line_at(change.start)
        end_line, _ = finder.line_at(change.end)
        after = finder.first_line_after(change)
        number = seen[function, before, after]
        seen[function, before, after] += 1
        place = (change.start, change.end, change.replacement)
        found.append(Mutant(path, function, change.operator, number, line, end_line, *place, before, after))
    return found


class _Finder:
    """Finds changes in a module's tree, at byte offsets of its text."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = source.split(b"\n")
        self._offsets = [0]
        for line in self._lines:
            self._offsets.append(self._offsets[-1] + len(line) + 1)

    def find(self) -> Iterator[tuple[str, _Change]]:
        """Return every change with the dotted name of its function."""
        yield from self._walk(ast.parse(self._source), "")

    def line_at(self, offset: int) -> tuple[int, str]:
        """Return the line that holds a byte, from 1, and its text without indentation."""
        line = bisect_right(self._offsets, offset)
        return line, self._lines[line - 1].decode().strip()

    def first_line_after(self, change: _Change) -> str:
        """Return the line where a change begins, as it is with the change, without indentation."""
        line, _ = self.line_at(change.start)
        end_line, _ = self.line_at(change.end)
        kept = self._source[self._offsets[line - 1] : change.start]
        rest = self._source[change.end : self._offsets[end_line] - 1]
        return (kept + change.replacement.encode() + rest).split(b"\n")[0].decode().strip()

    def _walk(self, node: ast.AST, function: str) -> Iterator[tuple[str, _Change]]:
        for child in _children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._walk(child, f"{function}.{child.name}" if function else child.name)
                continue
            for change in self._changes(child, node):
                yield function, change
            yield from self._walk(child, function)

    def _changes(self, node: ast.AST, parent: ast.AST) -> Iterator[_Change]:
        match node:
            case ast.Compare():
                yield from self._comparison(node)
            case ast.BoolOp():
                yield from self._boolean(node)
            case ast.UnaryOp(op=ast.Not()):
                yield self._replaced(node, "not dropped", self._text(node.operand))
            case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
                yield self._between(node, node.left, node.right, _ARITHMETIC[type(node.op)], "arithmetic")
            case ast.AugAssign() if isinstance(node.op, ast.Add | ast.Sub):
                signs = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
                yield self._between(node, node.target, node.value, signs, "arithmetic")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.If() | ast.While() | ast.IfExp() if not isinstance(node.test, ast.Constant):
                yield self._replaced(node.test, "condition", "False")
                if not isinstance(node, ast.While):
                    yield self._replaced(node.test, "condition", "True")
            case ast.Constant():
                yield from self._constant(node, parent)
            case ast.Call():
                yield from self._call(node)
            case ast.stmt():
                yield from self._statement(node)

    def _comparison(self, node: ast.Compare) -> Iterator[_Change]:
        sides = [node.left, *node.comparators]
        for left, right, operation in zip(sides, sides[1:], node.ops, strict=False):
            yield self._between(node, left, right, _COMPARISONS[type(operation)], "comparison")

    def _boolean(self, node: ast.BoolOp) -> Iterator[_Change]:
        signs = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield self._between(node, left, right, signs, "and or")
        for dropped in node.values:
            kept = [self._text(value) for value in node.values if value is not dropped]
            yield self._replaced(node, "operand dropped", f"({f' {signs[0]} '.join(f'({text})' for text in kept)})")

    def _constant(self, node: ast.Constant, parent: ast.AST) -> Iterator[_Change]:
        value = node.value
        if isinstance(value, bool):
            yield self._replaced(node, "constant", str(not value))
        elif isinstance(value, int | float):
            yield self._replaced(node, "constant", repr(value + 1))
        elif isinstance(value, str) and _CODE.fullmatch(value) and not isinstance(parent, ast.Expr):
            yield self._replaced(node, "text", repr(f"XX{value}"))

    def _call(self, node: ast.Call) -> Iterator[_Change]:
        match node.func:
            case ast.Name(id=name) if name in _FUNCTIONS and not (name == "sorted" and node.keywords):
                yield self._replaced(node.func, "function", _FUNCTIONS[name])
            case ast.Attribute(attr=name) if name in _METHODS:
                text = self._text(node.func)
                yield self._replaced(node.func, "function", text[: -len(name)] + _METHODS[name])

    def _statement(self, node: ast.stmt) -> Iterator[_Change]:
        match node:
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._replaced(value, "return value", "None")
            case ast.Raise():
                yield self._replaced(node, "statement dropped", "pass")
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in _LOGS:
                return
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in _HOOKS:
                return
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield self._replaced(node, "statement dropped", "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._replaced(node, "statement dropped", "pass")
            case ast.Break():
                yield self._replaced(node, "statement dropped", "continue")
            case ast.Continue():
                yield self._replaced(node, "statement dropped", "break")

    def _start(self, node: _Node) -> int:
        return self._offsets[node.lineno - 1] + node.col_offset

    def _end(self, node: _Node) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offsets[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: _Node) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _replaced(self, node: _Node, operator: str, replacement: str) -> _Change:
        return _Change(operator, self._start(node), self._end(node), replacement)

    def _between(self, node: _Node, left: _Node, right: _Node, signs: tuple[str, str], operator: str) -> _Change:
        start, end = self._end(left), self._start(right)
        # Brackets, comments and line ends may stand there too; the sign is what stands first.
        found = re.search(r"\s+".join(map(re.escape, signs[0].split())).encode(), self._source[start:end])
        assert found is not None, (self._text(node), signs)
        return _Change(operator, start + found.start(), start + found.end(), signs[1])


def _children(node: ast.AST) -> Iterable[ast.AST]:
    """Return what of a node may be changed: neither types, decorators, docstrings, messages nor logs."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None), *node.body]
        case ast.ClassDef() | ast.Module():
            return node.body
        case (
            ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom()
        ):
            return []
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case ast.Assign(targets=[ast.Name(id=name)]) if name in _IDLE_NAMES:
            return []
        case ast.Subscript(value=ast.Name(id="Literal" | "cast")):
            return []
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGS:
            return []
        case ast.Call(func=ast.Name(id=name)) if name in _HOOKS:
            return []
        case ast.Call():
            return [node.func, *node.args, *(each.value for each in node.keywords if each.arg not in _IDLE_KEYWORDS)]
        case ast.ExceptHandler():
            return node.body
        case _:
            return ast.iter_child_nodes(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
