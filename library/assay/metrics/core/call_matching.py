"""Matching of tool calls with expected calls: the largest matching in any order, and the longest in order."""

from __future__ import annotations

import json
from collections import Counter, deque
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.text.equality import composed, composed_json, json_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.model.answers.agent_response import ToolCall
    from assay.model.case import ExpectedTool

TRAJECTORIES = ("any_order", "in_order", "exact", "unordered", "subset")
"""How the calls of an answer may match the expected calls."""
IN_ORDER = ("in_order", "exact")
"""Trajectories that expect an order."""
CLOSED = ("exact", "unordered", "subset")
"""Trajectories that allow no further calls."""
INCOMPLETE = ("subset",)
"""Trajectories in which expected calls may be missing."""
MAX_CALLS = 500
"""The most calls of an answer that are matched with expected calls."""
_WORK_PER_CALL = 300
_WORK_PER_PAIR = 100
_WORK_PER_CHARACTER = 5
_WORK_PER_SORTED_CHARACTER = 60
_MAX_DEPTH = 100


class Call:
    """A tool call whose arguments are parsed on first use."""

    def __init__(self, call: ToolCall) -> None:
        self.name = composed(call.name)
        self.arguments_json = call.arguments_json

    @cached_property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments; None if they are no JSON object."""
        return _arguments(self.arguments_json)

    @cached_property
    def sorted_arguments(self) -> str:
        """The arguments as a text that does not depend on the order of lists."""
        return _sorted_text(self.arguments)


def argument_test(expected: ExpectedTool) -> Callable[[Call], bool]:
    """Return a test whether a call of the expected tool has the expected arguments, by the rule of its `match`."""
    due = composed_json(expected.arguments)
    if expected.match == "name" or due is None:
        return lambda call: True
    if expected.match == "exact":
        return lambda call: call.arguments is not None and json_equal(call.arguments, due)
    if expected.match == "unordered":
        text = _sorted_text(due)
        return lambda call: call.arguments is not None and call.sorted_arguments == text

    def has_them(call: Call) -> bool:
        arguments = call.arguments
        return arguments is not None and all(
            name in arguments and json_equal(arguments[name], item) for name, item in due.items()
        )

    return has_them


def matching_work(calls: Sequence[ToolCall], expected: Sequence[ExpectedTool]) -> int:
    """Return an upper bound of the work of matching calls; see `row_work`."""
    chars = sum([len(call.arguments_json) for call in calls])
    pairs = len(expected) * min(len(calls), MAX_CALLS)
    is_sorted = any(tool.match == "unordered" for tool in expected)
    per_character = _WORK_PER_SORTED_CHARACTER if is_sorted else _WORK_PER_CHARACTER
    return (
        _WORK_PER_CALL * (len(expected) + len(calls)) + (_WORK_PER_PAIR + len(expected)) * pairs + per_character * chars
    )


def matched(calls: Sequence[Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return the expected calls of a largest matching in any order; each call matches at most one of them.

    Equal calls form one kind with a count, and so do equal expected calls: a thousand equal calls cost no more than
    one. The result does not depend on the paths taken: an expected call is matched exactly if the matches of those
    before it can be kept.
    """
    known = _Matches(calls, expected)
    room = Counter(known.call_kinds)
    holders: dict[int, Counter[int]] = {kind: Counter() for kind in room}
    hopeless: set[int] = set()
    indexes = set()
    for index, kind in enumerate(known.expected_kinds):
        if kind in hopeless:
            continue
        if _place(kind, known, room, holders):
            indexes.add(index)
        else:
            hopeless.add(kind)
    return indexes


def _place(kind: int, known: _Matches, room: Counter[int], holders: dict[int, Counter[int]]) -> bool:
    """Match an expected call with a call, moving earlier matches to other calls if necessary."""
    came: dict[int, int] = {}  # from which kind of expected call each kind of call was reached
    taken: dict[int, int] = {}  # which kind of call each kind of expected call would leave
    pending = deque([kind])
    while pending:
        mover = pending.popleft()
        for target in known.calls_of(mover):
            if target in came:
                continue
            came[target] = mover
            if room[target]:
                room[target] -= 1
                while True:
                    mover = came[target]
                    holders[target][mover] += 1
                    if mover == kind:
                        return True
                    target = taken[mover]
                    holders[target][mover] -= 1
            for other, count in holders[target].items():
                if count and other not in taken and other != kind:
                    taken[other] = target
                    pending.append(other)
    return False


def matched_in_order(calls: Sequence[Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return the expected calls of a longest common subsequence with the actual calls."""
    known = _Matches(calls, expected)
    equal = [set(known.calls_of(kind)) for kind in range(known.expected_count)]
    rows = [[0] * (len(calls) + 1)]
    for kind in reversed(known.expected_kinds):
        below, fits, best = rows[-1], equal[kind], 0
        row = [0] * (len(calls) + 1)
        for j in range(len(calls) - 1, -1, -1):
            best = max(below[j], best)
            if known.call_kinds[j] in fits and below[j + 1] >= best:
                best = below[j + 1] + 1
            row[j] = best
        rows.append(row)
    rows.reverse()
    indexes, i, j = set(), 0, 0
    while i < len(expected) and j < len(calls):
        if known.call_kinds[j] in equal[known.expected_kinds[i]] and rows[i][j] == 1 + rows[i + 1][j + 1]:
            indexes.add(i)
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return indexes


class _Matches:
    """The matches between kinds of calls and of expected calls; each pair is compared once, on first use.

    Args:
        calls: The actual calls.
        expected: The expected calls.
    """

    def __init__(self, calls: Sequence[Call], expected: Sequence[ExpectedTool]) -> None:
        numbers: dict[tuple[str, str], int] = {}
        self.call_kinds = [numbers.setdefault((call.name, call.arguments_json), len(numbers)) for call in calls]
        self._calls = dict(zip(self.call_kinds, calls, strict=True))
        self._by_name: dict[str, list[int]] = {}
        for number, call in self._calls.items():
            self._by_name.setdefault(call.name, []).append(number)
        kinds: dict[tuple[str, str, str], int] = {}
        self.expected_kinds = [kinds.setdefault(_kind(tool), len(kinds)) for tool in expected]
        self._expected = dict(zip(self.expected_kinds, expected, strict=True))
        self._found: dict[int, list[int]] = {}

    @property
    def expected_count(self) -> int:
        """The number of kinds of expected calls."""
        return len(self._expected)

    def calls_of(self, kind: int) -> list[int]:
        """Return the kinds of calls that match a kind of expected call."""
        positions = self._found.get(kind)
        if positions is None:
            tool = self._expected[kind]
            is_same = argument_test(tool)
            candidates = self._by_name.get(composed(tool.name), ())
            positions = self._found[kind] = [number for number in candidates if is_same(self._calls[number])]
        return positions


def _kind(tool: ExpectedTool) -> tuple[str, str, str]:
    by_name = tool.match == "name" or tool.arguments is None
    return tool.name, "name" if by_name else tool.match, "" if by_name else json.dumps(tool.arguments, default=repr)


def _arguments(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return {}
    try:
        value = composed_json(json.loads(text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sorted_text(value: Any, depth: int = 0) -> str:
    """Return a JSON value as a text that is equal for equal values, whatever the order of their lists."""
    if depth > _MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        members = sorted([f"{json.dumps(key)}:{_sorted_text(item, depth + 1)}" for key, item in value.items()])
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(sorted([_sorted_text(item, depth + 1) for item in value]))}]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is the number 1
    return json.dumps(value)
