"""Arithmetic expressions over named numbers, in a grammar that allows nothing else.

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

Precedence is that of Python. Every number is a 64-bit float; conditions are a separate type. Length, depth and size are
bounded, and so is the work of evaluation.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from assay.errors import SpecError
from assay.metrics.expression.expression_nodes import (
    COMPARISONS,
    PLAIN,
    Apply,
    Choice,
    Coalesce,
    EvaluationError,
    Junction,
    Name,
    Number,
    chain,
    power,
)
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from assay.metrics.expression.expression_nodes import Node, Read

_MAX_CHARS = 1000
_MAX_DEPTH = 50
_MAX_PARTS = 200
_MANY = _MAX_PARTS
_SPACE = " \t\r\n\f\v"
_TOKEN = re.compile(
    r"\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[<>=!]=|[-+*/<>(),]))", re.ASCII
)
WORDS = frozenset({"if", "else", "and", "or", "not"})
"""Reserved names."""

_SIGN = 8
_BINDING = {"if": 1, "or": 2, "and": 3, "<": 5, "<=": 5, ">": 5, ">=": 5, "==": 5, "!=": 5,
            "+": 6, "-": 6, "*": 7, "/": 7, "**": 9}  # fmt: skip
_NEGATION = 4

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
"""The functions, with their least and most operands."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Args:
        names: The names that it reads, in the order of the text.
        root: Its outermost operation.
    """

    names: tuple[str, ...]
    root: Node

    def evaluate(self, read: Read) -> float | None:
        """Return the finite value; None if an operand is missing.

        Raises:
            EvaluationError: There is no value, as after a division by zero or an overflow.
        """
        return self.root.evaluate(read)


def parse_expression(text: str, *, flags: Collection[str] = ()) -> Expression:
    """Return the expression that a text describes.

    Args:
        text: At most 1,000 characters, 200 parts and 50 levels of nesting.
        flags: Names of numbers that are 0 or 1 and may be used as conditions.

    Raises:
        SpecError: The text is no expression; the message says what is wrong and where.
    """
    if len(text) > _MAX_CHARS:
        raise SpecError(f"has {len(text)} characters, more than {_MAX_CHARS}")
    return _Parser(_tokens(text), flags).expression()


def _tokens(text: str) -> list[tuple[str, int]]:
    """Return the tokens of a text with their positions, and an empty token for its end."""
    tokens = []
    position, end = 0, len(text.rstrip(_SPACE))
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            place = len(text) - len(text[position:].lstrip(_SPACE))
            raise SpecError(
                f"{text[place]!r} at character {place + 1} is no part of a formula: it has numbers, names, "
                f"+ - * / **, comparisons, parentheses and the functions {', '.join(FUNCTIONS)}"
            )
        tokens.append((match[match.lastindex or 0], match.start(match.lastindex or 0) + 1))
        position = match.end()
    return [*tokens, ("", end + 1)]


class _Parser:
    """Parses tokens by the binding strength of operators, and tracks which parts are conditions."""

    def __init__(self, tokens: Sequence[tuple[str, int]], flags: Collection[str]) -> None:
        self._tokens = tokens
        self._flags = flags
        self._at = self._depth = self._parts = 0
        self._names: dict[str, None] = {}

    def expression(self) -> Expression:
        root = self._number(self._binding(0))
        if self._here:
            self._refuse("an operator")
        return Expression(tuple(self._names), root)

    @property
    def _here(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        word = self._here
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        if self._here != word:
            self._refuse(repr(word))
        self._at += 1

    def _refuse(self, expected: str) -> NoReturn:
        word, place = self._tokens[self._at]
        actual = f"{word[:40]!r} at character {place}" if word else "the end"
        raise SpecError(f"there should be {expected} instead of {actual}")

    def _count(self, parts: int = 1) -> None:
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise SpecError(f"has more than {_MAX_PARTS} parts: split it into several metrics")

    def _binding(self, floor: int) -> Node:
        """Parse while operators bind more strongly than `floor`."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SpecError(f"is nested more than {_MAX_DEPTH} levels deep: split it into several metrics")
        left = self._prefix()
        while (level := _BINDING.get(self._here, 0)) > floor:
            left = self._infix(left, level)
        self._depth -= 1
        return left

    def _prefix(self) -> Node:
        word = self._here
        if word == "not":
            self._at += 1
            return self._condition_of(operator.not_, (self._condition(self._binding(_NEGATION)),))
        if word in ("+", "-"):
            self._at += 1
            return self._apply(operator.neg if word == "-" else operator.pos, [self._binding(_SIGN)])
        if word == "(":
            self._at += 1
            inner = self._binding(0)
            self._expect(")")
            return inner
        return self._atom()

    def _atom(self) -> Node:
        word = self._here
        if word[:1].isdigit() or word[:1] == ".":
            self._count()
            value = float(word)
            if not math.isfinite(value):
                raise SpecError(f"the number {word[:40]} is too large")
            self._at += 1
            return Number(value)
        if not (word[:1].isalpha() or word[:1] == "_") or word in WORDS:
            self._refuse("a number, a name or '('")
        self._at += 1
        if self._here == "(":
            return self._call(word)
        if word in FUNCTIONS:
            raise SpecError(f"{word} is a function: write {word}(...)")
        self._count()
        self._names[word] = None
        return Name(word)

    def _call(self, name: str) -> Node:
        if name not in FUNCTIONS:
            raise SpecError(unknown_name("function", name, FUNCTIONS))
        self._at += 1
        operands = [] if self._here == ")" else [self._binding(0)]
        while self._here == ",":
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
            return Coalesce(tuple(self._number(operand) for operand in operands))
        return self._apply(PLAIN[name], operands)

    def _infix(self, left: Node, level: int) -> Node:
        sign = self._here
        if sign == "if":
            self._at += 1
            condition = self._binding(level)
            self._expect("else")
            return self._choice(condition, left, self._binding(0))
        if sign == "**":
            self._at += 1
            return self._apply(power, [left, self._binding(_SIGN)])
        signs, operands = [], [left]
        while self._here in _BINDING and _BINDING[self._here] == level:
            signs.append(self._take())
            operands.append(self._binding(level))
        if sign in ("and", "or"):
            self._count()
            return Junction(tuple(self._condition(operand) for operand in operands), sign == "or")
        if sign not in COMPARISONS:
            return self._apply(partial(chain, tuple(signs)), operands, parts=len(signs))
        if len(signs) > 1:
            raise SpecError("compare two numbers at a time: write a < b and b < c")
        return self._condition_of(COMPARISONS[sign], tuple(self._number(operand) for operand in operands))

    def _apply(self, function: Callable[..., float], operands: Sequence[Node], parts: int = 1) -> Node:
        self._count(parts)
        node = Apply(function, tuple(self._number(operand) for operand in operands))
        if not all(isinstance(operand, Number) for operand in operands):
            return node
        try:
            value = node.evaluate(lambda name: None)
        except EvaluationError as problem:
            raise SpecError(f"can never be computed: {problem.reason.replace('_', ' ')}") from None
        return Number(value or 0.0)

    def _condition_of(self, function: Callable[..., bool], operands: tuple[Node, ...]) -> Node:
        self._count()
        return Apply(function, operands, is_condition=True)

    def _choice(self, condition: Node, chosen: Node, other: Node) -> Node:
        self._count()
        return Choice(self._condition(condition), self._number(chosen), self._number(other))

    def _number(self, node: Node) -> Node:
        if isinstance(node, Junction) or (isinstance(node, Apply) and node.is_condition):
            raise SpecError("there is a condition where a number is due: write if_else(a > b, 1, 0)")
        return node

    def _condition(self, node: Node) -> Node:
        if isinstance(node, Junction) or (isinstance(node, Apply) and node.is_condition):
            return node
        if not (isinstance(node, Name) and node.name in self._flags):
            raise SpecError("there is a number where a condition is due: compare it, e.g. a > 0")
        return node
