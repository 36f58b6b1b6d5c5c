"""Consistency: how alike the agent's answers are, as the mean pairwise cosine of their embeddings.

    C = (2 / (n (n - 1))) · Σ_{i<j} cos(e_i, e_j) = (‖Σ u_i‖² - n) / (n (n - 1)), u_i = e_i / ‖e_i‖

The closed form needs one pass. With several runs of each case (scope "repeats") C is computed per case over
its runs, and the value is the mean over cases with at least two; agreement_rate is then the share of pairs
of runs whose normalised texts are equal, which says more for answers of a word or two. With one run a case
(scope "pooled") C is over all answers of the run, where it mostly measures how alike the questions are.

A blank answer is an answer: its cosine with another blank one is 1, with any other 0. Agent errors are left
out and counted. Rows have no value of their own and no verdict. Fewer than two answers: no value, never 0; a
missing vector is an error of the row. scored_count counts the answers that were compared. Clamped to [-1, 1]; the
threshold applies to the value of scope "repeats", inclusive: a pooled value has no verdict.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics.core.embedder_record import EmbedderRecord
from assay.metrics.core.embedding import EMBEDDING
from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.similarity import language_warnings
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.run import MetricSummary, Score, ScoreStatus
from assay.statistics.exact_sum import ExactSum
from assay.text.equality import folded_case, is_blank, plain

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from assay.metrics.core.score import Row
    from assay.model.run import RowResult

INFO = MetricInfo(
    "consistency",
    "Consistency",
    "How alike the answers are: of the runs of each case, or of the whole run.",
    (*EMBEDDING, Parameter("threshold", "number", 0.8, "Least consistency of the run.", -1.0, 1.0)),
    reads=("answer", "embeddings"),
    decides="never",
    values="-1 to 1",
    stats=("total_comparisons", "agreement_rate"),
    score_stats={"agreement_rate": SHARE},
)
_PER_RUN = "aggregate_only"
_NOTES = {
    "repeats": "mean over cases with at least two runs",
    "pooled": "one run a case: this mostly measures how alike the questions are",
}
_TOO_FEW = "Insufficient responses"


def consistency(vectors: Sequence[ArrayLike], blank_count: int = 0) -> float | None:
    """Return the mean pairwise cosine of vectors and of blank answers; None for fewer than two answers.

    Args:
        vectors: Each of shape (dimension,); those without a direction, or of another length than the first, are
            left out.
        blank_count: Answers without text: copies of one direction that no vector has.
    """
    pool = _Pool()
    for vector in vectors:
        if (unit := _unit(vector)) is not None:
            pool.add(unit)
    pool.blanks = blank_count
    return pool.value


def _unit(vector: ArrayLike) -> NDArray[np.float64] | None:
    """Return a vector's direction in float64, or None if it has none."""
    import numpy as np  # imported here: runs without embeddings start without it

    values = np.asarray(vector, dtype=np.float64)
    norm = float(np.linalg.norm(values))
    return values / norm if norm > 0.0 and np.isfinite(norm) else None


def _numbers(vector: bytes | array[float]) -> ArrayLike:
    """Return a row's vector as numbers; those that were not stored keep their precision."""
    import numpy as np

    return np.frombuffer(vector, dtype="<f4") if isinstance(vector, bytes) else vector


class _Pool:
    """The sum of unit vectors."""

    def __init__(self) -> None:
        self.sum: NDArray[np.float64] | None = None
        self.texts = self.blanks = 0

    @property
    def count(self) -> int:
        return self.texts + self.blanks

    @property
    def pairs(self) -> int:
        return self.count * (self.count - 1) // 2

    def add(self, unit: NDArray[np.float64]) -> bool:
        """Take one more unit vector; return False for one of another length than those before."""
        if self.sum is not None and self.sum.shape != unit.shape:
            return False
        self.sum = unit if self.sum is None else self.sum + unit
        self.texts += 1
        return True

    @property
    def value(self) -> float | None:
        n = self.count
        if n < 2:
            return None
        squared = 0.0 if self.sum is None else float(self.sum @ self.sum)
        return max(-1.0, min(1.0, (squared + self.blanks**2 - n) / (n * (n - 1))))


class _Fold(MeanFold):
    """Keeps one sum over the run and one over the case that is being read."""

    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._all, self._case = _Pool(), _Case()
        self._repeats = False
        self._of_cases, self._agreement = ExactSum(), ExactSum()
        self._pairs = self._used = 0
        self._record = EmbedderRecord()

    def add(self, row: RowResult, score: Score) -> None:
        """Take one more row; the rows of a case follow on one another."""
        if row.case_index != self._case.index:
            self._close(self._case)
            self._case = _Case(row.case_index)
        self._case.rows += 1
        self._repeats = self._repeats or self._case.rows > 1
        self._record.add(score)
        reason = score.reason if score.status is not ScoreStatus.SKIPPED else self._take(row, score)
        if reason:
            self.n_error += 1
            self.n_own_error += reason != "agent_error"

    def _take(self, row: RowResult, score: Score) -> str:
        """Add an answer; return why it cannot be, or the empty string."""
        if score.detail.get("blank"):
            self._all.blanks += 1
            self._case.pool.blanks += 1
        else:
            unit = _unit(_numbers(row.answer_vector))
            if unit is None or not self._all.add(unit):
                return "invalid_vector"
            self._case.pool.add(unit)
        self._case.keys[score.detail["answer_key"]] += 1
        return ""

    def _close(self, case: _Case) -> None:
        if case.pool.value is not None:
            self._of_cases.add(case.pool.value)
            self._agreement.add(case.agreement)
            self._pairs += case.pool.pairs
            self._used += case.pool.count

    def result(self) -> MetricSummary:
        """Return the summary of the rows so far."""
        so_far = copy.deepcopy(self)  # the case that is being read may not be complete
        so_far.close_case()
        return so_far.summary()

    def close_case(self) -> None:
        """Count the case that was being read; its rows are over."""
        self._close(self._case)

    def summary(self) -> MetricSummary:
        """Return the summary of the cases whose rows are over."""
        value = self._of_cases.mean if self._repeats else self._all.value
        used = self._used if self._repeats else self._all.count if value is not None else 0
        scope = "repeats" if self._repeats else "pooled"
        # Pooled, it measures how alike the questions are: it has a value and no verdict.
        reached = self.reaches(value, self.threshold) if self._repeats else None
        return MetricSummary(
            metric=self.metric,
            value=value,
            scored_count=used,
            skipped_count=self._all.count - used,
            error_count=self.n_error,
            own_error_count=self.n_own_error,
            threshold=self.threshold,
            meets_threshold=reached,
            rule=self.rule,
            detail={
                "consistency_score": value,
                "total_comparisons": self._pairs if self._repeats else self._all.pairs,
                "meets_threshold": reached,
                "scope": scope,
                "note": _NOTES[scope] if value is not None else _TOO_FEW,
                "n_cases": self._of_cases.count if self._repeats else used,
                "agreement_rate": self._agreement.mean if self._repeats else None,
                **self._record.detail,
            },
        )


class Consistency(ThresholdMetric):
    """Parameters: `model`, `dimension`, `windowed`, `threshold` (on the run's value)."""

    info = INFO
    fold_class = _Fold
    embeds_references = False
    keeps_vector = True

    def score(self, row: Row) -> Score:
        """Return what the aggregate needs to know of the row; it has no value of its own."""
        if row.response.is_failed:
            return self._agent_error({"version": self.version})
        text = row.response.text
        detail: dict[str, Any] = {"version": self.version, "answer_key": _key(text)}
        if is_blank(text):
            return self._skipped(_PER_RUN, detail={**detail, "blank": True})
        assert self.embedding is not None
        evidence = row.embeddings.get(self.embedding)
        if evidence is None or evidence.error or evidence.answer is None:
            reason = (evidence.error if evidence is not None else "") or "embedding_missing"
            return self._not_computed(reason, detail)
        detail |= {
            **evidence.origin,
            "truncated": text in evidence.truncated,
            **language_warnings(evidence, [text]),
        }
        return self._skipped(_PER_RUN, detail=detail)


def _key(text: str) -> str:
    folded = folded_case(plain(text))
    return hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Case:
    """The rows of the case that is being read."""

    def __init__(self, index: int | None = None) -> None:
        self.index = index
        self.rows = 0
        self.pool = _Pool()
        self.keys: Counter[str] = Counter()

    @property
    def agreement(self) -> float:
        """The share of pairs of answers whose normalised texts are equal; there are at least two answers."""
        return sum(count * (count - 1) // 2 for count in self.keys.values()) / self.pool.pairs
