"""Compare stored runs as the orchestrator does: time and peak memory from stored rows to figures.

    python -m benchmarks.comparison [--json FILE]

Each size runs in a separate process, over a SQLite database with the rows of synthetic runs.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assay.comparison.case_list import CaseOrder, CaseQuery
from assay.comparison.model import ComparisonSettings
from assay.metrics import build_metric
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    MetricSpec,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    Score,
    ScoreStatus,
)  # fmt: skip
from assay.model.scope import LOCAL
from assay_orchestrator.queries.comparison import Comparisons
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.page_tokens import PageTokens
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.summary.run_summary import summarise

SIZES = ((2, 100_000), (10, 10_000))
GOAL_S = 10.0
METRICS = (
    MetricSpec("exact_match", {"threshold": 0.85, "collapse_whitespace": False, "strip_punctuation": False,
                                   "arabic_fold": False}),
    MetricSpec("latency", {"threshold": None}),
)  # fmt: skip


def rows_of(seed: int, case_count: int) -> list[RowResult]:
    """Return the rows of one run: exact match at about 75 %, latencies around a second."""
    generator = random.Random(seed)
    rows = []
    for index in range(case_count):
        right, latency_s = generator.random() < 0.74 + 0.01 * seed, generator.expovariate(1.0)
        scores = (
            Score("exact_match", ScoreStatus.SCORED, float(right), passed=right),
            Score("latency", ScoreStatus.SCORED, latency_s),
        )
        rows.append(RowResult(f"c{index}", index, 1, "a", AgentStatus.SUCCESS, right, scores, latency_s * 1000, ""))
    return rows


def store(folder: Path, run_count: int, case_count: int) -> list[Run]:
    """Store runs and return them with their summaries."""
    database = open_database(Settings(database=folder / "assay.db"))
    compared_runs = []

    async def write() -> None:
        dataset = DatasetRef("d" * 64, "made up", case_count)
        upload = datasets.new_upload_id()
        await database.write(lambda c: datasets.finish_upload(c, LOCAL, upload, dataset))
        for number in range(run_count):
            settings = RunSpec(name=f"run-{number}", agent=AgentSpec("replay"), metrics=METRICS)
            rows = rows_of(number, case_count)
            record = RunRecord(
                run_id=f"run-{number}", request_id=f"r{number}", request_hash="", spec=dataclasses.asdict(settings),
                dataset_id=dataset.dataset_id, state=RunState.RUNNING, total_count=case_count, assay_version="0",
                created_at="2026-11-23T00:00:00.000000Z", team=LOCAL.team,
            )  # fmt: skip
            await database.write(lambda c, record=record: runs.create_run(c, record))  # type: ignore[misc]  # a default
            for begin in range(0, case_count, 5_000):
                part = rows[begin : begin + 5_000]
                await database.write(
                    lambda c, part=part, name=record.run_id: results.put_rows(c, name, (), part, {})  # type: ignore[misc]
                )
            summary = summarise(rows, [build_metric(metric) for metric in METRICS], ())
            counts = RunCounts(case_count, case_count, summary.passed_count, case_count - summary.passed_count, 0)
            compared_runs.append(
                Run(record.run_id, settings, dataset, RunState.COMPLETED, "", counts, record.created_at, "", "",
                    case_count, summary)
            )  # fmt: skip

    asyncio.run(write())
    database.close()
    return compared_runs


async def compare(folder: Path, stored: list[Run]) -> dict[str, Any]:
    """Compare runs once, list their worst cases twice, and return time and memory."""
    database = open_database(Settings(database=folder / "assay.db"))
    comparisons = Comparisons(database, PageTokens(database))
    settings, query = ComparisonSettings(), CaseQuery(order=CaseOrder.LARGEST_LOSS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = {}
    try:
        for name in ("compare", "compare_again", "first_page"):
            begun, used = time.perf_counter(), time.process_time()
            if name == "first_page":
                await comparisons.list_cases(
                    LOCAL, stored, settings, query, page_size=100, page_token="", with_answers=False
                )
            else:
                await comparisons.compare(LOCAL, stored, settings)
            took[f"{name}_s"] = round(time.perf_counter() - begun, 2)
            took[f"{name}_processor_s"] = round(time.process_time() - used, 2)
    finally:
        database.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**took, "goal_s": GOAL_S, "peak_mib": peak // 1024, "own_mib": (peak - before) // 1024}


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, type=int, help="runs and cases, in this process")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.one:
        stored = pickle.loads((options.folder / "runs.pickle").read_bytes())
        print(json.dumps(asyncio.run(compare(options.folder, stored))))
        return
    figures = {}
    for run_count, case_count in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "runs.pickle").write_bytes(pickle.dumps(store(folder, run_count, case_count)))
            command = [sys.executable, __file__, "--one", str(run_count), str(case_count), "--folder", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures[f"{run_count} x {case_count}"] = json.loads(done.stdout)
            print(f"{run_count} x {case_count:,}", done.stdout.strip())
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
