"""Time and peak memory of writing each report format from a results.json, each in a separate process.

`--json FILE` saves the figures. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.saved_figures import save
from tests.support.reports.charts import summed
from tests.support.reports.report_documents import agent_error, failed, row

from assay.reports.writing import FORMATS

_MEASURE = """
import re, resource, sys, time
from pathlib import Path
from assay.reports.folder import ReportFolder
from assay.reports.document.report import report_of_file
from assay.reports.writing import write_formats
from assay.model.report_settings import ReportSettings

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

path, name, folder = sys.argv[1:]
with report_of_file(Path(path)) as report:
    found, start, cpu = ReportFolder(Path(folder), report.run_id), time.perf_counter(), cpu_s()
    write_formats(report, [ReportSettings(name)], found)
    used = time.perf_counter() - start, cpu_s() - cpu
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
size = sum(path.stat().st_size for path in found.written)
print(*used, int(peak[1]) / 1024 if peak else 0, size / 1024**2)
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=FORMATS, nargs="+", default=list(FORMATS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in options.rows:
            source = Path(folder, f"{count}.json")
            _write_document(source, count)
            for name in options.only:
                figure = figures[f"{name}, {count:,} rows"] = _figure(source, name, options.rounds, Path(folder))
                print(f"{name:<10} {count:>9,} rows  " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    save(options.json, figures)


def _write_document(path: Path, count: int) -> None:
    """Write a results.json in the layout of the JSON report, about 1 kB a row, with failures and errors."""
    draw = random.Random(1)
    rows = []
    for index in range(count):
        category = f"category {draw.randrange(40)}"
        changes: dict[str, Any] = {
            "category": category,
            "question": f"ما هي الفعالية رقم {index} في موسم الرياض؟",
            "answer": "The event takes place at the boulevard, every evening until the end of the month. " * 4,
            "latency_ms": draw.lognormvariate(7, 1),
        }
        name = f"case-{index:07d}"
        kind = draw.random()
        rows.append(
            agent_error(name, category=category) if kind < 0.02 else (failed if kind < 0.2 else row)(name, **changes)
        )
    document = summed(rows)
    lines = ",\n  ".join(json.dumps(document_row, ensure_ascii=False) for document_row in document.pop("rows"))
    head = json.dumps(document, ensure_ascii=False, indent=1).removesuffix("\n}")
    path.write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def _figure(source: Path, name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Return the medians of several rounds."""
    measured = []
    for number in range(rounds):
        target = folder / f"{source.stem}-{name}-{number}"
        command = [sys.executable, "-c", _MEASURE, str(source), name, str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured.append([float(value) for value in re.findall(r"[\d.]+", done.stdout)])
    wall, cpu, peak, size = (statistics.median(values) for values in zip(*measured, strict=True))
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "peak_mib": round(peak), "files_mib": round(size, 1)}


if __name__ == "__main__":
    main()
