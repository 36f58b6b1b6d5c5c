"""Measure the error rates: `python -m benchmarks.error_rates`.

Exits with 1 if a rate breaks its bound. `--json FILE` saves the rates; docs/statistics.md explains them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.error_rates.rates import Rate
from benchmarks.error_rates.themes import THEMES, measure, settings

SEED = 36


def main() -> None:
    """Measure every setting and print its rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("themes", nargs="*", choices=[[], *THEMES], help="measure only these themes")
    parser.add_argument("--quick", action="store_true", help="a few settings with few trials, as `make test` does")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of trials; default 1")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="save the rates; keeps the rates of other themes")
    arguments = parser.parse_args()
    broken: list[str] = []
    documents: list[dict[str, Any]] = []
    for number, rates, seconds in measured(arguments):
        setting = settings()[number]
        documents.append(
            {"theme": setting.theme, "setting": setting.name, "rates": [_document(rate) for rate in rates]}
        )
        print(f"{setting.title}  ({seconds:.1f} s)")
        for rate in rates:
            print(f"    {_line(rate)}", flush=True)
            if not rate.is_kept():
                broken.append(f"{setting.title}: {_line(rate)}")
        if arguments.json:
            _save(arguments.json, arguments.seed, documents)
    for line in broken:
        print(f"bound broken: {line}", file=sys.stderr)
    sys.exit(bool(broken))


def measured(arguments: argparse.Namespace) -> Iterator[tuple[int, Sequence[Rate], float]]:
    """Yield the number of each setting, its rates and the seconds they took."""
    numbers, trials = [], []
    for number, setting in enumerate(settings()):
        count = setting.quick if arguments.quick else max(1, round(setting.trials * arguments.scale))
        if count and (not arguments.themes or setting.theme in arguments.themes):
            numbers.append(number)
            trials.append(count)
    seeds = [arguments.seed] * len(numbers)
    if arguments.processes < 2:
        yield from map(measure, numbers, trials, seeds)
        return
    # Each process is limited to one thread for matrices: otherwise the processes would compete for the processors.
    os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(measure, numbers, trials, seeds)


def _line(rate: Rate) -> str:
    error = f" ± {rate.error:.2%} ({rate.trials:,} trials)" if rate.trials else " (exact)"
    bounds = "" if rate.at_most is None else f"  at most {rate.at_most:.1%}"
    bounds += "" if rate.at_least is None else f"  at least {rate.at_least:.1%}"
    value = f"{rate.value:7.2%}" if rate.value <= 1 else f"{rate.value:8g}"
    return f"{rate.measure:<40} {value}{error}{bounds}"


def _document(rate: Rate) -> dict[str, object]:
    document = {key: value for key, value in asdict(rate).items() if value is not None}
    document["value"] = round(rate.value, 6)
    return document | {"error": round(rate.error, 6)}


def _save(path: Path, seed: int, documents: list[dict[str, Any]]) -> None:
    measured_themes = {entry["theme"] for entry in documents}
    kept = json.loads(path.read_text(encoding="utf-8"))["rates"] if path.exists() else []
    kept = [entry for entry in kept if entry["theme"] not in measured_themes]
    order = list(THEMES)
    rates = sorted([*kept, *documents], key=lambda entry: order.index(entry["theme"]))
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in rates)
    path.write_text(f'{{\n "seed": {seed},\n "rates": [\n{lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
