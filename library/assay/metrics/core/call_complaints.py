"""Sentences about wrong tool calls, e.g. "called search twice, expected once; missing tool book"."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics.core.call_matching import CLOSED, INCOMPLETE, MAX_CALLS
from assay.metrics.core.explanations import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from assay.metrics.core.call_matching import Call
    from assay.model.case import ExpectedTool

_MOST_SAID = 5
_MOST_NAME_CHARS = 60


def surplus(called: Sequence[str], matched: Iterable[str]) -> list[str]:
    """Return the names of unexpected calls in their order; of equal names, the latest calls are the unexpected ones.

    Args:
        called: The name of every call.
        matched: The names of the expected calls that were made.
    """
    left = Counter(called) - Counter(matched)
    further = []
    for name in reversed(called):
        if left[name] > 0:
            left[name] -= 1
            further.append(name)
    return further[::-1]


def complaint(
    *,
    expected: Sequence[ExpectedTool],
    called: Sequence[Call],
    made: Collection[int],
    anywhere: Collection[int],
    forbidden: Sequence[str],
    trajectory: str,
) -> str:
    """Return the complaint about the calls of a row, at most five parts of it.

    Args:
        expected: The expected calls.
        called: All calls.
        made: The positions of the expected calls that were made.
        anywhere: The positions of those that were made in any order.
        forbidden: The names of forbidden calls.
        trajectory: How calls match expected calls, one of `TRAJECTORIES`.
    """
    calls, due = Counter(call.name for call in called), Counter(tool.name for tool in expected)
    invalid = {call.name for call in called[:MAX_CALLS] if call.arguments is None}
    done = Counter(expected[index].name for index in made)
    unordered = Counter(expected[index].name for index in anywhere)
    parts = [f"called {_short(name)}, which is forbidden" for name in forbidden]
    for name in dict.fromkeys((*due, *calls)):
        missing, further = due[name] - done[name], calls[name] - done[name]
        if name in forbidden:
            continue
        if missing and trajectory not in INCOMPLETE:
            is_order = unordered[name] > done[name]
            parts.append(_missing(_short(name), due[name], calls[name], is_order=is_order, is_invalid=name in invalid))
        elif further and trajectory in CLOSED:
            parts.append(_further(_short(name), due[name], calls[name], is_invalid=name in invalid))
    summary = "; ".join(parts[:_MOST_SAID])
    return f"{summary}; and {len(parts) - _MOST_SAID} more" if len(parts) > _MOST_SAID else summary


def expected_and_called(expected: Sequence[ExpectedTool], calls: Sequence[Call]) -> str:
    """Return the expected and the actual calls, with arguments if they are compared."""
    with_arguments = any(_compares_arguments(tool) for tool in expected)
    due = [_call(tool.name, tool.arguments if _compares_arguments(tool) else None) for tool in expected]
    calls_shown = [_call(call.name, call.arguments if with_arguments else None) for call in calls[: _MOST_SAID + 1]]
    calls_shown += ["" for _ in calls[_MOST_SAID + 1 :]]  # only counted
    called = f"called {listed(calls_shown)}" if calls else "called no tool"
    return f"expected {listed(due)}; {called}" if due else called


def _compares_arguments(tool: ExpectedTool) -> bool:
    return tool.arguments is not None and tool.match != "name"


def _call(name: str, arguments: Mapping[str, Any] | None) -> str:
    shown = "" if arguments is None else f"({json.dumps(arguments, ensure_ascii=False)[:_MOST_NAME_CHARS]})"
    return f"{_short(name)}{shown}"


def _missing(name: str, due: int, called: int, *, is_order: bool, is_invalid: bool) -> str:
    if not called:
        return f"missing tool {name}" + (f", expected {_times(due)}" if due > 1 else "")
    if is_order:
        return f"called {name} out of order"
    if called < due:
        return f"called {name} {_times(called)}, expected {_times(due)}"
    return _with_other_arguments(name, is_invalid=is_invalid)


def _with_other_arguments(name: str, *, is_invalid: bool) -> str:
    return f"called {name} with {'arguments that are no JSON object' if is_invalid else 'other arguments'}"


def _further(name: str, due: int, called: int, *, is_invalid: bool) -> str:
    if not due:
        return f"called {name}, which is not expected"
    if called <= due:
        return _with_other_arguments(name, is_invalid=is_invalid)
    return f"called {name} {_times(called)}, expected {_times(due)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _short(name: str) -> str:
    return name if len(name) <= _MOST_NAME_CHARS else f"{name[:_MOST_NAME_CHARS]}…"
