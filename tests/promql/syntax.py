"""The query language, as far as the rules use it: text to expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from tests.promql.series import seconds


@dataclass(frozen=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True)
class Selector:
    """Series by their name and matchers of labels; with a range, their samples of so many seconds."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    range_s: float = 0.0


@dataclass(frozen=True)
class Call:
    """A function of expressions."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Aggregation:
    """An aggregation over all series that agree in some labels."""

    operator: str
    by: tuple[str, ...]
    of: Expression


@dataclass(frozen=True)
class Binary:
    """Two expressions; `ignores_labels` where they are matched `on ()`."""

    operator: str
    left: Expression
    right: Expression
    ignores_labels: bool = False


Expression: TypeAlias = "Number | Selector | Call | Aggregation | Binary"

FUNCTIONS = ("rate", "increase", "histogram_quantile", "absent", "time")
AGGREGATIONS = ("sum", "max", "min", "count")
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/"))
_TOKEN = re.compile(
    r'\s+|(?P<number>\d+(?:\.\d+)?(?![a-z]))|(?P<duration>\[[0-9a-z]+\])|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<sign>=~|!~|==|!=|>=|<=|[-+*/(){},=<>])"
)


def parse(text: str) -> Expression:
    """Return the expression of a query.

    Raises:
        ValueError: It has something that is not known here.
    """
    parser = _Parser(text)
    found = parser.binary(0)
    parser.expect("")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at:]!r} of {text!r} is not known here")
            at = found.end()
            if found[0].strip():
                self._tokens.append(found[0])

    def peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def expect(self, wanted: str) -> None:
        if (found := self.take()) != wanted:
            raise ValueError(f"{found!r} in place of {wanted!r} in {self._text!r}")

    def binary(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self.unit()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            operator, ignores = self.take(), False
            if self.peek() == "on":
                for wanted in ("on", "(", ")"):
                    self.expect(wanted)
                ignores = True
            left = Binary(operator, left, self.binary(level + 1), ignores)
        return left

    def unit(self) -> Expression:
        token = self.take()
        if token == "(":
            inner = self.binary(0)
            self.expect(")")
            return inner
        if token[:1].isdigit():
            return Number(float(token))
        if token in AGGREGATIONS:
            return self._aggregation(token)
        if token in FUNCTIONS:
            return Call(token, self._arguments())
        if re.fullmatch(r"[a-z_][a-z0-9_]*", token) and self.peek() != "(":
            return self._selector(token)
        raise ValueError(f"{token!r} of {self._text!r} is not known here")

    def _aggregation(self, operator: str) -> Aggregation:
        by = self._names() if self.peek() == "by" and self.take() else ()
        (of,) = self._arguments()
        return Aggregation(operator, by, of)

    def _arguments(self) -> tuple[Expression, ...]:
        self.expect("(")
        found: list[Expression] = []
        while self.peek() != ")":
            found.append(self.binary(0))
            if self.peek() != ")":
                self.expect(",")
        self.expect(")")
        return tuple(found)

    def _names(self) -> tuple[str, ...]:
        self.expect("(")
        found = []
        while (name := self.take()) != ")":
            found.append(name)
            if self.peek() == ",":
                self.take()
        return tuple(found)

    def _selector(self, name: str) -> Selector:
        matchers: list[tuple[str, str, str]] = []
        if self.peek() == "{":
            self.take()
            while (label := self.take()) != "}":
                operator, value = self.take(), self.take()
                if operator not in ("=", "!=", "=~", "!~") or value[:1] != '"' or "\\" in value:
                    raise ValueError(f"{label} {operator} {value} of {self._text!r} is not known here")
                matchers.append((label, operator, value[1:-1]))
                if self.peek() == ",":
                    self.take()
        range_s = seconds(self.take()[1:-1]) if self.peek().startswith("[") else 0.0
        return Selector(name, tuple(matchers), range_s)
