"""Comparisons of runs that stop early: the rule decides, every report says so, and what is not adjusted is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reports.comparison_reports import COMPARISON_SCHEMA, compared, run_document, stopped, two
from tests.support.reports.report_documents import validator

from assay.comparison.model import ComparisonVerdict
from assay.reports.comparison.formats.json_document import comparison_document
from assay.reports.comparison.formats.markdown import comparison_markdown
from assay.reports.comparison.formats.short_text import short_lines
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.comparison.words.headline import verdict_sentence
from assay.statistics.stagewise import stagewise_estimate
from assay.text.unsafe_text import json_text
from assay.wire.comparison import COMPARISON

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "\x1b[31m<b>`|@team"


def test_the_rule_decides_and_every_report_says_so(tmp_path: Path) -> None:
    """Verdict, cases and savings are in the console text, Markdown and JSON; the p-value is said to be not adjusted."""
    with compared(tmp_path, stopped()) as report:
        one = report.comparison.pairs[0].metric("accuracy")
        assert (report.comparison.primary, one.verdict) == ("accuracy", ComparisonVerdict.B_BETTER)
        assert one.p is not None
        sentences = ["always-valid decided after 18 of 200 cases", "not adjusted for looking early",
                "always-valid 95% interval of the difference", "plain difference +0.30",
                "too large on average where a rule stopped", "A asked 20, B 20 of 200 cases",
                "saves about 360 calls, 1,800 tokens, 1 USD, 60 s"]  # fmt: skip
        for text in ("\n".join(comparison_lines(report)), comparison_markdown(report)):
            plain = text.replace("\\", "")
            assert [one for one in sentences if one not in plain] == []
        document = json.loads(json_text(comparison_document(report)))
        stop = document["comparison"]["stopping"]
        assert (stop["rule"], stop["verdict"], stop["case_count"], stop["planned_case_count"]) == (
            "always-valid",
            "b_better",
            18,
            200,
        )
        validator(COMPARISON_SCHEMA).validate(document)
        assert COMPARISON.from_wire(COMPARISON.to_wire(report.comparison)).stopping == report.comparison.stopping


def looked(*, decided: bool = True) -> list[dict[str, Any]]:
    """Two runs that stopped at the second of five looks, in which B won 11 of 18 cases and A none."""
    look: dict[str, Any] = {"rule": "five-looks", "look": 2, "z": 11**0.5, "bound": 3.2255, "p": None}
    return stopped(decided=decided, **look, standard_error=11**0.5 / 18, looks=[9, 18])


def test_planned_looks_show_the_estimate_that_allows_for_them(tmp_path: Path) -> None:
    """Headline, table and JSON have the median-unbiased estimate and its interval; the plain difference stays."""
    expected = stagewise_estimate(11**0.5, 11**0.5 / 18, [9, 18])
    with compared(tmp_path, looked()) as report:
        metric = report.comparison.pairs[0].metric("accuracy")
        assert metric.difference == pytest.approx(0.3)
        assert (metric.median_unbiased, metric.interval) == (expected.difference, expected.interval)
        assert metric.interval_method == "stagewise"
        sentence = verdict_sentence(report)
        assert "+0.61 [+0.25, +0.97] (median-unbiased estimate, 95% interval of the looks)" in sentence
        assert "plain difference +0.30 (too large on average where a rule stopped) over 20 cases" in sentence
        assert "+0.61 [+0.25, +0.97]" in short_lines(report)[3]
        document = json.loads(json_text(comparison_document(report)))
        assert document["comparison"]["stopping"]["look_pair_counts"] == [9, 18]
        validator(COMPARISON_SCHEMA).validate(document)
        assert COMPARISON.from_wire(COMPARISON.to_wire(report.comparison)) == report.comparison


def test_the_order_of_the_runs_moves_no_decision(tmp_path: Path) -> None:
    """Compared the other way round, the same run is better, and estimate and interval are mirrored."""
    with compared(tmp_path, looked()) as report, compared(tmp_path, looked()[::-1]) as swapped:
        stopping = swapped.comparison.stopping
        assert stopping is not None
        assert (stopping.verdict, stopping.z) == (ComparisonVerdict.A_BETTER, -(11**0.5))
        metric, other = (each.comparison.pairs[0].metric("accuracy") for each in (report, swapped))
        assert metric.interval is not None
        assert other.interval == pytest.approx((-metric.interval[1], -metric.interval[0]))
        assert other.median_unbiased == pytest.approx(-(metric.median_unbiased or 0.0))
        assert "at look 2 of 5, after 18 of 200 cases" in "\n".join(comparison_lines(swapped))


def test_looks_that_decided_nothing_end_with_all_cases(tmp_path: Path) -> None:
    """Of 20 planned cases, all asked: z of all of them belongs to the fifth look, and 0 is in the interval."""
    documents = looked(decided=False)
    for document in documents:
        document["run"]["stopping"]["cases"] = 24
    with compared(tmp_path, documents) as report:
        stopping, metric = report.comparison.stopping, report.comparison.pairs[0].metric("accuracy")
        assert stopping is not None
        assert stopping.z == pytest.approx(6**0.5)
        assert (stopping.look_pair_counts, stopping.look) == ((5, 10, 15, 20), None)
        assert metric.reason == "rule_undecided"
        assert metric.interval == pytest.approx(stagewise_estimate(6**0.5, 6**0.5 / 20, (5, 10, 15, 20)).interval)
        assert "too large on average" not in verdict_sentence(report)


def test_an_ordinary_p_value_does_not_decide_where_the_rule_did_not(tmp_path: Path) -> None:
    """A small p-value after many looks is no verdict: the comparison is inconclusive, and nothing stopped early."""
    with compared(tmp_path, stopped(decided=False)) as report:
        metric = report.comparison.pairs[0].metric("accuracy")
        assert metric.p is not None
        assert metric.p < 0.05
        assert metric.verdict is ComparisonVerdict.INCONCLUSIVE
        assert comparison_document(report)["comparison"]["stopping"]["case_count"] == 0
        assert "decided nothing in 200 planned cases" in "\n".join(comparison_lines(report))


@pytest.mark.parametrize("changes", [{"primary": "quality"}, {"cluster": "category"}])
def test_another_question_is_decided_as_usual_and_cautioned(tmp_path: Path, changes: dict[str, Any]) -> None:
    """By another metric or with clusters the rule says nothing; that the runs stopped early is said of each."""
    with compared(tmp_path, stopped(), **changes) as report:
        assert report.comparison.stopping is None
        sentence = "\n".join(comparison_lines(report))
    assert sentence.count("stopped early, in a comparison with another run") == 2


def test_runs_of_other_groups_have_no_rule_in_common(tmp_path: Path) -> None:
    """One of a pair compared with a run beside it is compared as usual."""
    with compared(tmp_path, [stopped()[0], run_document("candidate", "5" * 20)]) as report:
        assert report.comparison.stopping is None
    with compared(tmp_path, two()) as report:
        assert report.comparison.stopping is None
        assert "early" not in "\n".join(comparison_lines(report))


def test_names_are_hostile(tmp_path: Path) -> None:
    """A variant's name in what a run says of its stop is text in every report."""
    documents = stopped(winner=HOSTILE, sentence=HOSTILE)
    with compared(tmp_path, documents) as report:
        assert "\x1b" not in "\n".join(comparison_lines(report))
        assert "<b>`|" not in comparison_markdown(report)
