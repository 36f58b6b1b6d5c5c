"""Tests wait with tests.support.processes.waiting, which ends; and it ends with what it saw."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support.processes.waiting import until, wait_until

TESTS = Path(__file__).resolve().parents[1]


def is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing but let time pass."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    call = call.value if isinstance(call, ast.Await) else call
    return isinstance(statement, ast.Pass) or (isinstance(call, ast.Call) and ast.unparse(call.func).endswith("sleep"))


def test_no_test_polls_without_an_end() -> None:
    """A loop that only sleeps until a condition holds hangs once the condition has passed: use `waiting`."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "while " in text else "")):
            # What is awaited in a condition, such as the next message, ends by itself.
            takes = isinstance(node, ast.While) and any(
                isinstance(each, ast.Call) and ast.unparse(each.func) in {"anext", "self._answer"}
                for each in ast.walk(node.test)
            )
            if isinstance(node, ast.While) and not takes and all(map(is_idle, node.body)):
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    assert found == []


async def test_waiting_ends_with_what_was_seen() -> None:
    """At once where it is enough, and where it is not, the failure shows it."""
    counts = iter(range(10))
    assert await until(lambda: next(counts), lambda count: count >= 3) == 3
    assert wait_until(lambda: next(counts), lambda count: count >= 5) == 5
    with pytest.raises(pytest.fail.Exception, match="seen last: 'paused'"):
        await until(lambda: "paused", lambda state: state == "succeeded", within_s=0.0)
    with pytest.raises(pytest.fail.Exception, match="seen last: 7"):
        wait_until(lambda: 7, lambda count: count > 7, within_s=0.0)
    with pytest.raises(pytest.fail.Exception, match="the process ended; seen last: 0"):
        wait_until(lambda: 0, ended=lambda: "the process ended")
