"""Valid report documents for tests, with the fields that a test replaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import FAILED_STATUSES
from assay.model.report_settings import ReportSettings
from assay.process.deferred_imports import imported_when_called
from assay.reports.document.document import SCHEMA
from assay.reports.document.report import report_of_file
from assay.reports.folder import ReportFolder
from assay.reports.writing import write_formats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Rows = Sequence[Mapping[str, Any]]

HOSTILE = "\x1b[31mred\x00 \u202ecba <b>&\"',;\r\n\t|`@team #1"


def validator(schema: Mapping[str, Any]) -> Any:
    """Return jsonschema's validator of a schema, which must be sound."""
    # Its grammar of IRIs, which no schema here needs, takes a second to import.
    with imported_when_called("rfc3987_syntax", "is_valid_syntax"):
        import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def ends(low: float, high: float) -> dict[str, float]:
    """Return an interval."""
    return {"low": low, "high": high}


def score(value: float | None, *, passed: bool | None = None, **changes: Any) -> dict[str, Any]:
    """Return a score; a score without a value is skipped."""
    status = "skipped" if value is None else "scored"
    return {
        "value": value,
        "status": status,
        "passed": passed,
        "reason": None,
        "message": None,
        "detail": {},
        **changes,
    }


def row(case_id: str = "c1", **changes: Any) -> dict[str, Any]:
    """Return a row that passes."""
    return {
        "case_id": case_id,
        "repeat": 1,
        "category": None,
        "tags": [],
        "weight": 1.0,
        "status": "success",
        "passed": True,
        "message": None,
        "question": "What is it?",
        "answer": "It is that.",
        "references": ["That."],
        "latency_ms": 1234.5,
        "started_at": "2026-11-23T16:41:11.687Z",
        "duration_ms": 1300.0,
        "scores": {"similarity": score(0.8, passed=True)},
        "response": {},
        **changes,
    }


def failed(case_id: str, value: float = 0.5, **changes: Any) -> dict[str, Any]:
    """Return a row that fails by its similarity."""
    detail = {"threshold": 0.75}
    said = {"passed": False, "message": f"similarity {value:g} < 0.75"}
    return row(case_id, **{**said, "scores": {"similarity": score(value, passed=False, detail=detail)}, **changes})


def agent_error(case_id: str, error: str = "no route", **changes: Any) -> dict[str, Any]:
    """Return a row whose agent failed."""
    said = {"status": "error", "passed": False, "message": f"agent error (raised): {error}", "answer": ""}
    return row(case_id, **{**said, "latency_ms": None, "scores": {"similarity": score(None)}, **changes})


def interrupted(case_id: str, **changes: Any) -> dict[str, Any]:
    """Return a row whose agent waits for a person."""
    waits = {"kind": "approval", "tool": "refund", "arguments_json": '{"amount": 5}'}
    said = {
        "status": "interrupted",
        "message": 'interrupted: waits for approval of refund({"amount": 5})',
        "answer": "May I refund 5?",
        "response": {"interrupts": [waits]},
    }
    return agent_error(case_id, **{**said, **changes})


def metric(value: float | None = 0.8, **changes: Any) -> dict[str, Any]:
    """Return the entry of a metric in the results."""
    return {
        "kind": "semantic_similarity",
        "unit": "",
        "value": value,
        "scored_count": 1,
        "skipped_count": 0,
        "error_count": 0,
        "unanswered_count": 0,
        "passed_count": 1,
        "failed_count": 0,
        "threshold": 0.75,
        "meets_threshold": True,
        "goal": None,
        "meets_goal": None,
        "rule": "at_least",
        "interval": ends(0.7, 0.9),
        **changes,
    }


def gate(expression: str = "pass_rate >= 0.5", outcome: str = "pass", **changes: Any) -> dict[str, Any]:
    """Return a gate."""
    empty = {"message": "", "meets_goal": None, "note": "", "source": "gate"}
    return {"expression": expression, "outcome": outcome, "actual": 0.8, **empty, **changes}


def document(rows: Rows, results: Mapping[str, Any] | None = None, **summary: Any) -> dict[str, Any]:
    """Return the report document of some rows.

    Args:
        rows: In dataset order.
        results: By metric; one metric without it.
        summary: What differs in the summary.
    """
    results = {"similarity": metric()} if results is None else results
    passed, decided = sum(each["passed"] is True for each in rows), sum(each["passed"] is not None for each in rows)
    return {
        "schema": SCHEMA,
        "timestamp": "2026-11-23T16:41:11.588Z",
        "prompt_path": None,
        "test_cases_path": "data/cases.json",
        "test_cases_count": len(rows),
        "config": {
            "name": "manual",
            "agent": {"adapter": "python", "target": "agent:answer", "options": {}},
            "metrics": [{"name": name, "kind": each["kind"], "parameters": {}} for name, each in results.items()],
            "gates": ["pass_rate >= 0.5"],
            "repeats": max((each["repeat"] for each in rows), default=1),
            "preset": "",
            "judge": None,
        },
        "run": {
            "run_id": "manual-20261123-164111-0c86e8",
            "name": "manual",
            "labels": {},
            "note": None,
            "state": "completed",
            "state_message": None,
            "created_at": "2026-11-23T16:41:11.588Z",
            "started_at": "2026-11-23T16:41:11.675Z",
            "ended_at": "2026-11-23T16:41:13.175Z",
            "assay_version": "0.1.0",
            "spec_path": "assay.yaml",
            "dataset": {
                "dataset_id": "76ed26d1df2b6aff",
                "name": "cases.json",
                "format": "plain/json",
                "case_count": len(rows),
                "sha256": "a079e2f84ffdd5a8",
            },
            "selection": None,
        },
        "results": dict(results),
        "summary": {
            "overall_status": "PASS",
            "exit_status": 0,
            "reasons": ["the only gate holds"],
            "notes": [],
            "failed_criteria": [],
            "skipped_criteria": [],
            "recommendations": [],
            "partial": False,
            "total_count": len(rows),
            "finished_count": len(rows),
            "passed_count": passed,
            "decided_count": decided,
            "pass_rate": passed / decided if decided else None,
            "pass_rate_interval": ends(0.4, 0.9) if decided else None,
            "agent_error_count": sum(each["status"] in FAILED_STATUSES for each in rows),
            "interrupted_count": sum(each["status"] == "interrupted" for each in rows),
            "latency": {
                "answer_count": len(rows),
                "mean_ms": 1234.5,
                "p50_ms": 1200.0,
                "p95_ms": 1500.0,
                "max_ms": 2000.0,
                "timeout_count": 0,
            },
            "gates": [gate()],
            "categories": [],
            "tags": [],
            "omitted_category_count": 0,
            "omitted_tag_count": 0,
            "repeats": None,
            "weighted": None,
            "judging": None,
            **summary,
        },
        "rows": list(rows),
    }


def written(folder: Path, found: Mapping[str, Any], name: str, **options: Any) -> list[Path]:
    """Write one format of a document's report into a folder, as `assay report` does; return its files."""
    source = folder / "source.json"
    source.write_text(json.dumps(found), encoding="utf-8")
    with report_of_file(source) as report:
        goal = ReportFolder(folder / "out", report.run_id)
        write_formats(report, (ReportSettings(name, options),), goal)
        goal.attempts.raise_if_all_failed()
    return goal.written
