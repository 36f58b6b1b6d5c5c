"""What a run's command still does after the last row, with the reports json and html.

    python -m benchmarks.ending [--rows 20000 100000] [--rounds 3] [--json FILE]

Each round is a whole `assay run` over instant cases. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.saved_figures import save
from benchmarks.throughput import AGENTS, seconds_between, watch_memory, write_project

_HEAD_BYTES = 1 << 20


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for count in options.rows:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_project(folder, count, AGENTS["instant"], 64)
            measured = [run(folder) for _ in range(options.rounds)]
        figure = {key: round(statistics.median(each[key] for each in measured), 3) for key in measured[0]}
        figures[f"{count:,} rows"] = figure
        print(f"{count:>9,} rows  " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    save(options.json, figures)


def run(folder: Path) -> dict[str, float]:
    """Run the command once; return its seconds, from the run's times and from when its output arrives."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [sys.executable, "-m", "assay_cli", "run", "assay.yaml", "--no-progress", "--output-dir", "out"]
    env = {**os.environ, "ASSAY_HOME": str(folder / "home")}
    verdict = None
    peaks = {"command": 0.0, "orchestrator": 0.0, "orchestrator_own": 0.0}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        watcher = threading.Thread(target=watch_memory, args=(process, peaks))
        watcher.start()
        assert process.stdout is not None
        for line in process.stdout:
            if verdict is None and line.startswith("verdict"):
                verdict = datetime.now(UTC)
        process.wait()
    end = datetime.now(UTC)
    watcher.join()
    if process.returncode or verdict is None:
        sys.exit("the command failed")
    with (folder / "out" / "results.json").open() as file:
        head = file.read(_HEAD_BYTES)
    started, ended = (re.search(rf'"{name}": "([^"]+)"', head)[1] for name in ("started_at", "ended_at"))  # type: ignore[index]
    running = seconds_between(started, ended)
    after = (end - datetime.fromisoformat(ended)).total_seconds()
    return {
        "running_s": running,
        "verdict_after_s": (verdict - datetime.fromisoformat(ended)).total_seconds(),
        "end_after_s": after,
        "after/running": after / running,
        "command_mib": peaks["command"],
    }


if __name__ == "__main__":
    main()
