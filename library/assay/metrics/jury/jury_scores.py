"""The score of a row that a jury judged: the mean of the valid scores that the metric reads from the verdicts.

The score's judgements have each judge's value, or the reason for its absence, in the order of the spec. The jury's
score alone decides whether the row passes.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from assay.metrics.core.score import not_computed, scored_by_threshold
from assay.metrics.jury.jury import jury_score
from assay.model.run import ScoreStatus
from assay.statistics.exact_sum import exact_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.metrics.core.score import Metric, Row
    from assay.model.judgement import Judgement
    from assay.model.run import Score


def score_by_jury(metric: Metric, row: Row) -> Score:
    """Return a metric's score of a row, by the jury if there is one."""
    rubric = getattr(metric, "rubric", None)
    evidence = row.verdicts.get(rubric) if rubric else None
    if rubric is None or evidence is None or not evidence.jury or row.response.is_failed:
        return metric.score(row)
    scores = [metric.score(dataclasses.replace(row, verdicts={rubric: judge})) for judge in evidence.jury]
    valid = [score for score in scores if score.status is ScoreStatus.SCORED]
    verdict = jury_score([score.value if score.status is ScoreStatus.SCORED else None for score in scores])
    judgements = tuple(itertools.chain.from_iterable(map(_of_one, scores)))
    detail: dict[str, Any] = {"version": metric.version, "voted": verdict.n_valid}
    if verdict.value is None:
        decides = all("advisory" not in score.detail for score in scores) and _decides(valid)
        return not_computed(metric.name, verdict.reason, decides=decides, detail=detail, judgements=judgements)
    detail |= _together([score.detail for score in valid])
    threshold = valid[0].detail.get("threshold")
    return scored_by_threshold(metric, verdict.value, threshold, detail=detail, judgements=judgements)


def _decides(valid: Sequence[Score]) -> bool:
    return all(score.passed is not None for score in valid)


def _of_one(score: Score) -> Iterator[Judgement]:
    for judgement in score.judgements:
        yield dataclasses.replace(judgement, value=score.value, reason=score.reason, message=score.message)


def _together(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the combined details of valid scores: means of numbers, any `derived`, all `coherent`."""
    combined: dict[str, Any] = {}
    for name, first in details[0].items():
        values = [detail.get(name) for detail in details]
        if name == "derived":
            combined[name] = any(values)
        elif name == "coherent":
            combined[name] = all(values)
        elif isinstance(first, dict) and name == "criteria":
            combined[name] = {part: exact_mean([value[part] for value in values if value]) for part in first}
        elif isinstance(first, float) and name != "threshold":
            combined[name] = exact_mean([value for value in values if isinstance(value, float)])
    return combined
