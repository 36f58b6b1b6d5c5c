"""The scores of a row: each metric of a run is computed after its inputs."""

from __future__ import annotations

import dataclasses
import logging
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from assay.metrics.core.explanations import explained
from assay.metrics.core.turn_scores import conversation_score, fitting, scores_turns
from assay.metrics.jury.jury_scores import score_by_jury
from assay.model.run import Score, ScoreStatus
from assay.statistics.thresholds import holds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.score import Metric, Row

_log = logging.getLogger(__name__)


def in_dependency_order(metrics: Sequence[Metric]) -> Sequence[Metric]:
    """Return the metrics with each after its inputs, otherwise in the given order.

    Raises:
        graphlib.CycleError: Two metrics read each other.
    """
    if not any(getattr(metric, "inputs", ()) for metric in metrics):
        return metrics
    by_name = {metric.name: metric for metric in metrics}
    graph = {metric.name: [name for name in getattr(metric, "inputs", ()) if name in by_name] for metric in metrics}
    return [by_name[name] for name in TopologicalSorter(graph).static_order()]


def _by_own_threshold(metric: Metric, row: Row, score: Score) -> Score:
    """Return the score with the verdict by the case's own threshold for the metric, if it has one.

    The checks of a case apply their threshold themselves; an agent error stays a failure.
    """
    own = row.case.thresholds.get(metric.name)
    if own is None or score.value is None or metric.info.name == "assertions":
        return score
    if row.response.is_failed:
        return score
    passed = holds(score.value, metric.info.rule, own)
    return dataclasses.replace(score, passed=passed, detail={**score.detail, "threshold": own})


def score_row(metrics: Sequence[Metric], row: Row) -> tuple[Score, ...]:
    """Return the row's scores in the order of the given metrics; conversations are scored turn by turn."""
    ordered = in_dependency_order(metrics)
    if row.turns:
        scores = _score_conversation(ordered, row)
        return tuple(scores[metric.name] for metric in metrics)
    if ordered is metrics:
        return tuple(_score(metric, row) for metric in metrics)
    scores = _score_in_order(ordered, row)
    return tuple(scores[metric.name] for metric in metrics)


def _score_in_order(ordered: Sequence[Metric], row: Row, known: Mapping[str, Score] | None = None) -> dict[str, Score]:
    """Return the scores by name; each metric reads those before it, and known scores are kept."""
    scores = dict(known or {})
    row = dataclasses.replace(row, scores=scores)
    for metric in ordered:
        if metric.name not in scores:
            scores[metric.name] = _score(metric, row)
    return scores


def _score_conversation(ordered: Sequence[Metric], row: Row) -> dict[str, Score]:
    """Return the scores of a conversation by name.

    Metrics that compare an answer with what its turn expects are computed on every turn, with what they read; all
    others once, on the last answer.
    """
    by_turn = [metric for metric in ordered if scores_turns(metric)]
    wanted = {metric.name for metric in by_turn}
    for metric in reversed(ordered):
        if metric.name in wanted:
            wanted.update(getattr(metric, "inputs", ()))
    turn_scores = [_score_in_order([metric for metric in ordered if metric.name in wanted], turn) for turn in row.turns]
    known = {
        metric.name: conversation_score(metric, [scores[metric.name] for scores in turn_scores], row.turn_score)
        for metric in by_turn
    }
    return _score_in_order(ordered, row, fitting(known))


def _score(metric: Metric, row: Row) -> Score:
    try:
        return explained(metric, row, _by_own_threshold(metric, row, score_by_jury(metric, row)))
    except MemoryError:
        return Score(metric=metric.name, status=ScoreStatus.ERROR, reason="scoring_memory")
    except Exception:  # noqa: BLE001 - the boundary of a case: a defect costs one score
        _log.exception("metric failed: metric=%s case=%s", metric.name, row.case.case_id)
        return Score(metric=metric.name, status=ScoreStatus.ERROR, reason="metric_failed")
