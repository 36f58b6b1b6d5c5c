"""One mutant's trial: its change in a copy of the sources, the tests that run its lines, what became of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutants.areas import FIRST_TESTS
from tools.mutants.covering import SELECTED

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from tools.mutants.covering import Covering
    from tools.mutants.operators import Mutant

SOURCES = ("library", "cli", "services/embedder", "services/judge", "services/orchestrator")
# Seconds of tests, as measured under coverage: of one start of pytest, and of a mutant.
PART_S, ALL_S = 25.0, 120.0
MOST_TESTS = 2_000
# What starting pytest, its imports and its fixtures may take, and how much slower than measured tests may be.
START_S, FACTOR = 60.0, 6.0
# What one test may take besides.
TEST_S = 30.0
# Exit status of pytest.
_PASSED, _FAILED, _NOT_FOUND = 0, 1, 4
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
# What pytest-timeout writes before it ends the process: what a test leaves behind may hang as well.
_TIMED_OUT = "+++ Timeout +++"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Args:
        outcome: killed, timeout, survived, uncovered, or unclear: pytest ends without the change as it does with it.
        test: The test that killed it, or how pytest ended; empty for the others.
        test_count: How many tests it was given.
        took_s: Seconds.
    """

    outcome: str
    test: str
    test_count: int
    took_s: float


class Copy:
    """A copy of the sources for one worker, in which one module at a time is changed.

    Args:
        root: The sources.
        folder: Where the copy is made.
        database_url: A PostgreSQL server for the tests.
    """

    def __init__(self, root: Path, folder: Path, database_url: str) -> None:
        self.folder = folder
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        self._current = folder / ".mutant-current"
        self._date = time.time()
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(folder / each) for each in SOURCES),
            "ASSAY_TEST_DATABASE_URL": database_url,
        }

    def write(self, path: str, text: bytes) -> None:
        """Write a module with a date of its own: byte code of the same second and size would be taken for its."""
        self._date += 10.0
        (self.folder / path).write_bytes(text)
        os.utime(self.folder / path, (self._date, self._date))

    def run(self, tests: Sequence[str], durations: Mapping[str, float]) -> tuple[str, str]:
        """Run tests up to the first that fails; return the outcome and that test.

        Args:
            tests: Their ids.
            durations: Seconds that each takes.
        """
        limit_s = START_S + FACTOR * sum(durations[each] for each in tests)
        limits = {each: TEST_S + FACTOR * durations[each] for each in tests}
        code, output = self._pytest(tests, limit_s, limits)
        if code == _NOT_FOUND:
            # The change may only have renamed the parameters of a test: then the test runs with all of them.
            names = list(dict.fromkeys(test.partition("[")[0] for test in tests))
            code, output = self._pytest(names, limit_s, limits)
        if code == _PASSED:
            return "survived", ""
        if code is None or _TIMED_OUT in output:
            return "timeout", self._current.read_text(encoding="utf-8")
        failed = _FAILED_TEST.search(output)
        if code == _FAILED and failed:
            return "killed", failed[1]
        return "killed", f"pytest ended with {code}: {failed[1] if failed else output[-300:].strip()}"

    def _pytest(self, tests: Sequence[str], limit_s: float, limits: Mapping[str, float]) -> tuple[int | None, str]:
        """Return pytest's exit status, None where its time was over, and its output."""
        listed = self.folder / ".mutant-tests"
        listed.write_text("\n".join(tests), encoding="utf-8")
        limited = self.folder / ".mutant-limits.json"
        limited.write_text(json.dumps(limits), encoding="utf-8")
        options = ["-x", "-q", "--tb=no", "-rfE", "-m", SELECTED, "-p", "no:randomly", "-p", "no:cacheprovider"]
        options += ["-p", "tools.mutants.order_plugin", "--limits", str(limited), "--current", str(self._current)]
        options += ["-p", "no:xdist", "-o", "timeout_method=thread"]
        self._current.write_text("", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"@{listed}"],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end(process)
        return process.returncode, output


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tests_for(
    mutant: Mutant, covering: Covering, function_lines: tuple[int, int] | None, named: Container[str]
) -> list[str]:
    """Return the tests that run a mutant's lines, those first that are quick and mostly about its module.

    Args:
        mutant: The mutant.
        covering: The map from lines to tests.
        function_lines: First and last line of its function; None at the top of the module, which is run by all who
            import it, before any test: then all tests of files that name the module come first, else unit tests.
        named: Those test files.
    """
    focus = covering.focus_of(mutant.path)
    if function_lines is None:
        found = set(focus) | {test for test in covering.durations if test.partition("::")[0] in named}
    else:
        found = covering.tests_of(mutant.path, mutant.line, mutant.end_line)
        # The first line of a statement stands for all of it.
        found = found or covering.tests_of(mutant.path, *function_lines)
    first = FIRST_TESTS.get(mutant.path)

    def rank(test: str) -> tuple[bool, bool, float, str]:
        file = test.partition("::")[0]
        is_named = file in named and (function_lines is None or file.startswith("tests/unit"))
        return file != first, not is_named, -focus.get(test, 1) / (covering.durations[test] + 0.2), test

    ranked = sorted(found, key=rank)
    chosen: list[str] = []
    left_s = ALL_S
    # First, for each line of the function, the best test of those that run it: few may run what a condition guards.
    for test in dict.fromkeys([*_one_for_each_line(mutant.path, ranked, covering, function_lines), *ranked]):
        left_s -= covering.durations[test]
        if len(chosen) == MOST_TESTS or (chosen and left_s < 0):
            break
        chosen.append(test)
    return chosen


def _one_for_each_line(
    path: str, ranked: Sequence[str], covering: Covering, function_lines: tuple[int, int] | None
) -> list[str]:
    """Return, of the tests in their order, the first one for each line of a function."""
    place = {test: number for number, test in enumerate(ranked)}
    found: set[str] = set()
    for line in range(function_lines[0], function_lines[1] + 1) if function_lines else ():
        if tests := place.keys() & covering.tests_of(path, line, line):
            found.add(min(tests, key=place.__getitem__))
    return sorted(found, key=place.__getitem__)


def try_mutant(mutant: Mutant, copy: Copy, tests: Sequence[str], covering: Covering) -> Verdict:
    """Return what becomes of a mutant."""
    began = time.monotonic()
    outcome, test, given = "uncovered", "", 0
    source = (copy.folder / mutant.path).read_bytes()
    left = list(tests)
    while left:
        part = _next_part(left, covering)
        try:
            copy.write(mutant.path, mutant.applied_to(source))
            outcome, test = copy.run(part, covering.durations)
        finally:
            copy.write(mutant.path, source)
        if outcome == "survived":
            given += len(part)
            left = left[len(part) :]
        elif _is_due_to_change(part, outcome, test, copy, covering):
            given += len(part)
            break
        elif test in left:
            left.remove(test)
            outcome, test = "survived", ""
        else:
            outcome = "unclear"
            break
    return Verdict(outcome, test, given, round(time.monotonic() - began, 1))


def _is_due_to_change(part: Sequence[str], outcome: str, test: str, copy: Copy, covering: Covering) -> bool:
    """Return whether the tests pass without the change, if they may have failed, crashed or hung for another reason."""
    if outcome == "killed" and test in covering.durations and test.startswith("tests/unit"):
        return True
    again, _ = copy.run([test] if test in covering.durations else part, covering.durations)
    return again == "survived"


def _next_part(tests: Sequence[str], covering: Covering) -> list[str]:
    """Return as many tests as pytest is given at once."""
    found: list[str] = []
    left_s = PART_S
    for test in tests:
        left_s -= covering.durations[test]
        if found and left_s < 0:
            break
        found.append(test)
    return found
