"""Which tests run which lines: measured once with coverage's contexts, kept, and updated where files changed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDERS = ("tests/unit", "tests/integration")
"""Tests that are measured. Those of the command line run the same code, slowly, in processes they start."""

SELECTED = "not aimock"
"""Which of their tests: those over PostgreSQL, too, which pytest leaves out by default."""

STARTED = Path(__file__).with_name("started")
"""On the path of Python, records the processes that tests start."""

# pytest's exit status where all passed, some failed, or a marker deselects all.
_MEASURED = (0, 1, 5)


@dataclass
class Covering:
    """A map from lines to tests.

    Args:
        durations: Seconds of each test, by its id, under coverage.
        digests: SHA-256 of each test file when it was measured.
        lines: For each module, for each of its lines, the tests that run it.
        texts: The lines of each module's text when it was measured.
    """

    durations: dict[str, float] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)

    def tests_of(self, path: str, first: int, last: int) -> set[str]:
        """Return the tests that run any of a module's lines."""
        lines = self.lines.get(path, {})
        return {test for line in range(first, last + 1) for test in lines.get(line, ())}

    def focus_of(self, path: str) -> dict[str, int]:
        """Return how many lines of a module each test runs."""
        counts: dict[str, int] = {}
        for tests in self.lines.get(path, {}).values():
            for test in tests:
                counts[test] = counts.get(test, 0) + 1
        return counts

    def forget(self, files: set[str]) -> None:
        """Remove what is known of the tests of some files."""
        gone = {test for test in self.durations if test.partition("::")[0] in files}
        self.durations = {test: took for test, took in self.durations.items() if test not in gone}
        self.digests = {path: digest for path, digest in self.digests.items() if path not in files}
        for lines in self.lines.values():
            for line in lines:
                lines[line] -= gone

    def move_to(self, root: Path) -> None:
        """Move what is known of modules that changed to where their lines are now; new lines are run by no test yet."""
        for path, old in list(self.texts.items()):
            file = root / path
            new = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
            if new == old:
                continue
            known = self.lines.pop(path, {})
            moved: dict[int, set[str]] = {}
            for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
                for step in range(block.size):
                    if block.a + step + 1 in known:
                        moved[block.b + step + 1] = known[block.a + step + 1]
            self.lines[path], self.texts[path] = moved, new


def test_files_of(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every test file that counts, by its path."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("test_*.py"))
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def load_covering(path: Path) -> Covering:
    """Return the map that was kept; an empty one where there is none."""
    if not path.exists():
        return Covering()
    kept = json.loads(path.read_text(encoding="utf-8"))
    tests = list(kept["durations"])
    lines = {
        module: {int(line): {tests[place] for place in places} for line, places in known.items()}
        for module, known in kept["lines"].items()
    }
    return Covering(kept["durations"], kept["digests"], lines, kept["texts"])


def save_covering(path: Path, covering: Covering) -> None:
    """Keep a map."""
    place = {test: number for number, test in enumerate(covering.durations)}
    lines = {
        module: {line: sorted(place[test] for test in tests) for line, tests in known.items() if tests}
        for module, known in covering.lines.items()
    }
    kept = {"durations": covering.durations, "digests": covering.digests, "lines": lines, "texts": covering.texts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept), encoding="utf-8")


def update_covering(path: Path, copy: Path, environment: dict[str, str], workers: int) -> Covering:
    """Return the map of a copy of the sources: tests of new and changed files are run, the others' lines are moved.

    Args:
        path: Where the map is kept.
        copy: The copy, in which the tests are run.
        environment: With it the copy's modules are imported.
        workers: How many processes run tests.
    """
    covering = load_covering(path)
    now = test_files_of(copy)
    covering.forget({file for file, digest in covering.digests.items() if now.get(file) != digest})
    covering.move_to(copy)
    if wanted := [file for file in now if file not in covering.digests]:
        print(f"measuring which lines the tests of {len(wanted)} files run", flush=True)
        files = add_measured(covering, copy, _measured(copy, wanted, environment, workers))
        covering.digests |= {file: now[file] for file in wanted if file in files}
        if missing := sorted(set(wanted) - files):
            print(f"not measured, so that their tests kill nothing: {', '.join(missing)}", flush=True)
    save_covering(path, covering)
    return covering


def _measured(copy: Path, files: Iterable[str], environment: dict[str, str], workers: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "tools.mutants.covering_plugin", "--covering", folder]
        options = ["-q", "-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
        path = os.pathsep.join([str(STARTED), environment["PYTHONPATH"]])
        done = subprocess.run(
            [*command, *options, "-m", SELECTED, "-p", "no:randomly", "-p", "no:cacheprovider", *files],
            cwd=copy, env=environment | {"PYTHONPATH": path}, check=False, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        # Tests that fail under coverage, as one that measures memory may, are not used: no mutant would be theirs.
        if done.returncode not in _MEASURED:
            said = done.stdout[-2000:]
            raise RuntimeError(f"measuring which lines the tests run failed with exit status {done.returncode}: {said}")
        return [json.loads(each.read_text(encoding="utf-8")) for each in sorted(Path(folder).glob("*.json"))]


def add_measured(covering: Covering, copy: Path, measured: Iterable[dict[str, Any]]) -> set[str]:
    """Add what the plugin wrote to a map; return the test files that were run to their end.

    Each process has its tests and the lines that they run there. One that a test started may belong to one that failed.
    """
    files: set[str] = set()
    for each in measured:
        files.update(each.get("files", ()))
        covering.durations |= each.get("durations", {})
        tests = each["tests"]
        for module, known in each["lines"].items():
            covering.texts[module] = (copy / module).read_text(encoding="utf-8").split("\n")
            target = covering.lines.setdefault(module, {})
            for line, places in known.items():
                target.setdefault(int(line), set()).update(tests[place] for place in places)
    for lines in covering.lines.values():
        for line in lines:
            lines[line] &= covering.durations.keys()
    return files
