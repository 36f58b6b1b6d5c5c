"""Combined score: the right source, a good answer, few tokens, in one number.

    combined = hit^alpha · judge^gamma / (tokens / 1000)^beta

hit is 1 when an expected source was retrieved, else 0, as for the hit rate; judge is the value in [0, 1] of
the metric named by `judge`; tokens are all that the agent used for the question, input and output, without
the judge's own. A row that lacks one of the three is skipped, and so is one of 0 tokens: that means not
counted, not free. An agent error is not scored. Unbounded above as tokens shrink: a score above 1 needs
fewer than 1,000 tokens, one above 1.20 at most 694. Rows get no verdict. The aggregate is the mean;
threshold and goal apply to it, as "more than". The detail has the best score, the means of the three parts
over the scored rows, the formula applied to these means, which is not the mean of the scores, and all tokens
that were counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.score import scored
from assay.metrics.core.source_matching import first_match, matching_work, usable_sources
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.metrics.core.turn_scores import turn_details
from assay.model.answers.possible_usage import counted_parts, possible_tokens
from assay.model.run import Score, ScoreStatus
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import Usage
    from assay.model.run import RowResult

INFO = MetricInfo(
    "combined_score",
    "Combined score",
    "Right source, good answer and few tokens in one number.",
    (
        Parameter("alpha", "number", 2.0, "Exponent of the hit.", 0.0, 10.0),
        Parameter("gamma", "number", 1.5, "Exponent of the judge's score.", 0.0, 10.0),
        Parameter("beta", "number", 0.5, "Exponent of the tokens, in thousands.", 0.0, 10.0),
        Parameter("judge", "text", "judge_score", "The metric of the run that says how good the answer is."),
        Parameter("k", "integer", None, "How many sources count, from the top; none for all.", 1),
        Parameter("threshold", "number", None, "The run's mean must be more than this.", 0.0),
        Parameter("goal", "number", 1.20, "The run's mean should be more than this.", 0.0),
    ),
    reads=("sources", "expected_sources", "tokens", "scores"),
    decides="never",
    needs="expected_sources",
    values="from 0, unbounded above as tokens shrink",
    rule="more_than",
    stats=(
        "avg_combined_score",
        "best_combined_score",
        "combined_of_averages",
        "avg_num_tokens",
        "total_tokens",
        "avg_hit_rate",
        "avg_judge_score",
    ),
    score_stats=dict.fromkeys(("avg_hit_rate", "avg_judge_score"), SHARE),
)


def combined_score(
    hit: float, judge: float, num_tokens: float, *, alpha: float = 2.0, gamma: float = 1.5, beta: float = 0.5
) -> float | None:
    """Return hit^alpha · judge^gamma / (num_tokens / 1000)^beta; None for no tokens.

    Args:
        hit: In [0, 1].
        judge: In [0, 1].
        num_tokens: All tokens that the agent used.
        alpha: Exponent of the hit.
        gamma: Exponent of the judge's score.
        beta: Exponent of the tokens, in thousands.
    """
    return hit**alpha * judge**gamma / (num_tokens / 1000) ** beta if num_tokens > 0 else None


def tokens_used(usage: Usage | None) -> int | None:
    """Return all tokens of an answer, input and output; None if they were not counted."""
    if usage is None:
        return None
    if usage.total_tokens:
        return usage.total_tokens
    input_tokens, output_tokens = counted_parts(usage)
    return None if input_tokens is None or output_tokens is None else input_tokens + output_tokens


class _Fold(MeanFold):
    def __init__(self, metric: CombinedScore) -> None:
        super().__init__(metric)
        self._exponents = metric.exponents
        self._best: float | None = None
        self._parts = {part: ExactSum() for part in ("hit", "judge_score", "num_tokens")}
        self._total_tokens: int | None = None

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        counts = [count for _, detail in turn_details(score.detail) if (count := detail.get("num_tokens")) is not None]
        if counts:  # spent, whether or not there is a value
            self._total_tokens = sum(map(int, counts)) + (self._total_tokens or 0)
        if score.value is None:
            return
        self._best = score.value if self._best is None else max(self._best, score.value)
        parts = {**score.detail, "num_tokens": math.fsum(counts) / len(counts)}
        for part, total in self._parts.items():
            total.add(parts[part])

    def detail(self, value: float | None) -> dict[str, Any]:
        hit, judge, tokens = (total.mean for total in self._parts.values())
        of_averages = None
        if hit is not None and judge is not None and tokens is not None:
            of_averages = combined_score(hit, judge, tokens, **self._exponents)
        return {
            "avg_combined_score": value,
            "best_combined_score": self._best,
            "combined_of_averages": of_averages,
            "avg_num_tokens": tokens,
            "total_tokens": self._total_tokens,
            "avg_hit_rate": hit,
            "avg_judge_score": judge,
        }


class CombinedScore(ThresholdMetric):
    """Parameters: the exponents, `judge`, `k`, `threshold` and `goal` (on the mean)."""

    info = INFO
    fold_class = _Fold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self.exponents = {exponent: parameters[exponent] for exponent in ("alpha", "gamma", "beta")}
        self._judge: str = parameters["judge"]
        self.inputs = (self._judge,)
        self._k: int | None = parameters["k"]

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of matching the sources."""
        return matching_work(row)

    def score(self, row: Row) -> Score:
        """Return the row's combined score."""
        judged = row.scores.get(self._judge)
        expected = usable_sources(row.case)
        tokens = tokens_used(row.response.usage)
        hit = float(first_match(expected, row.response.sources, self._k) is not None) if expected else None
        judge = None if judged is None else judged.value
        detail = {"version": self.version, "hit": hit, "judge_score": judge, "num_tokens": tokens}
        if row.response.is_failed:
            return self._agent_error(detail)
        if judged is not None and judged.status is ScoreStatus.ERROR:
            return self._not_computed(judged.reason or "no_verdict", detail)
        if judge is not None and not 0.0 <= judge <= 1.0:
            return self._not_computed("invalid_verdict", {**detail, "judge_score": None})
        if hit is None or judge is None or tokens is None:
            reason = "no_expected_sources" if hit is None else "no_verdict" if judge is None else "no_tokens"
            return self._skipped(reason, detail=detail)
        if possible_tokens(tokens) is None:
            return self._not_computed("invalid_tokens", {**detail, "num_tokens": None})
        value = combined_score(hit, judge, tokens, **self.exponents)
        assert value is not None  # there are tokens
        return scored(self.name, value, detail=detail)
