r"""The grammar of filters, for rows and for runs.

    filter    = [ condition { [ "and" ] condition } ]
    condition = words | name operator value { "," value }
    words     = name { "," name }
    name      = part { "." part }
    part      = an ASCII letter, then ASCII letters, digits and "_"
    operator  = ":" | "~" | "<" | "<=" | ">" | ">=" | "==" | "!="
    value     = '"' { any character but '"' and "\", or "\" and any character } '"'
              | one or more characters other than blanks, "," and '"'

Blanks (space, tab, carriage return, line feed) separate conditions and are allowed around operators and commas.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from assay.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F")
O = TypeVar("O")  # noqa: E741 - an order

MAX_CHARS = 20_000
"""The most characters of a filter."""
OPERATORS = ("<=", ">=", "==", "!=", "<", ">", ":", "~")
AND = "and"

_BLANK = re.compile(r"[ \t\r\n]")
_BLANKS = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_DURATION = re.compile(rf"({_NUMBER.pattern})(ms|s|m|h)?")
_UNITS_MS = {"ms": 1.0, "s": 1000.0, None: 1000.0, "m": 60_000.0, "h": 3_600_000.0}
_OPERATOR = re.compile("|".join([*OPERATORS, "="]))
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(r'[^ \t\r\n,"]+')
_PLAIN = re.compile(r"[\w./@+-]+")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as written.

    Args:
        position: The position of its first character, from 1.
        name: The text before the operator; empty without an operator.
        operator: One of OPERATORS, or empty for a list of words.
        values: The values after the operator, or the words.
    """

    position: int
    name: str
    operator: str
    values: tuple[str, ...]


class ConditionProblems:
    """Collects the problems of a text.

    Args:
        where: The user's name for the text, e.g. "--where"; may be empty.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._found: list[tuple[int, Problem]] = []

    def add(self, position: int, message: str) -> None:
        """Add a problem at a position, from 1."""
        self._found.append((position, Problem(f"character {position}: {message}", self._where)))

    def raise_any(self) -> None:
        """Raise all problems in the order of their positions, if there are any."""
        if self._found:
            raise InvalidInputError([problem for _, problem in sorted(self._found, key=lambda entry: entry[0])])


def read_conditions(text: str, problems: ConditionProblems) -> list[Condition]:
    """Return the conditions of a text; anything else in it becomes a problem."""
    if len(text) > MAX_CHARS:
        problems.add(1, f"the filter has {len(text)} characters, more than {MAX_CHARS}")
        return []
    return _Reader(text, problems).conditions()


def parse_both(parse_filter: Callable[[], F], parse_order: Callable[[], O]) -> tuple[F, O]:
    """Return a filter and an order.

    Raises:
        InvalidInputError: One of their texts, or both, is wrong; holds every problem.
    """
    try:
        wanted = parse_filter()
    except InvalidInputError as refusal:
        problems = list(refusal.problems)
        try:
            parse_order()
        except InvalidInputError as other:
            problems += other.problems
        raise InvalidInputError(problems) from None
    return wanted, parse_order()


def quoted(value: str) -> str:
    """Return a value as users write it, in quotes where it needs them."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(values: Sequence[str]) -> str:
    """Return several values as users write them."""
    return ",".join(map(quoted, values))


def is_name(text: str) -> bool:
    """Return whether a text is the name of a condition, a metric or a figure."""
    return _NAME.fullmatch(text) is not None


def read_number(text: str) -> float | None:
    """Return a finite number; None if the text is none."""
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


def read_duration_ms(text: str) -> float | None:
    """Return a duration in milliseconds, with a unit or in seconds; None if the text is none."""
    match = _DURATION.fullmatch(text)
    duration_ms = float(match[1]) * _UNITS_MS[match[2]] if match is not None else math.nan
    return duration_ms if math.isfinite(duration_ms) and duration_ms >= 0 else None


def duration_problem(text: str) -> str:
    """Return the sentence for a text that is no duration."""
    return f"{text[:60]!r} is no duration: write a number with ms, s, m or h, such as 500ms"


def number_problem(text: str) -> str:
    """Return the sentence for a text that is no number."""
    return f"{text[:60]!r} is no finite number, and only == and != compare with none"


class _Reader:
    """Reads conditions from left to right; after a problem it continues at the next blank."""

    def __init__(self, text: str, problems: ConditionProblems) -> None:
        self._text = text
        self._problems = problems
        self._at = 0

    def conditions(self) -> list[Condition]:
        conditions: list[Condition] = []
        is_due = True  # a condition, which an "and" may follow
        last_and = 0
        while self._skip_blanks() < len(self._text):
            start = self._at
            name = self._take(_NAME)
            if name == AND:
                if is_due:
                    self._problems.add(start + 1, "a condition is missing before 'and'")
                is_due, last_and = True, start + 1
                continue
            condition = self._condition(start, name)
            if condition is not None:
                conditions.append(condition)
            is_due, last_and = False, 0
            self._end_condition(is_whole=condition is not None)
        if last_and:
            self._problems.add(last_and, "a condition is missing after 'and'")
        return conditions

    def _condition(self, start: int, name: str | None) -> Condition | None:
        if name is None:
            shown = self._text[start : start + 20]
            self._problems.add(start + 1, f"expected a condition such as failed or category:NAME, not {shown!r}")
            return None
        after_name = self._at
        self._skip_blanks()
        operator = self._take(_OPERATOR)
        if operator is None:
            self._at = after_name
            words = self._list(self._word)
            return Condition(start + 1, "", "", (name, *words)) if words is not None else None
        if operator == "=":
            self._problems.add(self._at, f"write {name}==NUMBER or {name}:NAME, not {name}=")
            return None
        first = self._value()
        others = self._list(self._value) if first is not None else None
        return (
            Condition(start + 1, name, operator, (first, *others)) if first is not None and others is not None else None
        )

    def _list(self, read: Callable[[], str | None]) -> list[str] | None:
        """Return the values of a list separated by commas; None after a problem."""
        values = []
        while self._take_comma():
            value = read()
            if value is None:
                return None
            values.append(value)
        return values

    def _word(self) -> str | None:
        self._skip_blanks()
        word = self._take(_NAME)
        if word is None:
            self._problems.add(self._at + 1, "a word is missing after ','")
        return word

    def _value(self) -> str | None:
        before = self._text[self._at - 1]
        self._skip_blanks()
        if self._text.startswith('"', self._at):
            value = self._take(_QUOTED)
            if value is None:
                self._problems.add(self._at + 1, "the quotation mark is not closed")
                self._at = len(self._text)
                return None
            return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        bare = self._take(_BARE)
        if bare is None:
            self._problems.add(self._at + 1, f"a value is missing after {before!r}")
        return bare

    def _take_comma(self) -> bool:
        before = self._at
        if self._text.startswith(",", self._skip_blanks()):
            self._at += 1
            return True
        self._at = before
        return False

    def _end_condition(self, *, is_whole: bool) -> None:
        """Skip to the next blank; any other character right after a condition is a problem."""
        end = self._at
        blank = _BLANK.search(self._text, end)
        self._at = blank.start() if blank is not None else len(self._text)
        if is_whole and self._at > end:
            self._problems.add(end + 1, f"expected a space, not {self._text[end : end + 20]!r}")

    def _skip_blanks(self) -> int:
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks is not None else self._at
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]
