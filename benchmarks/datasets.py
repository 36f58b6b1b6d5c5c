"""Rate and memory of checking a dataset, compared with reading each line with `json.loads`.

Rates are per second of processor time, so that other work on the machine hardly affects them. `--json FILE` saves the
figures. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.saved_figures import save

_MEASURE = """
import json, re, resource, sys
from pathlib import Path

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

path, what = sys.argv[1:]
if what == "check":
    from assay.datasets import open_dataset
    start = cpu_s()
    count = open_dataset(path).check().case_count
else:
    start, count = cpu_s(), 0
    with open(path, encoding="utf-8", newline="\\n") as file:
        for line in file:
            json.loads(line)
            count += 1
used_s = cpu_s() - start
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(count / used_s, int(peak[1]) / 1024 if peak else 0)
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, has_id in (("with ids", True), ("ids derived", False)):
            path = Path(folder, "cases.jsonl")
            _write(path, options.cases, has_id=has_id)
            figures[name] = _figure(path, options.cases, options.repeats)
            print(f"{name:<12} " + "  ".join(f"{key} {value}" for key, value in figures[name].items()))
    save(options.json, figures)


def _write(path: Path, count: int, *, has_id: bool) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            name = f'"id": "case-{number:07d}", ' if has_id else ""
            file.write(
                f'{{{name}"question": "ما هي الفعالية رقم {number} في موسم الرياض؟", '
                f'"answer": "الفعالية رقم {number} تقام في البوليفارد", "category": "events"}}\n'
            )


def _figure(path: Path, cases: int, repeats: int) -> dict[str, Any]:
    """Return the best of several rounds, in which checking and `json.loads` take turns."""
    checks, loads = [], []
    for _ in range(repeats):
        loads.append(_measure(path, "loads"))
        checks.append(_measure(path, "check"))
    rate, plain = max(rate for rate, _ in checks), max(rate for rate, _ in loads)
    return {
        "cases": cases,
        "file_mib": round(path.stat().st_size / 1024**2),
        "cases_per_cpu_s": round(rate),
        "json_loads_per_cpu_s": round(plain),
        "ratio": round(rate / plain, 2),
        "peak_mib": round(max(peak for _, peak in checks)),
    }


def _measure(path: Path, what: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(path), what], capture_output=True, text=True, check=True)
    numbers = re.findall(r"[\d.]+", done.stdout)
    return float(numbers[0]), float(numbers[1])


if __name__ == "__main__":
    main()
