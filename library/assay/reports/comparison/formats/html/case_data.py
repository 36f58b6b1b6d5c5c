"""Cases of the comparison page: an entry per case for lists, and the texts of the worst cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.comparison.model import PASS_RATE
from assay.reports.formats.html.row_data import fitted, limited_text, preview
from assay.reports.formats.html.word_diff import differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.reports.comparison.document.compared_cases import CaseTexts, ComparedCase
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.formats.html.row_data import Text

MAX_CASES = 20_000
"""The most cases in the list; comparison_cases.csv has all of them."""
_MAX_TEXT_CASES = 300
_MIN_TEXT_CASES = 40
_MAX_CASE_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class PageCases:
    """The cases of a page.

    Args:
        entries: Of each case: id, category, its share of passed rows and its value of the primary metric in every run
            (null for none), and for every run after the first whether it is compared with it.
        texts: The worst cases of every run against the first, by id.
        total: How many cases the runs have.
    """

    entries: Sequence[list[Any]]
    texts: Mapping[str, dict[str, Any]]
    total: int


def page_cases(report: ComparisonReport) -> PageCases:
    """Return the cases of a page; if there are too many, only the worst ones."""
    if report.cases is None:
        return PageCases((), {}, 0)
    wanted = _worst(report)
    texts = report.cases.texts(wanted)
    entries: dict[str, list[Any]] = {}
    values: dict[str, ComparedCase] = {}
    total = 0
    for case in report.cases.cases():
        total += 1
        if case.case_id in texts:
            values[case.case_id] = case
        if len(entries) < MAX_CASES or case.case_id in texts:
            entries[case.case_id] = _entry(report, case)
    for case_id in [entry_id for entry_id in entries if entry_id not in texts][: max(len(entries) - MAX_CASES, 0)]:
        del entries[case_id]
    return PageCases(
        list(entries.values()),
        {case_id: _details(report, values[case_id], case_texts) for case_id, case_texts in texts.items()},
        total,
    )


def _entry(report: ComparisonReport, case: ComparedCase) -> list[Any]:
    def column(name: str) -> list[float | None]:
        return [None if values is None else values.get(name) for values in case.values]

    return [
        case.case_id,
        case.category,
        column(PASS_RATE),
        column(report.comparison.primary),
        [case.is_compared(0, index) for index in range(1, len(case.values))],
    ]


def _worst(report: ComparisonReport) -> list[str]:
    """Return the ids of the cases with texts on the page: of each run in turn the worst compared with the first run."""
    assert report.cases is not None, "only called with cases"
    runs = len(report.comparison.variants)
    primary = report.comparison.pairs[0].metric(report.comparison.primary)
    sign = 1 if primary.higher_is_better else -1
    order: list[list[tuple[float, float, str]]] = [[] for _ in range(runs - 1)]
    for case in report.cases.cases():
        for index in range(1, runs):
            if case.is_compared(0, index):
                verdicts = case.difference(PASS_RATE, 0, index) or 0.0
                depth = sign * (case.difference(primary.metric, 0, index) or 0.0)
                # Cases that came out alike come after those in which the run is better.
                order[index - 1].append((verdicts or (2.0 if not depth else 0.0), depth, case.case_id))
    room = max(_MAX_TEXT_CASES // (runs - 1), _MIN_TEXT_CASES)
    return list(dict.fromkeys(case_id for ranked in order for *_, case_id in sorted(ranked)[:room]))


def _details(report: ComparisonReport, case: ComparedCase, texts: CaseTexts) -> dict[str, Any]:
    """Return the data of an opened case, with texts cut to the size allowed per case."""
    details, _ = fitted(lambda limit: _texts(report, case, texts, limit), _MAX_CASE_BYTES)
    first = details["answers"][0]
    base = None if first is None or first["answer"] is None else _shown(first["answer"])
    for answer in details["answers"][1:]:
        if answer is not None and answer["answer"] is not None and base is not None:
            answer["differences"] = differences(base, _shown(answer["answer"]))
    return details


def _shown(text: Text) -> str:
    """Return the part of a text that is on the page."""
    return text[0] if isinstance(text, tuple) else text


def _texts(report: ComparisonReport, case: ComparedCase, texts: CaseTexts, limit: int) -> dict[str, Any]:
    names = [metric.metric for metric in report.shown(report.comparison.pairs[0])]
    return {
        "preview": preview(texts.question),
        "question": limited_text(texts.question, limit),
        "references": [limited_text(reference, limit) for reference in texts.references],
        "answers": [
            None
            if answer is None
            else {
                "answer": limited_text(answer.answer, limit),
                "message": limited_text(answer.message or None, limit),
                "repeat": answer.repeat,
            }
            for answer in texts.answers
        ],
        "values": [[None if values is None else values.get(name) for name in names] for values in case.values],
    }


def blocks(items: Sequence[Any], size: int) -> Iterator[str]:
    """Yield JSON lists of at most `size` items each."""
    for start in range(0, len(items), size):
        yield json.dumps(items[start : start + size], ensure_ascii=False, separators=(",", ":"))
