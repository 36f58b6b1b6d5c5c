"""Cases of compared runs side by side: all values, and the texts of selected cases."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from assay.comparison.matching import matched
from assay.reports.comparison.document.compared_run import compared_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from assay.comparison.cases import CaseScores
    from assay.comparison.model import ComparisonSettings
    from assay.reports.document.report import Report


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """One case in all compared runs; every sequence has one entry a run, in their order.

    Args:
        case_id: Its id.
        category: Its category, or empty.
        values: Values by metric, with the share of passed rows under `PASS_RATE`; metrics without a value are absent.
            None for a run that does not have the case.
        contents: Digest of question and references, equal for equal ones; empty where it is not known.
        meets_filter: Whether it meets the filter of the comparison in this run.
    """

    case_id: str
    category: str
    values: tuple[Mapping[str, float] | None, ...]
    contents: tuple[bytes, ...]
    meets_filter: tuple[bool, ...]

    def is_compared(self, a: int, b: int) -> bool:
        """Whether two runs are compared on this case: both have it with equal contents, and it matches the filter."""
        if self.values[a] is None or self.values[b] is None:
            return False
        content_a, content_b = self.contents[a], self.contents[b]
        return (not content_a or not content_b or content_a == content_b) and (
            self.meets_filter[a] or self.meets_filter[b]
        )

    def difference(self, metric: str, a: int, b: int) -> float | None:
        """Return the value of run b minus that of run a; None if they are not compared or a value is missing."""
        if not self.is_compared(a, b):
            return None
        value_a, value_b = (self.values[a] or {}).get(metric), (self.values[b] or {}).get(metric)
        return None if value_a is None or value_b is None else value_b - value_a


@dataclass(frozen=True, slots=True)
class AnswerTexts:
    """A run's answer to a case: with several repeats, the first that did not pass, else the first.

    Args:
        answer: The answer; None without one.
        message: Why the row failed; empty if it did not.
        repeat: Which repeat it is, from 1.
    """

    answer: str | None
    message: str
    repeat: int


@dataclass(frozen=True, slots=True)
class CaseTexts:
    """The texts of one case.

    Args:
        question: What was asked.
        references: What was expected.
        answers: One a run, in their order; None for a run that does not have the case.
    """

    question: str
    references: tuple[str, ...]
    answers: tuple[AnswerTexts | None, ...]


class ComparedCases(Protocol):
    """A source of the cases of compared runs: their documents, or a server."""

    def cases(self) -> Iterator[ComparedCase]:
        """Yield every case once: the first run's in its order, then those that only later runs have."""

    def texts(self, case_ids: Collection[str]) -> Mapping[str, CaseTexts]:
        """Return the texts of some cases by id; cases that no run has are omitted."""


class ReportedCases:
    """Cases from the documents of the runs: values are in memory, texts are read on demand.

    Args:
        reports: The runs, in order.
        settings: How they were compared.
    """

    def __init__(self, reports: Sequence[Report], settings: ComparisonSettings) -> None:
        self._reports = reports
        self._settings = settings

    @functools.cached_property
    def _scores(self) -> Sequence[CaseScores]:
        # Only reports with lists of cases need them: the text of a comparison does not.
        return matched([compared_run(report, self._settings).cases for report in self._reports])

    def cases(self) -> Iterator[ComparedCase]:
        """Yield every case once: the first run's in its order, then those that only later runs have."""
        columns = [{name: scores.values(name).tolist() for name in scores.metrics} for scores in self._scores]
        for index, scores in enumerate(self._scores):
            earlier = self._scores[:index]
            for place, case_id in enumerate(scores.case_ids):
                if all(scores_before.place(case_id) is None for scores_before in earlier):
                    yield self._case(case_id, scores.categories[place], columns)

    def _case(self, case_id: str, category: str, columns: Sequence[Mapping[str, Sequence[float]]]) -> ComparedCase:
        places = [scores.place(case_id) for scores in self._scores]
        values = tuple(
            None if place is None else {name: value for name, of in column.items() if math.isfinite(value := of[place])}
            for place, column in zip(places, columns, strict=True)
        )
        placed_scores = list(zip(places, self._scores, strict=True))
        return ComparedCase(
            case_id=case_id,
            category=category,
            values=values,
            contents=tuple(b"" if place is None else scores.contents[place] for place, scores in placed_scores),
            meets_filter=tuple(place is not None and scores.meets_filter(place) for place, scores in placed_scores),
        )

    def texts(self, case_ids: Collection[str]) -> Mapping[str, CaseTexts]:
        """Return the texts of some cases by id; cases that no run has are omitted."""
        wanted = frozenset(case_ids)
        rows: list[dict[str, Mapping[str, Any]]] = [{} for _ in self._reports]
        for rows_of_run, scores, report in zip(rows, self._scores, self._reports, strict=True):
            ids = dict(zip(scores.own_ids, scores.case_ids, strict=True))
            for row in report.rows() if wanted else ():
                case_id = ids[row["case_id"]]
                row_texts = rows_of_run.get(case_id)
                if case_id in wanted and (row_texts is None or (row_texts["passed"] and not row["passed"])):
                    rows_of_run[case_id] = row
        return {
            case_id: _texts([rows_of_run.get(case_id) for rows_of_run in rows])
            for case_id in case_ids
            if any(case_id in rows_of_run for rows_of_run in rows)
        }


def _texts(rows: Sequence[Mapping[str, Any] | None]) -> CaseTexts:
    first = next(row for row in rows if row is not None)
    return CaseTexts(
        question=first["question"] or "",
        references=tuple(first["references"]),
        answers=tuple(
            None if row is None else AnswerTexts(row["answer"], row["message"] or "", row["repeat"]) for row in rows
        ),
    )
