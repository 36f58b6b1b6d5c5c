"""Rows per second of metric arithmetic, compared with a common package or the plain definition.

Each figure is the best of several rounds over the same rows in one process; what is compared is measured in
turns, so that both see the same machine. `--json FILE` saves the figures. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.saved_figures import save

from assay.metrics import build_metric, complete_parameters
from assay.metrics.consistency import consistency
from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec

WORDS = (
    "The tenders that were published in the northern region have been evaluated by committees, whose decisions are "
    "final; relational databases hold their contracts, suppliers and payments since 2019"
)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=MEASURES, help="measure only this metric")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for name, measure in MEASURES.items():
        if options.only not in (None, name):
            continue
        figures[name] = measure(options.rounds)
        print(f"{name:<45} " + "  ".join(f"{key} {value:,}" for key, value in figures[name].items()), flush=True)
    save(options.json, figures)


def exact_match(rounds: int) -> dict[str, float]:
    """Rows per second of short answers."""
    rows = [
        Row(Case(f"{i}", (Turn("?", references=(f"Answer {i}",)),)), AgentResponse(text=f" answer {i % 900}"))
        for i in range(1000)
    ]
    return {"rows_per_s": rate(scorer("exact_match"), rows, rounds)}


def retrieval_accuracy(rounds: int) -> dict[str, float]:
    """Rows per second of queries over a dozen tables."""
    rows = [
        Row(
            Case(f"{i}", (Turn("?"),), category="count", expected={"expected_table": f"table_{i % 12}"}),
            AgentResponse(
                sql=f"SELECT COUNT(*) AS n FROM table_{i % 13} WHERE region = 'north' AND year = {i}", data_rows=i % 3
            ),
        )
        for i in range(1000)
    ]
    return {"rows_per_s": rate(scorer("retrieval_accuracy"), rows, rounds)}


def generation_fidelity(rounds: int) -> dict[str, float]:
    """Rows per second of Arabic sentences with a number."""
    rows = [
        Row(
            Case(f"{i}", (Turn("?"),)),
            AgentResponse(text=f"يوجد حالياً {i} مناقصة مطروحة في منطقة الرياض.", data_rows=1),
        )
        for i in range(1000)
    ]
    return {"rows_per_s": rate(scorer("generation_fidelity"), rows, rounds)}


def rouge(rounds: int) -> dict[str, float]:
    """Rows per second of ROUGE-1, -2 and -L on texts of 100 words, and how many times rouge-score's that is."""
    from rouge_score import rouge_scorer

    draw = random.Random(1)
    texts = [
        (" ".join(draw.choices(WORDS.split(), k=100)), " ".join(draw.choices(WORDS.split(), k=100))) for _ in range(200)
    ]
    rows = [
        Row(Case("r", (Turn("?", references=(reference,)),)), AgentResponse(text=text)) for reference, text in texts
    ]
    usual = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    ours = theirs = 0
    for _ in range(rounds):
        ours = max(ours, rate(scorer("rouge"), rows, 1))
        theirs = max(theirs, rate(lambda pair: usual.score(*pair), texts[:40], 1))
    return {"rows_per_s": ours, "rouge_score_rows_per_s": theirs, "ratio": round(ours / theirs, 1)}


def consistency_measure(rounds: int) -> dict[str, float]:
    """Milliseconds for the consistency of 2,000 vectors of 384 numbers, and the same by comparing every pair."""
    import numpy as np

    vectors = np.random.default_rng(1).standard_normal((2000, 384)).astype(np.float32)
    ours = loop = matrix = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        value = consistency(list(vectors))
        ours = min(ours, time.perf_counter() - started)
        started = time.perf_counter()
        expected = by_matrix(vectors)
        matrix = min(matrix, time.perf_counter() - started)
    started = time.perf_counter()
    looped = by_double_loop(vectors)
    loop = time.perf_counter() - started
    assert value is not None
    return {
        "ms": round(1000 * ours, 1),
        "double_loop_ms": round(1000 * loop, 1),
        "matrix_ms": round(1000 * matrix, 1),
        "ratio": round(loop / ours),
        "difference": max(abs(value - expected), abs(value - looped)),
    }


def by_double_loop(vectors: Any) -> float:
    """Return the mean cosine of all pairs, computed as defined."""
    import numpy as np

    units = [vector / np.linalg.norm(vector) for vector in vectors.astype(np.float64)]
    total = 0.0
    for index, unit in enumerate(units):
        for other in units[index + 1 :]:
            total += float(unit @ other)
    return total / (len(units) * (len(units) - 1) / 2)


def by_matrix(vectors: Any) -> float:
    """Return the same by multiplying all vectors with each other: 32 MB for 2,000 vectors."""
    import numpy as np

    units = vectors.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    count = len(units)
    return (float((units @ units.T).sum()) - count) / (count * (count - 1))


def scorer(kind: str, **parameters: Any) -> Callable[[Row], Any]:
    """Return the row function of a metric."""
    metric: Metric = build_metric(MetricSpec(kind, complete_parameters(kind, parameters, where=kind)))
    return metric.score


def rate(work: Callable[[Any], Any], items: Sequence[Any], rounds: int) -> int:
    """Return items per second in the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for item in items:
            work(item)
        best = min(best, time.perf_counter() - started)
    return round(len(items) / best)


MEASURES: dict[str, Callable[[int], dict[str, float]]] = {
    "exact match": exact_match,
    "retrieval accuracy": retrieval_accuracy,
    "generation fidelity": generation_fidelity,
    "ROUGE-1, -2, -L on 100 words": rouge,
    "consistency of 2,000 answers": consistency_measure,
}

if __name__ == "__main__":
    main()
