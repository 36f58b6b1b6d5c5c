"""Processor time a case before a run is created: reading, checking and encoding it, and storing it.

Each round checks a file as `assay run` does and uploads it to an orchestrator over an empty SQLite file; every round's
cases differ, so that nothing is stored already. Figures are the least of all rounds. `--json FILE` saves them. See
README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.saved_figures import save

from assay.client.client import Client
from assay.client.encoded_cases import EncodedCases
from assay.datasets import open_dataset
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "question and reference": lambda number: {},
    "recorded answer too": lambda number: {"recorded": f"The answer is {2 * number}", "category": "math"},
}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for count in options.cases:
        for shape in SHAPES:
            name = f"{count:,} cases, {shape}"
            figures[name] = asyncio.run(_measure(shape, count, options.repeats))
            print(f"{name:<40} " + "  ".join(f"{key} {value}" for key, value in figures[name].items()), flush=True)
    save(options.json, figures)


async def _measure(shape: str, count: int, repeats: int) -> dict[str, float]:
    """Return microseconds a case: processor time of both sides, and wall time."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
        address, file = f"unix:{folder}/o.sock", Path(folder, "cases.jsonl")
        command = [sys.executable, "-m", "assay_orchestrator", "--listen", address, "--database", f"{folder}/a.db"]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        try:
            async with open_channel(address) as channel:
                await wait_for_ready(channel, "assay.v1.RunService", 60.0)
            async with Client(address) as client:
                rounds = [
                    await _round(client, psutil.Process(process.pid), _write(file, shape, count, number))
                    for number in range(repeats)
                ]
        finally:
            process.terminate()
            await process.wait()
    names = ("check_us", "send_us", "orchestrator_us", "wall_us")
    return {
        name: round(min(values) / count * 1e6, 1) for name, values in zip(names, zip(*rounds, strict=True), strict=True)
    }


def _write(file: Path, shape: str, count: int, number: int) -> Path:
    with file.open("w", encoding="utf-8") as lines:
        for index in range(count):
            record = {"id": f"c{index}", "question": f"Round {number}: {index} twice?", "answer": str(2 * index)}
            lines.write(json.dumps(record | SHAPES[shape](index)) + "\n")
    return file


async def _round(client: Client, orchestrator: psutil.Process, file: Path) -> tuple[float, ...]:
    """Return seconds: of checking, of sending, of the orchestrator, and on the clock."""
    began, at_first, stored_before = time.perf_counter(), _own_cpu_s(), sum(orchestrator.cpu_times()[:2])
    with EncodedCases() as cases:
        open_dataset(file).check(cases.add)
        checked = _own_cpu_s()
        await cases.upload(client, name=file.name)
    stored = sum(orchestrator.cpu_times()[:2]) - stored_before
    return checked - at_first, _own_cpu_s() - checked, stored, time.perf_counter() - began


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
