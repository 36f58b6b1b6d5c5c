"""The document of a run that every report is made from: its head, and one row per case and repeat.

`docs/report.md` describes it.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.gates.stopping_text import stopped_sentence
from assay.metrics.core.explanations import score_message
from assay.metrics.core.turn_scores import TURNS, scores_by_turn
from assay.model.answers.agent_response import response_to_json
from assay.model.answers.approvals import approvals_to_json
from assay.model.judgement import judgement_to_json
from assay.model.plain import plain
from assay.parsing.names import writable
from assay.reports.document.preset_names import names_of_head, names_of_row, names_of_summary
from assay.reports.words.calibration_text import calibration_documents, calibration_sentences
from assay.reports.words.recommendations import recommendations
from assay.reports.words.selected_cases import selected_document, selection_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.run import MetricSummary, RowResult, Run, Score
    from assay.model.stopping import StoppedEarly
    from assay.specs.model import Spec

SCHEMA = "assay/results/1"


def head_document(
    run: Run,
    spec: Spec | None,
    ratings: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the report of a run without its rows.

    Args:
        run: With its summary.
        spec: Where it came from; None where only the run is known.
        ratings: By metric, further entries of its results that are known from the rows.
    """
    assert run.summary is not None, "only runs with a summary are reported"
    summary = run.summary
    kinds = {metric.name: metric.kind for metric in run.spec.metrics}
    dataset = writable(spec.dataset) if spec and spec.dataset else run.dataset.name
    return {
        "schema": SCHEMA,
        "timestamp": run.created_at,
        "prompt_path": run.spec.agent.options.get("prompt_file"),
        "test_cases_path": dataset,
        "test_cases_count": run.dataset.case_count,
        **names_of_head(run, dataset),
        "config": _settings(run),
        "run": _provenance(run, spec),
        "results": {
            metric.metric: {
                "kind": kinds.get(metric.metric, metric.metric),
                "version": metric.version or None,
                "unit": metric.unit,
                **_result(metric),
                "interval": plain(metric.interval),
                "effective_count": metric.effective_count,
                "pass_rate_interval": plain(metric.pass_rate_interval),
                **ratings.get(metric.metric, {}),
            }
            for metric in summary.metrics
        },
        "summary": {
            **verdict_document(run),
            "selection": selected_document(run),
            "failed_criteria": list(summary.failed_criteria),
            "skipped_criteria": list(summary.skipped_criteria),
            "recommendations": recommendations(run, spec.source if spec is not None else None),
            "partial": summary.partial,
            "total_count": run.counts.total_count,
            "finished_count": run.counts.finished_count,
            "passed_count": summary.passed_count,
            "decided_count": summary.decided_count,
            "pass_rate": summary.pass_rate,
            "pass_rate_interval": plain(summary.pass_rate_interval),
            "dependent": plain(summary.dependent),
            "agent_error_count": run.counts.agent_error_count,
            "interrupted_count": run.counts.interrupted_count,
            "asked_again_count": summary.asked_again_count,
            "scored_again_count": summary.scored_again_count,
            "latency": plain(summary.latency),
            "gates": plain(summary.gates),
            "categories": plain(summary.categories),
            "tags": plain(summary.tags),
            "omitted_category_count": summary.omitted_category_count,
            "omitted_tag_count": summary.omitted_tag_count,
            "repeats": plain(summary.repeats),
            "weighted": plain(summary.weighted),
            "judging": judging_document(run),
            "stopped_early": stopped_document(summary.stopped_early),
            **names_of_summary(run),
        },
    }


def _provenance(run: Run, spec: Spec | None) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.spec.name,
        "spec_name": run.spec.spec_name or run.spec.name,
        "source_run_id": run.spec.source_run_id or None,
        "labels": dict(run.spec.labels),
        "note": run.spec.note or None,
        "group_id": run.spec.group_id or None,
        "stopping": plain(run.spec.stopping),
        "state": run.state.value,
        "state_message": run.state_message or None,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "assay_version": run.assay_version,
        "spec_path": writable(spec.source) if spec and spec.source else None,
        "dataset": dataset_document(run),
        "selection": selection_document(run.spec.selection),
        "code": plain(run.spec.code),
    }


def verdict_document(run: Run) -> dict[str, Any]:
    """Return the verdict of a run with a summary: a word, the exit status, the reasons, and notes."""
    assert run.summary is not None, "only a summary has a verdict"
    return {
        "overall_status": run.summary.verdict.value,
        "exit_status": run.summary.exit_status,
        "reasons": list(run.summary.reasons),
        "notes": list(run.summary.notes),
    }


def dataset_document(run: Run) -> dict[str, Any]:
    """Return a run's dataset with the recognised reading of its file; that is null if there was no file."""
    reading = run.spec.dataset
    return {
        **plain(run.dataset),
        **({"name": reading.file} if reading else {}),
        "format": reading.format if reading else None,
        "sha256": (reading.sha256 or None) if reading else None,
        "mapping": dict(reading.mapping) if reading else None,
        "skipped_count": reading.skipped_count if reading else None,
        "left_out_count": reading.left_out_count if reading else None,
        "copy_count": reading.copy_count if reading else None,
        "warnings": list(reading.warnings) if reading else None,
    }


def row_document(row: RowResult, preset: str = "") -> dict[str, Any]:
    """Return a row of the report.

    Args:
        row: The row.
        preset: The preset of its run, whose names the row has; empty for none.
    """
    response = response_to_json(row.response) if row.response is not None else {}
    return {
        "case_id": row.case_id,
        "repeat": row.repeat,
        "category": row.category or None,
        "tags": list(row.tags),
        "weight": row.weight,
        "status": row.status.value,
        "passed": row.passed,
        "message": row.message or None,
        "question": row.input,
        "answer": row.response.text if row.response is not None else None,
        "references": list(row.references),
        "expected": dict(row.expected),
        "latency_ms": row.latency_ms,
        "started_at": row.started_at or None,
        "duration_ms": row.duration_ms,
        **names_of_row(row, preset),
        "scores": {score.metric: score_document(score) for score in row.scores},
        "response": {key: value for key, value in response.items() if key not in ("text", "status", "latency_ms")},
        **({"turns": [_turn(row, index) for index in range(len(row.turns))]} if row.turns else {}),
    }


def score_document(score: Score) -> dict[str, Any]:
    """Return a score; `reason` is a stable word, `message` a sentence. The scores of turns have their judgements."""
    judgements = [judgement_to_json(judgement) for judgement in score.judgements] if TURNS not in score.detail else []
    return {
        "value": score.value,
        "status": score.status.value,
        "passed": score.passed,
        "reason": score.reason or None,
        "message": score_message(score) or None,
        "detail": {key: value for key, value in score.detail.items() if key != TURNS},
        **({"judgements": judgements} if judgements else {}),
    }


def _turn(row: RowResult, index: int) -> dict[str, Any]:
    """Return a turn of a conversation, with its scores if turns were scored separately."""
    turn = row.turns[index]
    response = response_to_json(turn.response) if turn.response is not None else {}
    return {
        "turn_index": index,
        "question": turn.input,
        "answer": turn.response.text if turn.response is not None else None,
        "references": list(turn.references),
        **({"expected": dict(turn.expected)} if turn.expected else {}),
        "status": turn.response.status.value if turn.response is not None else None,
        "latency_ms": turn.response.latency_ms if turn.response is not None else None,
        **({"left_out": True} if turn.left_out else {}),
        "scores": {
            score.metric: score_document(part)
            for score in row.scores
            for turn_index, part in scores_by_turn(score)
            if turn_index == index
        },
        "response": {key: value for key, value in response.items() if key not in ("text", "status", "latency_ms")},
    }


def _settings(run: Run) -> dict[str, Any]:
    settings = dataclasses.asdict(run.spec)
    in_run = ("dataset", "selection", "labels", "note", "group_id", "stopping", "spec_name", "source_run_id", "code")
    for name in in_run:
        del settings[name]  # stands in `run`
    settings["approvals"] = approvals_to_json(run.spec.approvals)
    options = settings["agent"]["options"]
    for sent in ("headers", "metadata"):
        if options.get(sent):
            # Whatever was written there in place of ${NAME} may be a secret.
            options[sent] = {name: value if "${" in value else "[redacted]" for name, value in options[sent].items()}
    return settings


def _result(metric: MetricSummary) -> dict[str, Any]:
    return {
        "value": metric.value,
        "scored_count": metric.scored_count,
        "skipped_count": metric.skipped_count,
        "error_count": metric.error_count,
        "unanswered_count": metric.unanswered_count,
        "passed_count": metric.passed_count,
        "failed_count": metric.failed_count,
        "threshold": metric.threshold,
        "meets_threshold": metric.meets_threshold,
        "goal": metric.goal,
        "meets_goal": metric.meets_goal,
        "rule": metric.rule.value,
        "optional": metric.is_optional,
        **metric.detail,
    }


def judging_document(run: Run) -> dict[str, Any] | None:
    """Return the summary of the judging; null if no row has a verdict."""
    judging = run.summary.judging if run.summary is not None else None
    if judging is None:
        return None
    return {
        **plain(judging),
        "calibrations": calibration_documents(run),
        "calibration_messages": calibration_sentences(run),
    }


def stopped_document(stopped: StoppedEarly | None) -> dict[str, Any] | None:
    """Return when and why a run stopped early; null if it asked all cases."""
    return None if stopped is None else {**plain(stopped), "sentence": stopped_sentence(stopped)}
