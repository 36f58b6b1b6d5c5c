"""Tool calls: whether the agent called the tools that a good answer needs.

    tool_calls = expected calls that were made / expected calls

A call matches an expected one by name ("name"), by name and by the arguments expected, whatever others it has
("subset"), or by name and exactly these arguments ("exact"). Each call counts once. With order "any" the
order does not matter; with "in_order" the matching calls must follow on one another as expected, others
between them; with "exact" the calls must be the expected ones and nothing else. Arguments that are not a JSON
object match no expectation of arguments, and are named in the detail. A case without expected tools is skipped;
an agent error scores what was called before it, and fails. A row passes when all expected calls were made (and,
with "exact", no other). The aggregate is the mean; a threshold applies to it.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from assay.metrics.core.fold import MeanFold
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.score import scored
from assay.model.agent_response import AgentStatus
from assay.model.run import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.score import Row
    from assay.model.agent_response import ToolCall
    from assay.model.case import ExpectedTool

INFO = MetricInfo(
    "tool_calls",
    "Tool calls",
    "Whether the agent called the tools that a good answer needs.",
    (
        Parameter("order", "text", "any", "How the order counts.", choices=("any", "in_order", "exact")),
        Parameter("threshold", "number", None, "Least mean of the run.", 0.0, 1.0),
    ),
    reads=("tool_calls", "expected_tools"),
    values="0 to 1",
    unit="%",
)
_MAX_CALLS = 500
_WORK_PER_CALL = 300
_WORK_PER_PAIR = 100


class _Call:
    """One call with its arguments, read once."""

    def __init__(self, call: ToolCall) -> None:
        self.name = call.name
        self.arguments_json = call.arguments_json
        self.arguments = _arguments(call.arguments_json)


def matches(call: ToolCall, expected: ExpectedTool) -> bool:
    """Return whether a call is the expected one."""
    return _matches(_Call(call), expected)


def _matches(call: _Call, expected: ExpectedTool) -> bool:
    if call.name != expected.name:
        return False
    if expected.match == "name" or expected.arguments is None:
        return True
    found = call.arguments
    if found is None:
        return False
    if expected.match == "exact":
        return json_equal(found, expected.arguments)
    return all(name in found and json_equal(found[name], value) for name, value in expected.arguments.items())


class ToolCalls:
    """Parameters: `order`, `threshold` (on the mean)."""

    info = INFO
    version = "1"
    embedding_model: str | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._order: str = parameters["order"]
        self._threshold: float | None = parameters["threshold"]

    def work(self, row: Row) -> int:
        """Return how much work matching the calls is at most."""
        expected, calls = row.case.turns[-1].expected_tools, row.response.tool_calls[:_MAX_CALLS]
        chars = sum([len(call.arguments_json) for call in calls])
        pairs = len(expected) * len(calls)
        return _WORK_PER_CALL * (len(expected) + len(calls)) + (_WORK_PER_PAIR + len(expected)) * pairs + 5 * chars

    def score(self, row: Row) -> Score:
        """Return the share of expected calls that were made."""
        expected = row.case.turns[-1].expected_tools
        if not expected:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_expected_tools")
        calls = [_Call(call) for call in row.response.tool_calls[:_MAX_CALLS]]
        failed = row.response.status is AgentStatus.ERROR
        made = _matched(calls, expected) if self._order == "any" else _matched_in_order(calls, expected)
        missing = [tool.name for index, tool in enumerate(expected) if index not in made]
        called = len(row.response.tool_calls)
        detail: dict[str, Any] = {"version": self.version, "expected": len(expected), "called": called}
        invalid = [call.name for call in calls if call.arguments is None]
        if invalid:
            detail["invalid_arguments"] = invalid[:20]
        if missing:
            detail["missing"] = missing[:20]
        value = len(made) / len(expected)
        reason = "call_missing" if missing else ""
        if self._order == "exact" and called != len(expected):
            reason = reason or "further_calls"
        if failed:
            reason = "agent_error"
        return scored(self.name, value, passed=not reason, reason=reason, detail=detail)

    def aggregate(self) -> MeanFold:
        """Return an empty fold."""
        return MeanFold(self.name, self._threshold)


def _matched(calls: Sequence[_Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return the expected calls of a largest matching: no call stands for two, whatever their order.

    Equal calls are one kind with a count, and so are equal expected ones, so that a thousand of the same cost no
    more than one. Which expected calls are matched does not depend on the paths taken: each is matched exactly
    where those before it still can be.
    """
    known = _Matches(calls, expected)
    room = Counter(known.call_kinds)
    holders: dict[int, Counter[int]] = {kind: Counter() for kind in room}
    hopeless: set[int] = set()
    made = set()
    for index, kind in enumerate(known.expected_kinds):
        if kind in hopeless:
            continue
        if _place(kind, known, room, holders):
            made.add(index)
        else:
            hopeless.add(kind)
    return made


def _place(kind: int, known: _Matches, room: Counter[int], holders: dict[int, Counter[int]]) -> bool:
    """Give an expected call one of the calls, moving others to further ones where that makes room for it."""
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


def _matched_in_order(calls: Sequence[_Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return the expected calls of a longest common subsequence with the calls that were made."""
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
    made, i, j = set(), 0, 0
    while i < len(expected) and j < len(calls):
        if known.call_kinds[j] in equal[known.expected_kinds[i]] and rows[i][j] == 1 + rows[i + 1][j + 1]:
            made.add(i)
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return made


class _Matches:
    """Which calls match which expected ones, both by kind: each pair of kinds is compared once, and only when asked.

    Args:
        calls: The calls made.
        expected: The calls expected.
    """

    def __init__(self, calls: Sequence[_Call], expected: Sequence[ExpectedTool]) -> None:
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
        """How many kinds of expected calls there are."""
        return len(self._expected)

    def calls_of(self, kind: int) -> list[int]:
        """Return the kinds of calls that match a kind of expected call."""
        found = self._found.get(kind)
        if found is None:
            tool = self._expected[kind]
            candidates = self._by_name.get(tool.name, ())
            found = self._found[kind] = [number for number in candidates if _matches(self._calls[number], tool)]
        return found


def _kind(tool: ExpectedTool) -> tuple[str, str, str]:
    by_name = tool.match == "name" or tool.arguments is None
    return tool.name, "name" if by_name else tool.match, "" if by_name else json.dumps(tool.arguments, default=repr)


def _arguments(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def json_equal(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    if isinstance(first, bool) is not isinstance(second, bool):
        return False
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(json_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(json_equal, first, second))
    return bool(first == second)
