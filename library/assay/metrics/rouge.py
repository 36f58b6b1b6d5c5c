"""ROUGE: the words, word pairs and word sequence that the answer shares with the reference.

    rouge1, rouge2: precision = shared n-grams / those of the answer, recall = shared / those of the reference
    rougeL: the same with the longest common subsequence of words
    F1 = 2·precision·recall / (precision + recall), 0 if both are 0

An n-gram is shared as often as both have it. The value is the F1 of the `measure`; with several references
the one that gives the highest counts. Words are found in every script; with `stemmer: porter` English ones
are compared by their stems. No reference with a word in it: skipped. An answer without words: 0. An agent
error: not scored, failed if there is a reference and a threshold. A row passes when its value is at least
the threshold; without one rows get no verdict. The aggregate is the mean.

Source: C.-Y. Lin, "ROUGE: A package for automatic evaluation of summaries", 2004.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.run import Score
from assay.statistics.exact_sum import ExactSum
from assay.text.word_tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.metrics.core.score import Row
    from assay.model.run import RowResult

_MEASURES = ("rouge1", "rouge2", "rougeL")
_FIGURES = (*_MEASURES, *(f"{part}.{name}" for part in ("precision", "recall") for name in _MEASURES))

INFO = MetricInfo(
    "rouge",
    "ROUGE",
    "Words that answer and reference share, alone, in pairs and in order.",
    (
        Parameter("measure", "text", "rougeL", "Whose F1 is the value.", choices=_MEASURES),
        Parameter("stemmer", "text", "porter", "How English words are reduced.", choices=("porter", "none")),
        Parameter("threshold", "number", None, "Least value with which a row passes.", 0.0, 1.0),
    ),
    reads=("answer", "references"),
    needs="references",
    values="0 to 1",
    stats=_FIGURES,
    score_stats=dict.fromkeys(_FIGURES, SHARE),
)

_MOST_WORK = 4_000_000_000  # word pairs; half a second
_PAIRS_PER_WORK = 80
_WORK_PER_CHARACTER = 40  # stemming a word takes some microseconds


@dataclass(frozen=True, slots=True)
class Overlap:
    """Precision, recall and F1, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


def rouge(answer: Sequence[str], reference: Sequence[str]) -> dict[str, Overlap] | None:
    """Return rouge1, rouge2 and rougeL of two lists of words; None if both are too long to compare."""
    in_order = lcs_length(answer, reference)
    if in_order is None:
        return None
    return {
        "rouge1": _overlap(_shared(answer, reference), len(answer), len(reference)),
        "rouge2": _overlap(_shared(pairwise(answer), pairwise(reference)), len(answer) - 1, len(reference) - 1),
        "rougeL": _overlap(in_order, len(answer), len(reference)),
    }


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int | None:
    """Return the length of the longest common subsequence; None if both are too long to compare.

    One bit for each word of the shorter text, a few operations on all bits at once for each of the longer.
    Source: H. Hyyrö, "Bit-parallel LCS-length computation revisited", 2004.
    """
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) * len(longer) > _MOST_WORK:
        return None
    places: dict[str, int] = {}
    for position, word in enumerate(shorter):
        places[word] = places.get(word, 0) | 1 << position
    row = every = (1 << len(shorter)) - 1
    for word in longer:
        if matched := row & places.get(word, 0):
            row = ((row + matched) | (row ^ matched)) & every
    return len(shorter) - row.bit_count()


def rouge_work(answer: str, reference: str) -> int:
    """Return an upper bound of the work of comparing two texts; see `row_work`."""
    pairs = min(len(answer) * len(reference) // 4, _MOST_WORK)  # a word has a character and one beside it
    return _WORK_PER_CHARACTER * (len(answer) + len(reference)) + pairs // _PAIRS_PER_WORK


def _shared(first: Iterable[Any], second: Iterable[Any]) -> int:
    counts = Counter(first)
    return sum([min(counts[gram], count) for gram, count in Counter(second).items() if gram in counts])


def _overlap(shared: int, in_answer: int, in_reference: int) -> Overlap:
    precision = shared / in_answer if in_answer > 0 else 0.0
    recall = shared / in_reference if in_reference > 0 else 0.0
    both = precision + recall
    return Overlap(precision, recall, 2 * precision * recall / both if both else 0.0)


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._sums = {part: {measure: ExactSum() for measure in _MEASURES} for part in ("f1", "precision", "recall")}

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        if score.value is None:
            return
        for part, sums in self._sums.items():
            for measure, total in sums.items():
                total.add(score.detail[measure][part])

    def detail(self, value: float | None) -> dict[str, Any]:
        means = {part: {measure: total.mean for measure, total in sums.items()} for part, sums in self._sums.items()}
        return {**means.pop("f1"), **means, "pass_rate": self.pass_rate}


class Rouge(ThresholdMetric):
    """Parameters: `measure`, `stemmer`, `threshold` (on each row; None: no verdict)."""

    info = INFO
    fold_class = _Fold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._measure: str = parameters["measure"]
        self._stemmer: str = parameters["stemmer"]

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of comparing the answer with its references."""
        return sum([rouge_work(row.response.text, reference) for reference in row.case.references])

    def score(self, row: Row) -> Score:
        """Return the row's F1."""
        texts = enumerate(row.case.references)
        references = [(index, words) for index, text in texts if (words := self._words(text))]
        detail: dict[str, Any] = {"version": self.version, "measure": self._measure, "stemmer": self._stemmer}
        if not references:
            return self._skipped("no_reference")
        if row.response.is_failed:
            return self._agent_error(detail)
        answer = self._words(row.response.text)
        compared = [(index, rouge(answer, words)) for index, words in references]
        known = [(index, overlaps) for index, overlaps in compared if overlaps is not None]
        if len(known) < len(compared):
            return self._not_computed("texts_too_long", detail)
        index, best = max(known, key=lambda candidate: candidate[1][self._measure].f1)
        if len(row.case.references) > 1:
            detail["reference_index"] = index
        return self._scored(best, "" if answer else "empty_output", detail)

    def _words(self, text: str) -> list[str]:
        return tokenize(text, stemmed=self._stemmer == "porter")

    def _scored(self, overlaps: Mapping[str, Overlap], reason: str, detail: dict[str, Any]) -> Score:
        for measure, overlap in overlaps.items():
            detail[measure] = {"precision": overlap.precision, "recall": overlap.recall, "f1": overlap.f1}
        value = overlaps[self._measure].f1
        return self._scored_by_threshold(value, detail, reason=reason)
