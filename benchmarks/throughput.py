"""Cases per second and peak memory of whole `assay run` commands, compared with a bare loop.

Each figure is a whole command, results durable, in a state directory of its own: start of the services,
validation, run, report, stop. `bare_loop.py`, which only calls the agent through a service, takes turns with it: the
ratios are of whole commands. `--json FILE` saves the figures. With `--against CHECKOUT` the same commands run by turns
from another checkout that has its own `.venv`, and ratios of the two are printed. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from benchmarks.saved_figures import save

AGENTS = {
    "instant": "async def answer(request):\n    return request.input.upper()\n",
    "50 ms": (
        "import asyncio\nasync def answer(request):\n    await asyncio.sleep(0.05)\n    return request.input.upper()\n"
    ),
}


JOBS = [
    ("1,000 instant cases", 1000, "instant", 64),
    ("5,000 instant cases", 5000, "instant", 64),
    ("20,000 instant cases", 20000, "instant", 64),
    ("1,000 cases of 50 ms at concurrency 100", 1000, "50 ms", 100),
]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, set up, to compare with")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pythons = [Path(sys.executable)]
    if options.against:
        pythons.append(options.against.resolve() / ".venv/bin/python")
        if not pythons[1].exists():
            sys.exit(f"{options.against} is not set up: {pythons[1]} is missing; run `make demo` there first")
    figures: dict[str, Any] = {}
    for name, count, agent, width in JOBS:
        here, bare, *others = measure(count, agent, width, options.repeats, pythons)
        figures[name] = here | {f"bare_{key}": bare[key] for key in ("wall_s", "cpu_s")}
        figures[name] |= {f"bare_ratio_{key}": bare[f"ratio_{key}"] for key in ("wall_s", "cpu_s")}
        figures[name] |= {f"against_{key}": value for other in others for key, value in other.items()}
        for other in others:
            for key in ("cases_per_s_running", "cpu_s"):
                figures[name][f"ratio_{key}"] = round(here[key] / other[key], 3)
    figures["floor: start Python and import grpc"] = floor(options.repeats)
    for name, figure in figures.items():
        print(f"{name:<45} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    print(f"ideal for 1,000 cases of 50 ms at concurrency 100: {asyncio.run(ideal()):.2f} s")
    save(options.json, figures)


def measure(count: int, agent: str, concurrency: int, repeats: int, pythons: list[Path]) -> list[dict[str, Any]]:
    """Return medians of whole commands in turns: of this checkout, the bare loop and other checkouts.

    `wall_s` and `cpu_s` are seconds of the command and its services, `cases_per_s_running` is counted between the run's
    start and end, and memory is peak MiB.
    """
    seen: list[list[dict[str, float]]] = [[] for _ in pythons]
    loops: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(index) for index in range(len(pythons))]
        for folder, python in zip(folders, pythons, strict=True):
            folder.mkdir()
            write_project(folder, count, AGENTS[agent], concurrency)
            run(folder, python)  # creates the database
        for _ in range(repeats):
            loops.append(run_bare(folders[0], concurrency))
            for folder, python, figures in zip(folders, pythons, seen, strict=True):
                figures.append(figures_of(count, *run(folder, python)))
    bare = {key: round(median(loops, key), 2) for key in ("wall_s", "cpu_s")}
    here, *others = [
        {
            "wall_s": round(median(figures, "wall_s"), 2),
            "cpu_s": round(median(figures, "cpu_s"), 2),
            "cases_per_s_running": round(median(figures, "cases_per_s_running")),
            "orchestrator_mib": round(median(figures, "orchestrator")),
            "orchestrator_own_mib": round(median(figures, "orchestrator_own")),
            "command_mib": round(median(figures, "command")),
        }
        for figures in seen
    ]
    for key in ("wall_s", "cpu_s"):  # neighbours ran under the same load
        bare[f"ratio_{key}"] = round(statistics.median(a[key] / b[key] for a, b in zip(seen[0], loops, strict=True)), 2)
    return [here, bare, *others]


def figures_of(
    count: int, seconds: dict[str, float], document: dict[str, Any], peaks: dict[str, float]
) -> dict[str, float]:
    """Return the figures of one command."""
    running = seconds_between(document["run"]["started_at"], document["run"]["ended_at"])
    return seconds | peaks | {"cases_per_s_running": count / running}


def median(figures: list[dict[str, float]], name: str) -> float:
    """Return the median of one figure."""
    return statistics.median(figure[name] for figure in figures)


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


def run(
    folder: Path, python: Path, *, home: str = "home", idle_s: int = 0
) -> tuple[dict[str, float], dict[str, Any], dict[str, float]]:
    """Run the command once; return its seconds, its report and the peak memory of its processes in MiB."""
    env = {**os.environ, "ASSAY_HOME": str(folder / home), "ASSAY_IDLE_S": str(idle_s)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # keep compiled modules, as users do
    command = [str(python), "-m", "assay_cli", "run", "assay.yaml", "--no-progress", "--output-dir", "out"]
    shutil.rmtree(folder / "out", ignore_errors=True)  # a report of another run would not be overwritten
    before = cpu_seconds()
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
    seconds = {"wall_s": wall, "cpu_s": cpu_seconds() - before}
    return seconds, json.loads((folder / "out" / "results.json").read_text()), peaks


def run_bare(folder: Path, concurrency: int) -> dict[str, float]:
    """Run the bare loop once over the same cases; return its seconds."""
    loop = Path(__file__).with_name("bare_loop.py")
    command = [sys.executable, str(loop), "qa.jsonl", "agent.py", str(concurrency)]
    before, start = cpu_seconds(), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    return {"wall_s": time.perf_counter() - start, "cpu_s": cpu_seconds() - before}


def cpu_seconds() -> float:
    """Return the processor time of all finished processes, including their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watch_memory(process: subprocess.Popen[bytes], peaks: dict[str, float]) -> None:
    """Sample the memory of a command and its orchestrator until it ends."""
    while process.poll() is None:
        try:
            parent = psutil.Process(process.pid)
            for name, processes in (("command", [parent]), ("orchestrator", parent.children())):
                for member in processes:
                    memory = member.memory_info()
                    peaks[name] = max(peaks[name], memory.rss / 1024**2)
                    if name == "orchestrator":
                        # Without file pages: the mapped database would dominate the figure.
                        own = (memory.rss - memory.shared) / 1024**2
                        peaks["orchestrator_own"] = max(peaks["orchestrator_own"], own)
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.05)


def floor(repeats: int) -> dict[str, Any]:
    """Return the time to start Python and import grpc twice, a floor for every design."""
    walls = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import grpc.aio"], check=True)
        walls.append(time.perf_counter() - start)
    return {"wall_s": round(statistics.median(walls), 2)}


async def ideal() -> float:
    """Return the time of 1,000 waits of 50 ms at concurrency 100 in one event loop."""
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
