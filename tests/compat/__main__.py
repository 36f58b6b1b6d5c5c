"""Whether this version works beside another one: its commands, its services, and its databases.

    make compat BASE=v0.1.0

1. The base's end-to-end tests, with the base's commands and this version's services.
2. This version's end-to-end tests, with its commands and the base's services.
3. Databases that the base wrote, opened by this version.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from tests.compat.left_out import OLDER_COMMANDS, OLDER_SERVICES, SUITES, LeftOut
from tests.compat.versions import BASE_VARIABLE, PRESENT, Version, check_out, join, newest_release, present

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOO_OLD = re.compile(r"is too old for |does not know this call of Assay")
"""How a command refuses what an older server would ignore."""
_PLUGIN = "library/assay_pytest"
"""Of a version without it, the plugin that this version has installed cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the tests of one direction.

    Args:
        title: Which commands and services.
        passed: Tests that passed.
        failed: Those that did not.
        refused: Those that need a feature which the older server does not know, and in which the command said so.
        left_out: Those that say nothing about two versions.
        skipped: Those that this machine cannot run, each with the reason.
    """

    title: str
    passed: int
    failed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The outcome in one line."""
        counts = f"{self.passed} passed, {len(self.failed)} failed, {len(self.left_out)} left out"
        return f"{self.title}: {counts}, {len(self.refused)} refused, {len(self.skipped)} skipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests of both directions and of the databases; return 1 where one failed."""
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="", metavar="REVISION", help="Default: the newest release tag.")
    parser.add_argument("--only", choices=("commands", "services", "databases"), help="One part; default: all of them.")
    parser.add_argument("tests", nargs="*", metavar="FILE", help="Files of tests/e2e; default: all that use a server.")
    options = parser.parse_args(arguments)
    base_name = options.base or newest_release()
    if base_name is None:
        parser.error("there is no release tag: name a revision, as in `make compat BASE=b9b52cd`")
    with TemporaryDirectory(prefix="assay-compat-") as name:
        folder = Path(name)
        base, own = check_out(base_name, folder / "base"), present(folder / "present")
        outcomes = []
        if options.only in (None, "commands"):
            outcomes.append(_run_suites(base, own, OLDER_COMMANDS, base, folder / "commands", options.tests))
        if options.only in (None, "services"):
            outcomes.append(_run_suites(own, base, OLDER_SERVICES, base, folder / "services", options.tests))
        if options.only in (None, "databases"):
            outcomes.append(_run_databases(base, folder))
    sys.stdout.write(_report(outcomes))
    return int(any(outcome.failed for outcome in outcomes))


def _run_suites(
    commands: Version,
    services: Version,
    listed: Sequence[LeftOut],
    base: Version,
    folder: Path,
    only: Sequence[str],
) -> Outcome:
    """Run the end-to-end tests of one version's commands with the services of the other."""
    python = join(commands, services, folder)
    left_out = tuple(each for each in listed if each.applies(base.checkout) and (not only or _file(each) in only))
    whole = {each.test for each in left_out}
    files = [
        f"tests/e2e/{name}"
        for name in only or SUITES
        if name not in whole and (commands.checkout / "tests/e2e" / name).is_file()
    ]
    deselected = [part for each in left_out for part in ("--deselect", f"tests/e2e/{each.test}")]
    title = f"commands of {commands.name}, services of {services.name}"
    # All tests of the files, those over PostgreSQL too, which `make test` leaves out.
    outcome = _pytest(title, python, commands.checkout, folder, ["-m", "", *files, *deselected], {})
    return replace(outcome, left_out=left_out)


def _file(left_out: LeftOut) -> str:
    return left_out.test.partition("::")[0]


def _run_databases(base: Version, folder: Path) -> Outcome:
    title = f"databases of {base.name}, opened by this version"
    environment = {BASE_VARIABLE: str(base.python)}
    arguments = ["-m", "compat", "tests/compat"]
    return _pytest(title, Path(sys.executable), PRESENT, folder, arguments, environment)


def _pytest(
    title: str,
    python: Path,
    checkout: Path,
    folder: Path,
    arguments: Sequence[str],
    environment: dict[str, str],
) -> Outcome:
    """Run pytest in a checkout."""
    sys.stdout.write(f"\n== {title}\n")
    sys.stdout.flush()
    report = folder / "report.xml"
    # One process: the tests of two versions at once would share what the machine can do, and time out.
    left_out = ("randomly", "cacheprovider", *(() if (checkout / _PLUGIN).is_dir() else ("assay",)))
    command = [str(python), "-m", "pytest", f"--junitxml={report}", *(f"-pno:{name}" for name in left_out)]
    done = subprocess.run([*command, *arguments], cwd=checkout, env={**os.environ, **environment}, check=False)
    if done.returncode not in (0, 1) or not report.is_file():
        return Outcome(title, 0, (f"pytest ended with status {done.returncode}",))
    passed, failed, refused, skipped = 0, [], [], []
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [found for kind in ("failure", "error") for found in case.iter(kind)]
        reasons = [found.get("message", "") for found in case.iter("skipped")]
        name = f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name')}"
        if reasons and not problems:
            skipped.append(f"{name}: {'; '.join(reasons)}")
        elif not problems:
            passed += 1
        elif any(_TOO_OLD.search(problem.text or "") for problem in problems):
            refused.append(name)
        else:
            failed.append(name)
    return Outcome(title, passed, tuple(failed), tuple(refused), skipped=tuple(skipped))


def _report(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        lines += ["", outcome.line]
        lines += [f"  failed    {name}" for name in outcome.failed]
        lines += [f"  refused   {name}: the older server was named as too old for it" for name in outcome.refused]
        lines += [f"  skipped   {name}" for name in outcome.skipped]
        lines += [f"  left out  {each.test}: {each.reason}" for each in outcome.left_out]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
