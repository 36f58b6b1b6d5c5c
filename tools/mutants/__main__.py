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

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".mutants"
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
KILLED = ("killed", "timeout")


def main() -> None:
    """Try a sample of mutants and write what became of them."""
    options = _options()
    mutants = all_mutants(ROOT)
    sample = chosen_mutants(mutants, options.count, options.seed)
    reasons = read_equivalents()
    journal = Journal(STATE / "journal.jsonl")
    wanted = [
        each
        for area, chosen in sample.items()
        for each in chosen
        if each.name not in reasons and options.area in ("", area) and options.only in each.name
    ]
    with database() as url, tempfile.TemporaryDirectory(prefix="assay-mutants-") as folder:
        copies = [Copy(ROOT, Path(folder) / str(number), url) for number in range(options.workers)]
        covering = update_covering(STATE / "covering.json", copies[0].folder, copies[0].environment, options.workers)
        known = journal.known(wanted, covering, again=options.again)
        pending = [each for each in wanted if each.name not in known]
        print(f"{len(wanted)} mutants, {len(known)} of them tried before", flush=True)
        _try_all(pending, copies, covering, journal, options.most_minutes)
        verdicts = journal.known(wanted, covering, again=False)
    _report(mutants, sample, reasons, verdicts)
    if options.json and len(verdicts) == len(wanted) and not (options.area or options.only):
        document = _document(options.seed, mutants, sample, reasons, verdicts)
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


class Journal:
    """What became of the mutants that were tried, one line each: an interrupted run continues where it ended.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def known(self, mutants: list[Mutant], covering: Covering, *, again: bool) -> dict[str, dict[str, Any]]:
        """Return the last verdict of each mutant, where its module and the test that killed it are as they were.

        Args:
            mutants: The mutants.
            covering: Which tests there are.
            again: Leave out those that were not killed.
        """
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        entries = {entry["mutant"]: entry for entry in map(json.loads, lines)}
        found = {}
        for mutant in mutants:
            entry = entries.get(mutant.name)
            if entry is None or entry["module"] != digest_of(mutant.path):
                continue
            killed = entry["outcome"] in KILLED
            if (killed and (not entry["test"].startswith("tests/") or entry["test"] in covering.durations)) or (
                not killed and not again
            ):
                found[mutant.name] = entry
        return found

    def add(self, entry: dict[str, Any]) -> None:
        """Write a verdict."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def digest_of(path: str) -> str:
    """Return the SHA-256 of a module's text."""
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


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
    pending: list[Mutant], copies: list[Copy], covering: Covering, journal: Journal, most_minutes: float
) -> None:
    """Try mutants, each in the copy of a worker."""
    free: Queue[Copy] = Queue()
    for copy in copies:
        free.put(copy)
    deadline = time.monotonic() + 60.0 * most_minutes
    ranges = {path: _function_lines(path) for path in {each.path for each in pending}}

    def attempt(place: int, mutant: Mutant) -> None:
        if time.monotonic() > deadline:
            return
        named = files_that_import(mutant.path, covering)
        tests = tests_for(mutant, covering, ranges[mutant.path].get(mutant.function), named)
        copy = free.get()
        try:
            verdict = try_mutant(mutant, copy, tests, covering)
        finally:
            free.put(copy)
        entry = {"mutant": mutant.name, "line": mutant.line, "operator": mutant.operator, "outcome": verdict.outcome}
        entry |= {"test": verdict.test, "test_count": verdict.test_count, "took_s": verdict.took_s}
        journal.add(entry | {"module": digest_of(mutant.path)})
        print(f"{place}/{len(pending)} {verdict.outcome} {verdict.took_s} s {mutant.name} {verdict.test}", flush=True)

    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(attempt, range(1, len(pending) + 1), pending))


def files_that_import(path: str, covering: Covering) -> set[str]:
    """Return the test files that import a module by its name, not only through others."""
    package, name = Path(path).parent.name, Path(path).stem
    pattern = re.compile(
        rf"^(?:from \S*\b{package}(?:\.{name}\b| import .*\b{name}\b)|import \S*\.{name}\b)", re.MULTILINE
    )
    return {file for file in covering.digests if pattern.search((ROOT / file).read_text(encoding="utf-8"))}


def _function_lines(path: str) -> dict[str, tuple[int, int]]:
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

    walk(ast.parse((ROOT / path).read_bytes()), "")
    return found


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
    tried = killed + counts["survived"] + counts["uncovered"]
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
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        "commit": commit.strip(),
        "python": platform.python_version(),
        "seed": seed,
        "test_file_count": len(test_files_of(ROOT)),
        "killed_share": round(_share(total), 4),
        "outcomes": dict(total),
        "areas": {
            area: {"mutants": len(mutants[area]), "killed_share": round(_share(counts), 4), **counts}
            for area, counts in areas.items()
        },
        "trial_s": round(sum(entry["took_s"] for entry in verdicts.values())),
        "not_killed": sorted(name for name, entry in verdicts.items() if entry["outcome"] not in KILLED),
    }


if __name__ == "__main__":
    main()
