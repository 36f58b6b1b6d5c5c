"""What a person waits for around a run: a used and a fresh state directory, a second command, a second `evaluate`.

Whole commands over 1,000 instant cases take turns with the bare loop of `bare_loop.py`: in a state directory with a
database, in a new one, and as the second command, for which the services of the first wait idle. Then one Python
process calls `evaluate` with 3 cases again and again, with and without similarity. `--json FILE` saves the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.saved_figures import save
from benchmarks.throughput import AGENTS, run, run_bare, write_project

CONCURRENCY = 64
CALLS = """
import json, sys, time
from assay import evaluate

def seconds(metrics, cases):
    start = time.perf_counter()
    evaluate({"metrics": metrics}, agent=lambda request: request.input, dataset=cases, progress=False)
    return time.perf_counter() - start

cases = [{"question": f"question {n}", "reference": f"answer {n}"} for n in range(3)]
names = {"without similarity": ["exact_match"], "with similarity": ["semantic_similarity"]}
taken = {name: [] for name in names}
for _ in range(int(sys.argv[1]) + 1):
    for name, metrics in names.items():
        taken[name].append(seconds(metrics, cases))
print(json.dumps({name: times[1:] for name, times in taken.items()}))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = {**commands(Path(name), options.repeats), **calls(Path(name), options.repeats)}
    for key, value in figures.items():
        print(f"{key:<55} {value}")
    save(options.json, figures)


def commands(folder: Path, repeats: int) -> dict[str, Any]:
    """Return medians of whole commands, of their ratios, and of their memory in MiB."""
    write_project(folder, 1000, AGENTS["instant"], CONCURRENCY)
    python = Path(sys.executable)
    run(folder, python)  # creates the database and compiles modules
    walls: dict[str, list[float]] = {name: [] for name in ("bare loop", "used", "fresh", "second")}
    memory = []
    for number in range(repeats):
        walls["bare loop"].append(run_bare(folder, CONCURRENCY)["wall_s"])
        seconds, _, peaks = run(folder, python)
        walls["used"].append(seconds["wall_s"])
        memory.append(peaks["command"] + peaks["orchestrator"])
        walls["fresh"].append(run(folder, python, home=f"fresh{number}")[0]["wall_s"])
        run(folder, python, idle_s=60)
        walls["second"].append(run(folder, python, idle_s=60)[0]["wall_s"])
        environment = {**os.environ, "ASSAY_HOME": str(folder / "home")}
        subprocess.run([str(python), "-m", "assay_cli", "down"], env=environment, check=True, capture_output=True)
    figures: dict[str, Any] = {f"{name}, wall_s": round(statistics.median(each), 2) for name, each in walls.items()}
    for over, under in (("used", "bare loop"), ("second", "bare loop"), ("fresh", "used")):
        pairs = zip(walls[over], walls[under], strict=True)
        figures[f"{over} / {under}"] = round(statistics.median(a / b for a, b in pairs), 2)
    return figures | {"command and orchestrator, MiB": round(statistics.median(memory))}


def calls(folder: Path, repeats: int) -> dict[str, float]:
    """Return medians of the seconds of `evaluate` from the second call of a process on."""
    environment = {**os.environ, "ASSAY_HOME": str(folder / "calls")}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(repeats)], cwd=folder, env=environment, check=True, capture_output=True
    )
    taken: dict[str, list[float]] = json.loads(done.stdout)
    return {f"evaluate of 3 cases, {name}, wall_s": round(statistics.median(times), 3) for name, times in taken.items()}


if __name__ == "__main__":
    main()
