"""Try mutants: python -m tools.mutants --help."""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import json
import platform
import re
import subprocess
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from tools.mutants.covering import test_files_of, update_covering
from tools.mutants.sample import all_mutants, chosen_mutants
from tools.mutants.trial import Copy, tests_for, try_mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.mutants.covering import Covering
    from tools.mutants.operators import Mutant
    from tools.mutants.trial import Verdict

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".mutants"
JOURNAL = ROOT / "benchmarks" / "results" / "mutants.jsonl"
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
KILLED = ("killed", "timeout")


def main() -> None:
    """Try a sample of mutants and write what became of them."""
    options = _options()
    began = time.monotonic()
    mutants = all_mutants(ROOT)
    sample = chosen_mutants(mutants, options.count, options.seed)
    reasons = read_equivalents()
    wanted = [
        each
        for area, chosen in sample.items()
        for each in chosen
        if each.name not in reasons and options.area in ("", area) and options.only in each.name
    ]
    commit = _commit()
    with database() as url, tempfile.TemporaryDirectory(prefix="assay-mutants-") as folder:
        copies = [Copy(ROOT, Path(folder) / str(number), url) for number in range(options.workers)]
        covering = update_covering(STATE / "covering.json", copies[0].folder, copies[0].environment, options.workers)
        named = {path: files_that_import(path, covering) for path in {each.path for each in wanted}}
        plan = [Planned.of(each, copies[0].folder, covering, named[each.path]) for each in wanted]
        journal = Journal(JOURNAL)
        before = journal.known(plan, again=options.again)
        pending = [each for each in plan if each.mutant.name not in before]
        print(f"{len(plan)} mutants, {len(before)} of them tried before", flush=True)
        _try_all(pending, copies, covering, journal, options.most_minutes)
    verdicts = journal.known(plan, again=False)
    _report(mutants, sample, reasons, verdicts)
    if options.json and len(verdicts) == len(wanted) and not (options.area or options.only):
        document = commit | _document(options.seed, mutants, sample, reasons, verdicts)
        document |= {"wall_minutes": round((time.monotonic() - began) / 60.0, 1), "workers": options.workers}
        document |= {"from_journal": sorted(before)}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Try a sample of mutants.")
    add = parser.add_argument
    add("--count", type=int, default=440, help="how many mutants are chosen; default 440")
    add("--seed", type=int, default=1, help="of the choice; default 1")
    add("--workers", type=int, default=2, help="how many are tried at once; default 2")
    add("--area", default="", help="only the chosen mutants of one area")
    add("--only", default="", help="only the chosen mutants whose name contains a text")
    add("--again", action="store_true", help="try survivors of before again")
    add("--most-minutes", type=float, default=1e9, help="start no trial after this; the next call continues")
    add("--json", type=Path, help="where the result is written once all are tried")
    return parser.parse_args()


def read_equivalents() -> dict[str, str]:
    """Return the mutants that no test can notice, with the reason."""
    listed = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8")).get("equivalent", [])
    return {each["mutant"]: each["reason"] for each in listed}


@dataclass(frozen=True, slots=True)
class Planned:
    """A mutant, its tests, and what a verdict on it depends on.

    Args:
        mutant: The mutant.
        tests: The ids of its tests, in the order in which they run.
        module: SHA-256 of its module.
        files: SHA-256 of each file of its tests.
    """

    mutant: Mutant
    tests: list[str]
    module: str
    files: dict[str, str]

    @classmethod
    def of(cls, mutant: Mutant, copy: Path, covering: Covering, named: set[str]) -> Planned:
        """Return a mutant with what is to be run for it in a copy of the checkout.

        Args:
            mutant: The mutant.
            copy: The copy.
            covering: The map from lines to tests.
            named: The test files that import its module by name.
        """
        source = (copy / mutant.path).read_bytes()
        tests = tests_for(mutant, covering, _function_lines(source).get(mutant.function), named)
        files = {test.partition("::")[0] for test in tests}
        digests = {file: covering.digests.get(file, "") for file in sorted(files)}
        return cls(mutant, tests, hashlib.sha256(source).hexdigest(), digests)

    def decided_by(self, test: str) -> str:
        """Return a digest of the file of the test that killed the mutant, of the files of all tests where none did."""
        file = test.partition("::")[0]
        return self.files[file] if file in self.files else hashlib.sha256(repr(self.files).encode()).hexdigest()


class Journal:
    """What became of the mutants that were tried, one line each: an interrupted run continues where it ended.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def known(self, plan: list[Planned], *, again: bool) -> dict[str, dict[str, Any]]:
        """Return the last verdict of each mutant, where its module and the tests that decided are as they were.

        Args:
            plan: The mutants.
            again: Leave out those that were not killed.
        """
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        entries = {entry["mutant"]: entry for entry in map(json.loads, lines)}
        found = {}
        for each in plan:
            entry = entries.get(each.mutant.name)
            if entry is None or entry["module"] != each.module or entry["decided_by"] != each.decided_by(entry["test"]):
                continue
            if entry["outcome"] in KILLED or (entry["outcome"] != "unclear" and not again):
                found[each.mutant.name] = entry
        return found

    def add(self, planned: Planned, verdict: Verdict) -> None:
        """Write a verdict."""
        mutant = planned.mutant
        entry = {"mutant": mutant.name, "line": mutant.line, "operator": mutant.operator} | asdict(verdict)
        entry |= {"module": planned.module, "decided_by": planned.decided_by(verdict.test)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


@contextmanager
def database() -> Iterator[str]:
    """Return the URL of a PostgreSQL server that all trials share: starting one for each would take minutes."""
    found = importlib.util.spec_from_file_location("tests_conftest", ROOT / "tests" / "conftest.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    with module._own_server() as server:  # noqa: SLF001 - the tests' own
        yield server.url


def _try_all(
    pending: list[Planned], copies: list[Copy], covering: Covering, journal: Journal, most_minutes: float
) -> None:
    """Try mutants, each in the copy of a worker."""
    free: Queue[Copy] = Queue()
    for copy in copies:
        free.put(copy)
    deadline = time.monotonic() + 60.0 * most_minutes

    def attempt(place: int, planned: Planned) -> None:
        if time.monotonic() > deadline:
            return
        copy = free.get()
        try:
            verdict = try_mutant(planned.mutant, copy, planned.tests, covering)
        finally:
            free.put(copy)
        journal.add(planned, verdict)
        said = f"{verdict.outcome} {verdict.took_s} s {planned.mutant.name} {verdict.test}"
        print(f"{place}/{len(pending)} {said}", flush=True)

    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(attempt, range(1, len(pending) + 1), pending))


def files_that_import(path: str, covering: Covering) -> set[str]:
    """Return the test files that import a module by its name, not only through others."""
    package, name = Path(path).parent.name, Path(path).stem
    pattern = re.compile(
        rf"^(?:from \S*\b{package}(?:\.{name}\b| import .*\b{name}\b)|import \S*\.{name}\b)", re.MULTILINE
    )
    return {file for file in covering.digests if pattern.search((ROOT / file).read_text(encoding="utf-8"))}


@cache
def _function_lines(source: bytes) -> dict[str, tuple[int, int]]:
    """Return the first and last line of every function of a module, by its dotted name."""
    found: dict[str, tuple[int, int]] = {}

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
                if not isinstance(child, ast.ClassDef):
                    found[inner] = (child.body[0].lineno, child.end_lineno or child.lineno)
                walk(child, inner)
            else:
                walk(child, name)

    walk(ast.parse(source), "")
    return found


def _commit() -> dict[str, Any]:
    """Return the commit that is checked out, and whether files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return {
        "commit": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--", ".", ":!benchmarks/results")),
    }


def _counts(chosen: list[Mutant], reasons: dict[str, str], verdicts: dict[str, dict[str, Any]]) -> Counter[str]:
    outcomes = (
        "equivalent" if each.name in reasons else verdicts.get(each.name, {"outcome": "not tried"})["outcome"]
        for each in chosen
    )
    return Counter(outcomes)


def _report(
    mutants: dict[str, list[Mutant]],
    sample: dict[str, list[Mutant]],
    reasons: dict[str, str],
    verdicts: dict[str, dict[str, Any]],
) -> None:
    total: Counter[str] = Counter()
    for area, chosen in sample.items():
        counts = _counts(chosen, reasons, verdicts)
        total += counts
        print(f"{area:12} {len(chosen):4} of {len(mutants[area]):5}  {_share(counts):6.1%}  {dict(counts)}")
    print(f"{'all':12} {sum(total.values()):4}           {_share(total):6.1%}  {dict(total)}")
    for name, entry in verdicts.items():
        if entry["outcome"] not in KILLED:
            print(f"{entry['outcome']}: line {entry['line']}, {entry['operator']}: {name}")


def _share(counts: Counter[str]) -> float:
    killed = sum(counts[each] for each in KILLED)
    tried = killed + counts["survived"] + counts["uncovered"] + counts["unclear"]
    return killed / tried if tried else 0.0


def _document(
    seed: int,
    mutants: dict[str, list[Mutant]],
    sample: dict[str, list[Mutant]],
    reasons: dict[str, str],
    verdicts: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    areas = {area: _counts(chosen, reasons, verdicts) for area, chosen in sample.items()}
    total = sum(areas.values(), Counter[str]())
    return {
        "python": platform.python_version(),
        "seed": seed,
        "test_file_count": len(test_files_of(ROOT)),
        "killed_share": round(_share(total), 4),
        "outcomes": dict(total),
        "areas": {
            area: {"mutants": len(mutants[area]), "killed_share": round(_share(counts), 4), **counts}
            for area, counts in areas.items()
        },
        "worker_minutes": round(sum(entry["took_s"] for entry in verdicts.values()) / 60.0, 1),
        "not_killed": sorted(name for name, entry in verdicts.items() if entry["outcome"] not in KILLED),
    }


if __name__ == "__main__":
    main()
