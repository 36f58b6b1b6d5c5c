"""Memory does not grow with the number of cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_READ = """
import re, sys
from pathlib import Path
from assay.datasets import open_dataset
dataset = open_dataset(sys.argv[1])
dataset.check()
count = sum(1 for case in dataset.cases())
# Not ru_maxrss, which begins with what the parent process had.
print(count, *re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()))
"""


def _peak_kib(path: Path) -> int:
    done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[1])


def _write(path: Path, count: int) -> Path:
    suffix = path.suffix
    with path.open("w", encoding="utf-8") as file:
        if suffix == ".csv":
            file.write("question,answer,note\n")
        for number in range(count):
            text = f"ما هي الفعالية رقم {number}؟"
            match suffix:
                case ".csv":
                    file.write(f'"{text}",answer {number},{"x" * 700}\n')
                case ".yaml":
                    file.write(f'- question: "{text}"\n  note: {"x" * 700}\n')
                case ".jsonl":
                    file.write(f'{{"question": "{text}", "note": "{"x" * 700}"}}\n')
                case _:
                    start = "," if number else '{"a": 1, "cases": ['
                    file.write(f'{start}{{"question": "{text}", "note": "{"x" * 700}"}}')
        if suffix == ".json":
            file.write("]}")
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak where Linux keeps it")
@pytest.mark.parametrize(
    ("suffix", "few", "many"),
    [(".jsonl", 1_500, 10_000), (".json", 1_500, 10_000), (".csv", 1_500, 10_000), (".yaml", 400, 2_500)],
)
def test_memory_does_not_grow(tmp_path: Path, suffix: str, few: int, many: int) -> None:
    """Six times the cases take no more memory than a few bytes per id."""
    small, large = (_peak_kib(_write(tmp_path / f"{count}{suffix}", count)) for count in (few, many))
    assert large - small < 3 * 1024
