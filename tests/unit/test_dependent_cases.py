"""Runs whose cases are not independent: clusters, copies and repeats in intervals, gates and advice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest

from assay.client.input_checks import check_inputs
from assay.datasets import records_dataset
from assay.errors import SpecError
from assay.judging.canaries import with_rates
from assay.metrics import build_metric, complete_parameters
from assay.model.answers.agent_response import AgentStatus
from assay.model.canary_summary import CanaryKind, CanarySummary, CanaryTally
from assay.model.cluster_key import cluster_of, cluster_problem
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    MetricSpec,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    RunSummary,
    Score,
    ScoreStatus,
)
from assay.specs.loader import spec_from_mapping
from assay.wire.summary import SUMMARY
from assay_orchestrator.summary.recommendations import recommendations
from assay_orchestrator.summary.row_notes import row_notes
from assay_orchestrator.summary.run_summary import SummaryRules, summarise

EXACT = build_metric(MetricSpec("exact_match", complete_parameters("exact_match", {}, where="m")))


def rows_of(verdicts: Sequence[bool], *, repeats: int = 1, categories: Sequence[str] = ()) -> list[RowResult]:
    """Rows with these verdicts, so many of each case, the categories of the cases in turn."""
    return [
        RowResult(
            f"c{place // repeats}",
            place // repeats,
            place % repeats,
            categories[place // repeats] if categories else "",
            AgentStatus.SUCCESS,
            passed,
            (Score("exact_match", ScoreStatus.SCORED, float(passed), passed),),
            None,
            "",
        )
        for place, passed in enumerate(verdicts)
    ]


def run_of(summary: RunSummary, cluster: str = "") -> Run:
    """A finished run with this summary."""
    settings = RunSpec("r", AgentSpec("replay"), [MetricSpec("exact_match")], cluster=cluster)
    return Run("r1", settings, DatasetRef("d", "d", 1), RunState.COMPLETED, "", RunCounts(), summary=summary)


def test_copies_are_worth_one_case() -> None:
    """200 copies of one case that pass: one independent case, which decides no gate."""
    rules = SummaryRules(copies=dict.fromkeys(range(200), 0), repeats=1)
    summary = summarise(rows_of([True] * 200), [EXACT], ["pass_rate >= 0.85", "exact_match >= 0.85"], rules=rules)
    expected = pytest.approx((0.206549, 1.0), abs=1e-6)
    assert summary.pass_rate_interval == expected
    assert [gate.interval for gate in summary.gates] == [expected] * 2
    assert summary.metrics[0].interval == expected
    assert summary.metrics[0].effective_count == 1.0
    assert row_notes(run_of(summary), summary) == [
        "200 cases, worth about 1 independent one; the most copied case has 100% of them"
    ]
    sentence = "\n".join(advice.message for advice in recommendations(summary, run_of(summary).spec))
    assert sentence.count("chance may have decided it") == 2
    assert "More cases that are no copies narrow it." in sentence
    stored = SUMMARY.from_json(json.loads(json.dumps(dataclasses.asdict(summary))))
    assert stored.dependent == summary.dependent
    assert stored.pass_rate_interval == summary.pass_rate_interval
    assert [gate.interval for gate in stored.gates] == [gate.interval for gate in summary.gates]


def test_clusters_win_over_copies_and_are_named() -> None:
    """Ten categories of ten equal cases are worth ten cases."""
    categories = [f"page {place // 10}" for place in range(100)]
    verdicts = [place // 10 != 3 for place in range(100)]
    rules = SummaryRules(cluster="category", copies=dict.fromkeys(range(100), 0), repeats=1)
    summary = summarise(rows_of(verdicts, categories=categories), [EXACT], (), rules=rules)
    assert summary.dependent is not None
    assert (summary.dependent.cluster_count, summary.dependent.effective_clusters) == (10, 10.0)
    assert summary.dependent.effective_cases == pytest.approx(10)
    assert row_notes(run_of(summary, "category"), summary)[-1] == (
        "100 cases in 10 clusters by category, worth about 10 independent ones"
    )


def test_one_large_cluster_is_named_with_its_share() -> None:
    """One category of 200 and nine of 5: the effective number is 1.5, and the note says which share the largest has."""
    categories = ["general"] * 200 + [f"page {place // 5}" for place in range(45)]
    verdicts = [place % 7 != 0 for place in range(245)]
    rules = SummaryRules(cluster="category", repeats=1)
    summary = summarise(rows_of(verdicts, categories=categories), [EXACT], (), rules=rules)
    assert "; the largest cluster has 82% of them" in row_notes(run_of(summary, "category"), summary)[-1]


def test_a_gate_on_a_category_is_about_its_cases() -> None:
    """In a category its cases vary, even if categories are the clusters."""
    categories = ["a"] * 20 + ["b"] * 20
    verdicts = [place % 20 != 0 for place in range(40)]
    gates = ["category.a.pass_rate >= 0.9", "category.a.exact_match >= 0.9", "agent_errors <= 0.05"]
    rows = rows_of(verdicts, categories=categories)
    summary = summarise(rows, [EXACT], gates, rules=SummaryRules(cluster="category", repeats=1))
    wilson_19_of_20 = pytest.approx((0.763869, 0.991122), abs=1e-5)
    assert [gate.interval for gate in summary.gates[:2]] == [wilson_19_of_20] * 2
    assert summary.gates[2].interval is not None
    assert summary.categories[0].pass_rate_interval == wilson_19_of_20


def test_repeats_that_agree_count_cases() -> None:
    """Three equal runs of 20 cases have Wilson's interval at 20, which every gate uses."""
    gates = ["pass_rate >= 0.85", "exact_match >= 0.85", "pass_hat_k.3 >= 0.85", "pass_at_k.1 >= 0.85"]
    summary = summarise(rows_of([True] * 60, repeats=3), [EXACT], gates, rules=SummaryRules(repeats=3))
    assert [gate.interval for gate in summary.gates] == [pytest.approx((0.838875, 1.0), abs=1e-6)] * 4
    assert summary.dependent is None


def test_pass_at_1_has_the_interval_of_the_pass_rate() -> None:
    """With equally many runs of each case they are one number; all of k is less certain than one of k."""
    verdicts = [True, True, False] * 5 + [True] * 30 + [False] * 6
    summary = summarise(rows_of(verdicts, repeats=3), [EXACT], (), rules=SummaryRules(repeats=3))
    assert summary.repeats is not None
    first, *_, last = summary.repeats.rates
    assert first.pass_at_k_interval == pytest.approx(summary.pass_rate_interval)
    assert last.pass_hat_k is not None
    assert last.pass_hat_k_interval is not None
    assert last.pass_hat_k_interval[0] < last.pass_hat_k < last.pass_hat_k_interval[1]


@pytest.mark.parametrize(
    ("key", "category", "tags", "cluster"),
    [
        ("category", "a", ("page:1",), "a"), ("category", "", (), ""), ("", "a", ("page:1",), ""),
        ("tag:page", "a", ("x", "page:1", "page:2"), "page:1"), ("tag:page", "a", ("page", "pages:1"), ""),
    ],
)  # fmt: skip
def test_what_a_case_shares(key: str, category: str, tags: tuple[str, ...], cluster: str) -> None:
    """The category, or the first tag that begins with the name and a colon."""
    assert cluster_of(key, category, tags) == cluster


@pytest.mark.parametrize("key", ["categories", "tag", "tag:", "tag: ", "id"])
def test_other_keys_are_refused(key: str) -> None:
    """The message names the two valid forms."""
    assert cluster_problem(key).startswith("must be category, or tag:NAME for tags such as NAME:value")
    assert not cluster_problem("")


def test_a_spec_names_what_its_cases_share() -> None:
    """A wrong key is refused with all other problems; a key that no case has before the first call."""
    data = {"metrics": ["exact_match"], "agent": {"adapter": "replay"}}
    records = [{"input": "q", "reference": "a", "recorded": "a", "tags": ["page:1"]}]
    spec = spec_from_mapping({**data, "cluster": "tag:page"}, needs_dataset=False)
    assert spec.settings.cluster == "tag:page"
    check_inputs(spec, records_dataset(records))
    with pytest.raises(SpecError) as wrong:
        spec_from_mapping({**data, "cluster": "page", "repeats": 0}, needs_dataset=False)
    assert [problem.field for problem in wrong.value.problems] == ["repeats", "cluster"]
    spec = spec_from_mapping({**data, "cluster": "category"}, needs_dataset=False)
    with pytest.raises(SpecError, match="no case has a category: choose another key, or leave it out"):
        check_inputs(spec, records_dataset(records))


@pytest.mark.parametrize(
    ("bad", "good", "fails", "warns"),
    [
        ((0, 4), (0, 1), False, False), ((1, 4), (0, 1), False, True), ((0, 4), (1, 1), False, True),
        ((1, 4), (1, 4), False, True),  # one of each side
        ((2, 4), (0, 1), True, True), ((2, 19), (0, 1), True, True), ((0, 8), (2, 2), True, True),
        ((2, 20), (0, 5), False, True), ((5, 20), (0, 5), True, True), ((4, 20), (0, 5), False, True),
        ((19, 100), (0, 0), True, True), ((15, 100), (0, 0), False, True), ((0, 0), (0, 0), False, False),
    ],
)  # fmt: skip
def test_when_canaries_fail_a_run(bad: tuple[int, int], good: tuple[int, int], fails: bool, warns: bool) -> None:
    """Per side: two of fewer than 20, else Wilson's lower end above 10 %; one wrong is a warning."""
    kinds = (CanaryTally(CanaryKind.KNOWN_BAD, bad[1], bad[0]), CanaryTally(CanaryKind.KNOWN_GOOD, good[1], good[0]))
    summary = with_rates(CanarySummary(kinds))
    assert (summary.is_untrusted, summary.has_wrong_verdicts) == (fails, warns)
