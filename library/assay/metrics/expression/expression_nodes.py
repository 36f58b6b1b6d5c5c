"""The nodes of arithmetic expressions, evaluated on 64-bit floats.

A missing operand makes the result missing. A choice reads only the branch that is taken, `and` and `or` stop at the
operand that decides, and `coalesce` returns its first operand that is not missing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.statistics.exact_sum import exact_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

Read = Callable[[str], float | None]
"""Returns the number of a name, None if it is missing; may raise EvaluationError."""


class EvaluationError(ArithmeticError):
    """An expression without a value although no operand is missing; `reason` is a stable word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Node(Protocol):
    """A node of an expression."""

    def evaluate(self, read: Read) -> float | None:
        """Return the finite value; None if an operand is missing. May raise EvaluationError."""


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number."""

    value: float

    def evaluate(self, read: Read) -> float | None:
        return self.value


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a number."""

    name: str

    def evaluate(self, read: Read) -> float | None:
        return read(self.name)


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of numbers, none of which may be missing; a condition is a function that returns true or false."""

    function: Callable[..., float]
    operands: tuple[Node, ...]
    is_condition: bool = False

    def evaluate(self, read: Read) -> float | None:
        operands = [operand.evaluate(read) for operand in self.operands]
        values = [value for value in operands if value is not None]
        if len(values) < len(operands):
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
class Junction:
    """Conditions joined by `or`, which stops at a true operand, or by `and`, which stops at a false operand."""

    operands: tuple[Node, ...]
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
class Choice:
    """One of two numbers."""

    condition: Node
    chosen: Node
    other: Node

    def evaluate(self, read: Read) -> float | None:
        holds = self.condition.evaluate(read)
        if holds is None:
            return None
        return (self.chosen if holds else self.other).evaluate(read)


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first number that is not missing."""

    operands: tuple[Node, ...]

    def evaluate(self, read: Read) -> float | None:
        return next((value for operand in self.operands if (value := operand.evaluate(read)) is not None), None)


def power(base: float, exponent: float) -> float:
    """Return base ** exponent as a float."""
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    return math.pow(base, exponent)


def _clamp(value: float, low: float, high: float) -> float:
    if low > high:
        raise ValueError
    return max(low, min(high, value))


def chain(operators: Sequence[str], first: float, *others: float) -> float:
    """Return a chain of operands joined by + and -, or by * and /, evaluated from the left."""
    value = first
    for sign, other in zip(operators, others, strict=True):
        value = _ARITHMETIC[sign](value, other)
    return value


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
PLAIN: dict[str, Callable[..., float]] = {
    "min": min, "max": max, "abs": abs, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "mean": lambda *values: exact_mean(values), "clamp": _clamp,
}  # fmt: skip
"""Functions that read all of their operands."""
