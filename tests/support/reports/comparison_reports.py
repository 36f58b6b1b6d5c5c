"""Comparisons for tests: runs written as short strings, compared as the command does."""

from __future__ import annotations

import contextlib
import json
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tests.support.reports.report_documents import document, metric, row, score

from assay.comparison.compare import compare_runs, with_floors, with_questions
from assay.comparison.decision import DecisionRules, decide
from assay.comparison.model import ComparisonSettings, NoiseFloor
from assay.model.interval import Interval
from assay.reports.comparison.document.compared_run import compared_run
from assay.reports.comparison.document.comparison_report import ComparisonReport, report_of_runs
from assay.reports.document.report import report_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

COMPARISON_SCHEMA = json.loads((files("assay.reports") / "comparison.schema.json").read_text("utf-8"))
TIMESTAMP = "2026-11-23T18:00:00.000+00:00"
JUDGING = {
    "verdict_count": 20,
    "asked_count": 20,
    "cached_count": 0,
    "failed_count": 1,
    "cost_usd": 0.1,
    "batched_count": 0,
    "fingerprints": ["3f2a"],
}


def run_document(name: str, marks: str, *, prefix: str = "", **changes: Any) -> dict[str, Any]:
    """Return the report document of a run over the cases c0, c1 and so on.

    Args:
        name: The name of its prompt file.
        marks: One character per case: a rating from 1 to 5, which passes from 3; "e" for an agent error; "-" for a case
            that the run lacks.
        prefix: The prefix of questions and case ids.
        changes: Fields of the summary to replace.
    """
    rows = [_row(index, mark, prefix, len(name)) for index, mark in enumerate(marks) if mark != "-"]
    right = sum(each["passed"] for each in rows) / len(rows)
    rated = [value for each in rows if (value := each["scores"]["quality"]["value"]) is not None]
    results = {
        "accuracy": metric(right, kind="exact_match", unit="%", version="1", threshold=0.6),
        "quality": metric(sum(rated) / len(rated), kind="quality", version="1", threshold=3.5),
    }
    report = document(rows, results, **{"judging": JUDGING, **changes})
    report["prompt_path"] = f"prompts/{name}.md"
    report["run"]["run_id"] = f"manual-20261123-164111-{name if name.isascii() else name.encode().hex()[:12]}"
    report["config"]["agent"] = {"adapter": "openai", "target": "model-1", "options": {"prompt_file": f"{name}.md"}}
    report["config"]["judges"] = [{"name": "judge", "members": [{"provider": "scripted", "model": "judge-1"}]}]
    return report


def _row(index: int, mark: str, prefix: str, length: int) -> dict[str, Any]:
    common = {
        "question": f"{prefix}Question {index}?",
        "references": [f"Reference {index}."],
        "category": ("count", "list")[index % 2],
    }
    case_id = f"{prefix}c{index}"
    if mark == "e":
        scores = {"accuracy": score(0.0, passed=False), "quality": score(None)}
        failed = {"status": "error", "passed": False, "message": "agent error (raised): no route", "answer": ""}
        return row(case_id, **common, **failed, scores=scores, latency_ms=None)
    value = int(mark)
    right = value >= 3
    scores = {"accuracy": score(float(right), passed=right), "quality": score(float(value), passed=right)}
    said = {
        "passed": right,
        "message": None if right else "accuracy 0 < 1",
        "answer": f"Answer {mark} of {length} words.",
    }
    return row(case_id, **common, **said, scores=scores, latency_ms=1000.0 + 10 * index + length)


A = "55425244134525344252"
B = "55545545444545354454"
C = "45425254134525244251"


@contextmanager
def compared(
    folder: Path,
    documents: Sequence[Mapping[str, Any]],
    *,
    rules: DecisionRules | None = None,
    noise_floors: Mapping[str, NoiseFloor] | None = None,
    **settings: Any,
) -> Iterator[ComparisonReport]:
    """Yield the report of a comparison of runs by their documents.

    Args:
        folder: Where the documents are written.
        documents: The report documents of the runs.
        rules: The rules of the decision.
        noise_floors: The noise floors by metric, as `with_floors` takes them.
        settings: The settings of the comparison.
    """
    made = ComparisonSettings(**settings)
    with contextlib.ExitStack() as stack:
        reports = []
        for index, found in enumerate(documents):
            path = folder / f"run-{index}.json"
            path.write_text(json.dumps(found), encoding="utf-8")
            reports.append(stack.enter_context(report_of_file(path)))
        runs = [compared_run(report, made) for report in reports]
        questions = {row["case_id"]: row["question"] for row in reports[0].rows()}
        comparison = with_questions(with_floors(compare_runs(runs, made), noise_floors or {}), questions)
        comparison = replace(comparison, assay_version="0.1.0")
        decision = decide(comparison, rules or DecisionRules())
        yield replace(report_of_runs(comparison, decision, reports), timestamp=TIMESTAMP)


def two() -> list[dict[str, Any]]:
    """Two runs; the second is better."""
    return [run_document("baseline", A), run_document("candidate", B)]


def three() -> list[dict[str, Any]]:
    """Three runs."""
    return [*two(), run_document("third", C)]


def filled(value: Any, payload: str) -> Any:
    """Return a comparison, or a part of it, in which a payload replaces all text of people, models and datasets.

    Names of metrics keep their text before the payload, so that they stay distinct.
    """
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: _filled(field.name, getattr(value, field.name), payload) for field in fields(value)}
        return replace(value, **changed)
    if isinstance(value, Interval):
        return value
    if isinstance(value, dict):
        return {f"{key}{payload}" if key in _METRICS else key: filled(one, payload) for key, one in value.items()}
    return tuple(filled(one, payload) for one in value) if isinstance(value, tuple) else value


def _filled(name: str, value: Any, payload: str) -> Any:
    if name in ("metric", "primary") and isinstance(value, str):
        return value + payload
    if name in _UNTRUSTED and isinstance(value, str):
        return payload
    if name in ("values", "fingerprints", "improvements") and isinstance(value, tuple):
        return tuple(payload for _ in value)
    return value if name in ("settings", "random_draws") else filled(value, payload)


_METRICS = ("accuracy", "quality", "pass_rate", "latency", "tokens", "cost")
_UNTRUSTED = ("name", "run_id", "prompt_path", "dataset_name", "reason", "message", "path", "case_id", "category",
              "case_id_b", "question")  # fmt: skip


def stopped(*, decided: bool = True, **changes: Any) -> list[dict[str, Any]]:
    """Two runs of a group stopped by the always-valid rule in favour of the second.

    Args:
        decided: Whether the rule has decided.
        changes: Fields of the stop to replace in both runs.
    """
    rule = changes.get("rule", "always-valid")
    stopping = {"rule": rule, "metric": "accuracy", "variants": ["old", "new"], "cases": 200, "seed": 5,
                "alpha": 0.05, "low": 0.0, "high": 1.0, "higher_is_better": True}  # fmt: skip
    stop = {"rule": "always-valid", "metric": "accuracy", "winner": "new", "case_count": 18, "pair_count": 18,
            "look": None, "z": None, "bound": None, "p": 0.0123, "asked_count": 20, "planned_count": 200,
            "saved_call_count": 180, "saved_tokens": 900.0, "saved_usd": 0.5, "saved_ms": 60_000.0,
            "sentence": "said", **changes}  # fmt: skip
    found = []
    for name, marks, variant in (("baseline", A, "old"), ("candidate", B, "new")):
        made = run_document(name, marks, stopped_early=stop if decided else None)
        made["run"] |= {"group_id": "g", "labels": {"variant": variant}, "stopping": stopping}
        found.append(made)
    return found
