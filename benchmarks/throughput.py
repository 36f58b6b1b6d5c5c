"""Cases per second and peak memory of whole `assay run` commands, beside what the machine allows.

Each figure is a whole command, results durable, in a state directory of its own: start of the services,
validation, run, report, stop. `--json FILE` saves the figures. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

AGENTS = {
    "instant": "async def answer(request):\n    return request.input.upper()\n",
    "50 ms": (
        "import asyncio\nasync def answer(request):\n    await asyncio.sleep(0.05)\n    return request.input.upper()\n"
    ),
}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    jobs = [
        ("1,000 instant cases", 1000, "instant", 64),
        ("5,000 instant cases", 5000, "instant", 64),
        ("20,000 instant cases", 20000, "instant", 64),
        ("1,000 cases of 50 ms at concurrency 100", 1000, "50 ms", 100),
    ]
    figures = {name: measure(count, agent, width, given.repeats) for name, count, agent, width in jobs}
    figures["floor: start Python and import grpc"] = floor(given.repeats)
    for name, figure in figures.items():
        print(f"{name:<45} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    print(f"ideal for 1,000 cases of 50 ms at concurrency 100: {asyncio.run(ideal()):.2f} s")
    if given.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        given.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")


def measure(count: int, agent: str, concurrency: int, repeats: int) -> dict[str, Any]:
    """Return medians of whole commands: wall seconds, cases per second once running, peak memory in MiB."""
    walls, rates, orchestrators, own, commands = [], [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, count, AGENTS[agent], concurrency)
        run(folder)  # makes the database
        for _ in range(repeats):
            wall, document, peaks = run(folder)
            walls.append(wall)
            rates.append(count / seconds_between(document["run"]["started_at"], document["run"]["ended_at"]))
            orchestrators.append(peaks["orchestrator"])
            own.append(peaks["orchestrator_own"])
            commands.append(peaks["command"])
    return {
        "wall_s": round(statistics.median(walls), 2),
        "cases_per_s_running": round(statistics.median(rates)),
        "orchestrator_mib": round(statistics.median(orchestrators)),
        "orchestrator_own_mib": round(statistics.median(own)),
        "command_mib": round(statistics.median(commands)),
    }


def write_project(folder: Path, count: int, agent: str, concurrency: int) -> None:
    """Write a spec, its dataset and its agent."""
    (folder / "agent.py").write_text(agent)
    with (folder / "qa.jsonl").open("w") as file:
        for index in range(count):
            file.write(json.dumps({"id": f"c{index}", "question": f"q{index}", "answer": f"Q{index}"}) + "\n")
    (folder / "assay.yaml").write_text(
        f"name: bench\ndataset: qa.jsonl\nmetrics: [exact_match]\n"
        f"agent: {{adapter: python, target: 'agent:answer', concurrency: {concurrency}}}\n"
    )


def run(folder: Path) -> tuple[float, dict[str, Any], dict[str, float]]:
    """Run the command once; return wall seconds, its report and the peak memory of its processes in MiB."""
    env = {**os.environ, "ASSAY_HOME": str(folder / "home")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled modules
    command = [sys.executable, "-m", "assay_cli", "run", "assay.yaml", "--no-progress", "--output-dir", "out"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        peaks: dict[str, float] = {"command": 0.0, "orchestrator": 0.0, "orchestrator_own": 0.0}
        watcher = threading.Thread(target=watch_memory, args=(process, peaks))
        watcher.start()
        _, errors = process.communicate()
        wall = time.perf_counter() - start
        watcher.join()
    if process.returncode != 0:
        sys.exit(f"the command failed: {errors.decode()}")
    return wall, json.loads((folder / "out" / "results.json").read_text()), peaks


def watch_memory(process: subprocess.Popen[bytes], peaks: dict[str, float]) -> None:
    """Sample the memory of a command and its orchestrator until it ends."""
    while process.poll() is None:
        try:
            parent = psutil.Process(process.pid)
            for name, found in (("command", [parent]), ("orchestrator", parent.children())):
                for one in found:
                    memory = one.memory_info()
                    peaks[name] = max(peaks[name], memory.rss / 1024**2)
                    if name == "orchestrator":
                        # Without pages of files, of which the mapped database has the more the larger it is.
                        own = (memory.rss - memory.shared) / 1024**2
                        peaks["orchestrator_own"] = max(peaks["orchestrator_own"], own)
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.05)


def floor(repeats: int) -> dict[str, Any]:
    """Return how long Python takes to start and import grpc twice, which no design here can avoid."""
    walls = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import grpc.aio"], check=True)
        walls.append(time.perf_counter() - start)
    return {"wall_s": round(statistics.median(walls), 2)}


async def ideal() -> float:
    """Return how long 1,000 waits of 50 ms take at concurrency 100 in one event loop."""
    slots = asyncio.Semaphore(100)

    async def wait() -> None:
        async with slots:
            await asyncio.sleep(0.05)

    start = time.perf_counter()
    await asyncio.gather(*(wait() for _ in range(1000)))
    return time.perf_counter() - start


def seconds_between(first: str, second: str) -> float:
    """Return the seconds between two ISO 8601 times."""
    from datetime import datetime

    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


if __name__ == "__main__":
    main()
