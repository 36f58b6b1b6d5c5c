"""Arithmetic expressions over named numbers, in a grammar of their own: nothing else can be written in it.

    choice     = either [ "if" either "else" choice ]
    either     = both { "or" both }
    both       = negation { "and" negation }
    negation   = "not" negation | comparison
    comparison = sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]
    sum        = product { ( "+" | "-" ) product }
    product    = sign { ( "*" | "/" ) sign }
    sign       = ( "+" | "-" ) sign | power
    power      = atom [ "**" sign ]
    atom       = number | name | function "(" choice { "," choice } ")" | "(" choice ")"

Precedence is that of Python. Everything is a 64-bit float; conditions are a type of their own. An operand that
is missing makes the result missing; only the branch of a choice that is taken is read, `and` and `or` stop at
the operand that decides, `coalesce` gives the first of its operands that is not missing.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

from assay.errors import SpecError
from assay.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["FUNCTIONS", "WORDS", "EvaluationError", "Expression", "Read", "parse_expression"]

Read = Callable[[str], float | None]
"""Returns the number that a name stands for, None where it is missing; may raise EvaluationError."""

_MAX_CHARS = 1000
_MAX_DEPTH = 50
_MAX_PARTS = 200
_MANY = _MAX_PARTS
_TOKEN = re.compile(
    r"\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[<>=!]=|[-+*/<>(),]))", re.ASCII
)
WORDS = frozenset({"if", "else", "and", "or", "not"})
"""Names that are part of the grammar."""

_SIGN = 8
_BINDING = {"if": 1, "or": 2, "and": 3, "<": 5, "<=": 5, ">": 5, ">=": 5, "==": 5, "!=": 5,
            "+": 6, "-": 6, "*": 7, "/": 7, "**": 9}  # fmt: skip
_NEGATION = 4


class EvaluationError(ArithmeticError):
    """The expression has no value although nothing is missing; `reason` is a stable word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Node(Protocol):
    def evaluate(self, read: Read) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Args:
        names: What it reads, in the order of the text.
        root: Its outermost operation.
    """

    names: tuple[str, ...]
    root: _Node

    def evaluate(self, read: Read) -> float | None:
        """Return the value, finite; None where an operand is missing.

        Raises:
            EvaluationError: A division by zero, a result beyond what a float holds, or the like.
        """
        return self.root.evaluate(read)


@dataclass(frozen=True, slots=True)
class _Number:
    value: float

    def evaluate(self, read: Read) -> float | None:
        return self.value


@dataclass(frozen=True, slots=True)
class _Name:
    name: str

    def evaluate(self, read: Read) -> float | None:
        return read(self.name)


@dataclass(frozen=True, slots=True)
class _Apply:
    """A function of numbers, none of which may be missing."""

    function: Callable[..., float]
    operands: tuple[_Node, ...]
    is_condition: bool = False

    def evaluate(self, read: Read) -> float | None:
        found = [operand.evaluate(read) for operand in self.operands]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            return None
        try:
            value = self.function(*values)
        except ZeroDivisionError:
            raise EvaluationError("division_by_zero") from None
        except OverflowError:
            raise EvaluationError("overflow") from None
        except ValueError:
            raise EvaluationError("domain_error") from None
        if not math.isfinite(value):
            raise EvaluationError("overflow")
        return value


@dataclass(frozen=True, slots=True)
class _Junction:
    """`or` stops at a true operand, `and` at a false one."""

    operands: tuple[_Node, ...]
    stop: bool

    def evaluate(self, read: Read) -> float | None:
        for operand in self.operands:
            value = operand.evaluate(read)
            if value is None:
                return None
            if bool(value) is self.stop:
                return self.stop
        return not self.stop


@dataclass(frozen=True, slots=True)
class _Choice:
    condition: _Node
    chosen: _Node
    other: _Node

    def evaluate(self, read: Read) -> float | None:
        holds = self.condition.evaluate(read)
        if holds is None:
            return None
        return (self.chosen if holds else self.other).evaluate(read)


@dataclass(frozen=True, slots=True)
class _Coalesce:
    operands: tuple[_Node, ...]

    def evaluate(self, read: Read) -> float | None:
        return next((value for operand in self.operands if (value := operand.evaluate(read)) is not None), None)


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    return math.pow(base, exponent)


def _clamp(value: float, low: float, high: float) -> float:
    if low > high:
        raise ValueError
    return max(low, min(high, value))


def _mean(*values: float) -> float:
    return math.fsum(values) / len(values)


def _chain(operators: Sequence[str], first: float, *others: float) -> float:
    value = first
    for sign, other in zip(operators, others, strict=True):
        value = _ARITHMETIC[sign](value, other)
    return value


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_PLAIN: dict[str, Callable[..., float]] = {
    "min": min, "max": max, "abs": abs, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "mean": _mean,
    "clamp": _clamp,
}  # fmt: skip
FUNCTIONS = {
    "min": (2, _MANY),
    "max": (2, _MANY),
    "abs": (1, 1),
    "sqrt": (1, 1),
    "exp": (1, 1),
    "log": (1, 1),
    "mean": (1, _MANY),
    "clamp": (3, 3),
    "if_else": (3, 3),
    "coalesce": (2, _MANY),
}
"""The functions, with the least and the most operands of each."""


def parse_expression(text: str, *, flags: Collection[str] = ()) -> Expression:
    """Return the expression that a text describes.

    Args:
        text: At most 1,000 characters, 200 parts and 50 levels of nesting.
        flags: Names of numbers that are 0 or 1 and may stand where a condition is due.

    Raises:
        SpecError: The text is no expression; says what is wrong and where.
    """
    if len(text) > _MAX_CHARS:
        raise SpecError(f"has {len(text)} characters, more than {_MAX_CHARS}")
    return _Parser(_tokens(text), flags).expression()


def _tokens(text: str) -> list[tuple[str, int]]:
    """Return the text's numbers, names and signs with their positions, and an empty one for its end."""
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            place = position + len(text[position:]) - len(text[position:].lstrip())
            raise SpecError(
                f"{text[place]!r} at character {place + 1} is no part of a formula: it has numbers, names, "
                f"+ - * / **, comparisons, parentheses and the functions {', '.join(FUNCTIONS)}"
            )
        tokens.append((found[found.lastindex or 0], found.start(found.lastindex or 0) + 1))
        position = found.end()
    return [*tokens, ("", end + 1)]


class _Parser:
    """Reads tokens by the strength with which operators bind; knows of each part whether it is a condition."""

    def __init__(self, tokens: Sequence[tuple[str, int]], flags: Collection[str]) -> None:
        self._tokens = tokens
        self._flags = flags
        self._at = self._depth = self._parts = 0
        self._names: dict[str, None] = {}

    def expression(self) -> Expression:
        root = self._number(self._binding(0))
        if self._token:
            self._refuse("an operator")
        return Expression(tuple(self._names), root)

    @property
    def _token(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        token = self._token
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._token != token:
            self._refuse(repr(token))
        self._at += 1

    def _refuse(self, expected: str) -> NoReturn:
        token, place = self._tokens[self._at]
        found = f"{token[:40]!r} at character {place}" if token else "the end"
        raise SpecError(f"there should be {expected} instead of {found}")

    def _count(self, parts: int = 1) -> None:
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise SpecError(f"has more than {_MAX_PARTS} parts: split it into several metrics")

    def _binding(self, floor: int) -> _Node:
        """Read as far as operators bind more strongly than `floor`."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SpecError(f"is nested more than {_MAX_DEPTH} levels deep: split it into several metrics")
        left = self._prefix()
        while (level := _BINDING.get(self._token, 0)) > floor:
            left = self._infix(left, level)
        self._depth -= 1
        return left

    def _prefix(self) -> _Node:
        token = self._token
        if token == "not":
            self._at += 1
            return self._condition_of(operator.not_, (self._condition(self._binding(_NEGATION)),))
        if token in ("+", "-"):
            self._at += 1
            return self._apply(operator.neg if token == "-" else operator.pos, [self._binding(_SIGN)])
        if token == "(":
            self._at += 1
            inner = self._binding(0)
            self._expect(")")
            return inner
        return self._atom()

    def _atom(self) -> _Node:
        token = self._token
        if token[:1].isdigit() or token[:1] == ".":
            self._count()
            value = float(token)
            if not math.isfinite(value):
                raise SpecError(f"the number {token[:40]} is too large")
            self._at += 1
            return _Number(value)
        if not (token[:1].isalpha() or token[:1] == "_") or token in WORDS:
            self._refuse("a number, a name or '('")
        self._at += 1
        if self._token == "(":
            return self._call(token)
        if token in FUNCTIONS:
            raise SpecError(f"{token} is a function: write {token}(...)")
        self._count()
        self._names[token] = None
        return _Name(token)

    def _call(self, name: str) -> _Node:
        if name not in FUNCTIONS:
            raise SpecError(unknown_name("function", name, FUNCTIONS))
        self._at += 1
        operands = [] if self._token == ")" else [self._binding(0)]
        while self._token == ",":
            self._at += 1
            operands.append(self._binding(0))
        self._expect(")")
        least, most = FUNCTIONS[name]
        if not least <= len(operands) <= most:
            wanted = f"{least}" if least == most else f"at least {least}"
            raise SpecError(f"{name} takes {wanted} value{'s' * (wanted != '1')}, not {len(operands)}")
        if name == "if_else":
            condition, chosen, other = operands
            return self._choice(condition, chosen, other)
        if name == "coalesce":
            self._count()
            return _Coalesce(tuple(self._number(operand) for operand in operands))
        return self._apply(_PLAIN[name], operands)

    def _infix(self, left: _Node, level: int) -> _Node:
        sign = self._token
        if sign == "if":
            self._at += 1
            condition = self._binding(level)
            self._expect("else")
            return self._choice(condition, left, self._binding(0))
        if sign == "**":
            self._at += 1
            return self._apply(_power, [left, self._binding(_SIGN)])
        signs, operands = [], [left]
        while self._token in _BINDING and _BINDING[self._token] == level:
            signs.append(self._take())
            operands.append(self._binding(level))
        if sign in ("and", "or"):
            self._count()
            return _Junction(tuple(self._condition(operand) for operand in operands), sign == "or")
        if sign not in _COMPARISONS:
            return self._apply(partial(_chain, tuple(signs)), operands, parts=len(signs))
        if len(signs) > 1:
            raise SpecError("compare two numbers at a time: write a < b and b < c")
        return self._condition_of(_COMPARISONS[sign], tuple(self._number(operand) for operand in operands))

    def _apply(self, function: Callable[..., float], operands: Sequence[_Node], parts: int = 1) -> _Node:
        self._count(parts)
        node = _Apply(function, tuple(self._number(operand) for operand in operands))
        if not all(isinstance(operand, _Number) for operand in operands):
            return node
        try:
            value = node.evaluate(lambda name: None)
        except EvaluationError as problem:
            raise SpecError(f"can never be computed: {problem.reason.replace('_', ' ')}") from None
        return _Number(value or 0.0)

    def _condition_of(self, function: Callable[..., bool], operands: tuple[_Node, ...]) -> _Node:
        self._count()
        return _Apply(function, operands, is_condition=True)

    def _choice(self, condition: _Node, chosen: _Node, other: _Node) -> _Node:
        self._count()
        return _Choice(self._condition(condition), self._number(chosen), self._number(other))

    def _number(self, node: _Node) -> _Node:
        if isinstance(node, _Junction) or (isinstance(node, _Apply) and node.is_condition):
            raise SpecError("there is a condition where a number is due: write if_else(a > b, 1, 0)")
        return node

    def _condition(self, node: _Node) -> _Node:
        if isinstance(node, _Junction) or (isinstance(node, _Apply) and node.is_condition):
            return node
        if not (isinstance(node, _Name) and node.name in self._flags):
            raise SpecError("there is a number where a condition is due: compare it, e.g. a > 0")
        return node
