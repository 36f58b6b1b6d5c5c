"""The reports of documents and comparisons as they were reviewed, in tests/golden; write them anew with

    python -m tests.support.reports.golden_reports

and read what `git diff` shows.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.reports.comparison_reports import compared, three, two
from tests.support.reports.report_documents import (
    HOSTILE,
    agent_error,
    document,
    failed,
    gate,
    interrupted,
    metric,
    row,
    score,
    written,
)

from assay.comparison.model import NoiseFloor
from assay.reports.annotations import annotation_lines
from assay.reports.comparison.formats.short_text import short_lines
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.comparison.writing import write_comparison
from assay.reports.document.report import report_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GOLDEN = Path(__file__).parents[2] / "golden"
FORMATS = ("csv", "markdown", "junit")


def plain() -> dict[str, Any]:
    """A run with rows of every outcome, repeats, and Arabic and hostile texts."""
    broken = {"similarity": score(None, status="error", reason="embedder_down")}
    arabic = {
        "question": "كم عدد المناقصات المطروحة؟",
        "answer": "176 مناقصة، حتى 31 مارس 2026.",
        "references": ["176"],
    }
    rows = [
        row("plain", category="count"),
        row("plain", category="count", repeat=2, latency_ms=900.0),
        failed("sometimes", 0.61, category="count", **arabic),
        row("sometimes", category="count", repeat=2, **arabic),
        agent_error("unreachable"),
        agent_error("unreachable", repeat=2),
        interrupted("waits"),
        interrupted("waits", repeat=2),
        row("broken", passed=None, scores=broken, message="similarity could not be computed: embedder_down"),
        row("broken", passed=None, scores=broken, message="similarity could not be computed: embedder_down", repeat=2),
        failed(HOSTILE, 0.1, question=HOSTILE, answer=f"=1+1{HOSTILE}", references=["-1.5", HOSTILE]),
        failed(HOSTILE, 0.2, question=HOSTILE, answer="-1.5", repeat=2),
    ]
    return document(
        rows,
        {
            "similarity": metric(
                0.4925,
                scored_count=6,
                skipped_count=2,
                error_count=2,
                passed_count=3,
                failed_count=3,
                meets_threshold=False,
            )
        },
        overall_status="FAIL",
        exit_status=1,
        reasons=["similarity >= 0.75 does not hold"],
        recommendations=["similarity misses its threshold: it is 0.4925, not at least 0.75; 3 rows failed it."],
        gates=[gate("pass_rate >= 0.3"), gate("similarity >= 0.75", "fail", actual=0.4925)],
        pass_rate_interval=None,
    )


def sql() -> dict[str, Any]:
    """An unfinished run of the preset sql-agent."""
    scores = {
        "retrieval_accuracy": score(1.0, passed=True, detail={"expected_tables": ["tenders"]}),
        "generation_fidelity": score(1.0, passed=True),
        "latency": score(1.2345),
    }
    text = {"question": "كم مشروعاً متعثراً لدينا؟", "answer": "141 مشروعاً"}
    rows = [row("c1", category="count", scores=scores, response={"sql": "SELECT 1", "data_rows": 1}, **text)]
    units = {"retrieval_accuracy": "%", "generation_fidelity": "%", "latency": "s"}
    results = {name: metric(1.0, kind=name, unit=unit, threshold=None) for name, unit in units.items()}
    report = document(rows, results, partial=True, total_count=20)
    report["config"]["preset"] = "sql-agent"
    return report


DOCUMENTS = {"plain": plain, "sql": sql}


def reports(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file.

    Args:
        folder: An empty one, for the reports.
    """
    for name, made in DOCUMENTS.items():
        below = folder / name
        below.mkdir()
        found = made()
        for format_name in FORMATS:
            for path in written(below, found, format_name):
                yield f"{name}/{path.name}", path.read_bytes()
        yield f"{name}/annotations.txt", _annotations(below / "source.json")
    for name, documents in (("two-runs", two()), ("three-runs", three())):
        yield from _comparison(folder / name, documents, name)


def _comparison(below: Path, documents: Sequence[Mapping[str, Any]], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the text reports and the console output of a comparison."""
    below.mkdir()
    with compared(
        below, documents, noise_floors={"accuracy": NoiseFloor(0.04, 0.125, 32)} if len(documents) == 2 else None
    ) as report:
        yield f"{name}/short.txt", "".join(f"{line}\n" for line in short_lines(report)).encode()
        yield f"{name}/console.txt", "".join(f"{line}\n" for line in comparison_lines(report)).encode()
        for path in write_comparison(report, below / "out", ["markdown", "csv"]).written:
            yield f"{name}/{path.name}", path.read_bytes()


def _annotations(source: Path) -> bytes:
    with report_of_file(source) as report:
        return "".join(f"{line}\n" for line in annotation_lines(report, {})).encode()


def expected() -> Mapping[str, bytes]:
    """Return the reviewed files by name."""
    return {str(path.relative_to(GOLDEN)): path.read_bytes() for path in GOLDEN.rglob("*.*")}


def main() -> None:
    """Rewrite the files."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in reports(Path(folder)):
            path = GOLDEN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
