"""`make fuzz`: random, mutated and cut-off messages to every method of every service; exit 1 for a wrong end."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz.fuzzing import Findings, fuzz
from tests.fuzz.targets import running_targets


async def _run(folder: Path, messages: int, seed: int) -> Findings:
    async with running_targets(folder) as targets:
        return await fuzz(targets, messages=messages, seed=seed)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="how many to send (default: 100000)")
    parser.add_argument("--seed", type=int, default=1, help="of the randomness (default: 1)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    folder = Path(mkdtemp(prefix="assay-fuzz-"))
    try:
        findings = asyncio.run(_run(folder, given.messages, given.seed))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for problem in findings.problems.values():
        print(problem)  # noqa: T201 - the user's terminal
    print(  # noqa: T201
        f"{findings.messages:,} messages in {sum(findings.calls.values()):,} calls to {len(findings.calls)} methods, "
        f"seed {given.seed}, {findings.duration_s:.0f} s: {len(findings.problems)} problems"
    )
    if given.json:
        figures = {
            "seed": given.seed,
            "machine": platform.machine(),
            "messages": findings.messages,
            "duration_s": round(findings.duration_s, 1),
            "own_memory_mib": {name: [each[0], max(each), each[-1]] for name, each in findings.memory_mib.items()},
            "ends": findings.ends,
            "problems": findings.problems,
        }
        given.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
