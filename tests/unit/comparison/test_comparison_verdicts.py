"""What a comparison decides: the specification's verdicts, families of tests, errors, filters and mismatches."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.comparison.comparing import METRICS, compare_columns, compared, disagreeing, facts

from assay.comparison.compare import compare_runs
from assay.comparison.decision import DecisionOutcome, DecisionRules, decide
from assay.comparison.facts import _metric, facts_of
from assay.comparison.model import Adjustment, Comparison, ComparisonSettings, ComparisonVerdict, FailOn
from assay.comparison.what_changed import changes
from assay.errors import InvalidInputError
from assay.metrics import METRICS as METRIC_KINDS


@pytest.mark.parametrize(
    ("b", "c", "n", "margin", "verdict"),
    [
        (3, 4, 200, 0.05, ComparisonVerdict.EQUIVALENT),
        (2, 10, 50, 0.05, ComparisonVerdict.B_BETTER),
        (10, 2, 50, 0.05, ComparisonVerdict.A_BETTER),
        (10, 12, 1000, 0.02, ComparisonVerdict.EQUIVALENT),
        (3, 4, 200, None, ComparisonVerdict.INCONCLUSIVE),
        (0, 5, 50, None, ComparisonVerdict.INCONCLUSIVE),
        (0, 6, 50, None, ComparisonVerdict.B_BETTER),
    ],
)
def test_the_verdict_of_rates(b: int, c: int, n: int, margin: float | None, verdict: ComparisonVerdict) -> None:
    """Significance decides first, then the margin; everything else is inconclusive."""
    a_column, b_column = disagreeing(b, c, n)
    comparison = compare_columns(
        {"exact_match": a_column}, {"exact_match": b_column}, settings=ComparisonSettings(margin=margin)
    )
    primary = comparison.pairs[0].metric("exact_match")
    assert comparison.primary == "exact_match"
    assert primary.verdict is verdict
    assert (primary.win_count, primary.tie_count, primary.loss_count) == (c, n - b - c, b)
    assert primary.method == "mcnemar_exact"


def test_the_intervals_that_a_margin_is_compared_with() -> None:
    """The 90 % intervals of the specification."""
    columns = disagreeing(3, 4, 200)
    metric = compare_columns({"exact_match": columns[0]}, {"exact_match": columns[1]}).pairs[0].metrics[0]
    assert metric.equivalence_interval == pytest.approx((-0.019471, 0.029372), abs=1e-6)
    assert metric.needed_case_count is None  # no difference was chosen
    assert metric.table is not None
    assert (metric.table.a_only_count, metric.table.b_only_count) == (3, 4)


def test_noise_of_vectors_is_no_difference() -> None:
    """Similarities that differ by rounding are ties, however many; a small change is not."""
    similarity = [0.8 + 0.001 * at for at in range(40)]
    for change, ties in ((1e-8, 40), (1e-5, 0)):
        comparison = compare_columns(
            {"similarity": similarity}, {"similarity": [value + change for value in similarity]}
        )
        primary = comparison.pairs[0].metric("similarity")
        assert (primary.win_count, primary.tie_count) == (40 - ties, ties)
        assert primary.verdict is (ComparisonVerdict.INCONCLUSIVE if ties else ComparisonVerdict.B_BETTER)
        assert comparison.pairs[0].flipped_case_count == 40 - ties


def test_no_interval_ends_below_its_beginning() -> None:
    """Means outside of a metric's bounds, or of another metric with other bounds, are not clipped to them."""
    rated = [2.0, 3.0, 3.0] * 4
    share = replace(METRICS["exact_match"], name="quality")
    runs = [
        compared("a", {"quality": [0.2, 0.4] * 6}, run_facts=facts("a", {"quality": share})),
        compared("b", {"quality": rated}, run_facts=facts("b", {"quality": METRICS["quality"]})),
    ]
    compared_runs = compare_runs(runs, ComparisonSettings(primary="quality"))
    beyond = compare_columns({"exact_match": rated}, {"exact_match": rated[::-1]})
    for comparison, name in ((compared_runs, "quality"), (beyond, "exact_match")):
        estimates = [variant.metrics[name] for variant in comparison.variants]
        metric = comparison.pairs[0].metric(name)
        for estimate in (*estimates, metric.a, metric.b):
            assert estimate is not None
            assert estimate.interval is not None
            assert estimate.value is not None
            assert estimate.interval[0] <= estimate.value <= estimate.interval[1]
    assert compared_runs.mismatches


def test_lower_latency_is_better() -> None:
    """For a metric where lower is better, a negative difference wins."""
    slow, fast = {"latency": [2.0] * 8}, {"latency": [1.0 + 0.01 * at for at in range(8)]}
    metric = compare_columns(slow, fast, settings=ComparisonSettings(primary="latency")).pairs[0].metric("latency")
    assert metric.verdict is ComparisonVerdict.B_BETTER
    assert metric.difference is not None
    assert metric.difference < 0
    assert (metric.win_count, metric.loss_count) == (8, 0)


def test_the_primary_metric_and_all_others_are_two_families() -> None:
    """Another metric does not weaken the primary one; the others are adjusted among themselves."""
    a_column, b_column = disagreeing(0, 6, 30)
    quality = [3.0] * 30, [4.0] * 7 + [3.0] * 23
    comparison = compare_columns(
        {"exact_match": a_column, "quality": quality[0]}, {"exact_match": b_column, "quality": quality[1]}
    ).pairs[0]
    primary, verdicts, other = (
        comparison.metric("exact_match"),
        comparison.metric("pass_rate"),
        comparison.metric("quality"),
    )
    assert primary.p == primary.p_adjusted == 0.03125
    assert other.p == pytest.approx(2 * 0.5**7)
    assert other.p_adjusted == other.p  # alone: the rows pass by the primary metric, which is no test of its own
    assert (verdicts.p, verdicts.p_adjusted, verdicts.verdict) == (primary.p, primary.p_adjusted, primary.verdict)
    assert verdicts.notes == ("as_primary",)


def test_benjamini_hochberg_is_weaker() -> None:
    """The other adjustment gives smaller p-values for the same figures; a constant metric is no part of the family."""
    constant, some = [3.0] * 30, [4.0] * 6 + [3.0] * 24
    runs = [
        {"exact_match": [1.0] * 30, "quality": constant, "tone": constant, "style": constant},
        {"exact_match": [1.0] * 30, "quality": some, "tone": some, "style": constant},
    ]
    by = {one: compare_columns(*runs, settings=ComparisonSettings(adjust=one)).pairs[0] for one in Adjustment}
    p = {one: [pair.metric(name).p_adjusted for name in ("quality", "tone")] for one, pair in by.items()}
    assert p == {Adjustment.HOLM: [0.0625, 0.0625], Adjustment.BH: [0.03125, 0.03125]}
    style = by[Adjustment.HOLM].metric("style")
    assert (style.p, style.p_adjusted, style.notes) == (1.0, 1.0, ("constant",))


def test_missing_values_are_dropped_and_counted() -> None:
    """A case without a value on one side is no pair; if over half are missing, there is no verdict."""
    some = compare_columns({"quality": [4.0, 5.0, None, 3.0]}, {"quality": [5.0, 5.0, 4.0, None]})
    metric = some.pairs[0].metric("quality")
    assert (metric.pair_count, metric.dropped_case_count) == (2, 2)
    assert metric.verdict is ComparisonVerdict.INCONCLUSIVE
    most = compare_columns({"quality": [4.0, 5.0, None, None, None]}, {"quality": [5.0] * 5}).pairs[0]
    assert most.metric("quality").verdict is ComparisonVerdict.NO_DATA
    assert "3 of 5 common cases have no value" in most.metric("quality").message
    compared_metric = compare_columns({"quality": [4.0]}, {"quality": [5.0]}).pairs[0].metric("quality")
    assert compared_metric.verdict is ComparisonVerdict.NO_DATA
    assert "a test needs at least 2" in compared_metric.message


def test_agent_errors_count_as_the_metric_counts_them() -> None:
    """An error that exact match counts as wrong is a 0, and the figures without errors stand beside it."""
    first = compared("a", {"exact_match": [1.0] * 10})
    second = compared("b", {"exact_match": [0.0, *[1.0] * 9]}, errors=[0])
    metric = compare_runs([first, second], ComparisonSettings()).pairs[0].metric("exact_match")
    assert metric.difference == pytest.approx(-0.1)
    assert metric.without_errors == 0
    assert metric.without_errors_p == 1.0


def test_repeats_are_folded_before_testing() -> None:
    """Three runs of a case are one value, and sign flips compare those."""
    runs = []
    for name, share in (("a", 0), ("b", 2)):
        run = compared(name, {"exact_match": [0.0] * 6})
        for repeat in (1, 2):
            for case in range(6):
                run.cases.take(
                    f"c{case}", {"exact_match": float(repeat <= share)}, passed=repeat <= share, repeat=repeat
                )
        runs.append(run)
    metric = compare_runs(runs, ComparisonSettings()).pairs[0].metric("exact_match")
    assert (metric.pair_count, metric.method) == (6, "sign_flip_exact")
    assert metric.difference == pytest.approx(2 / 3)
    assert metric.p == 0.03125


def test_clusters_are_tested_by_their_sums() -> None:
    """Cases that share a category are one cluster: the specification's example, which four clusters cannot decide."""
    settings = ComparisonSettings(cluster="category", primary="score")
    difference = [0, 1, 1, 0, 0, 0, 1, -1, 1, 1, 0, 0]
    categories = list("aaabbbcccddd")
    runs = [
        compared("a", {"score": [5.0] * 12}, settings=settings, categories=categories),
        compared("b", {"score": [5.0 + each for each in difference]}, settings=settings, categories=categories),
    ]
    metric = compare_runs(runs, settings).pairs[0].metric("score")
    assert (metric.method, metric.cluster_count, metric.notes) == ("sign_flip_exact", 4, ("few_clusters",))
    assert (metric.p, metric.t_p) == pytest.approx((0.25, 0.091721), abs=1e-6)
    assert metric.interval == pytest.approx((-0.099743, 0.766409), abs=1e-6)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("category", "no case of the runs has a category"),
        ("tag:page", "no case of the runs has a tag that begins with 'page:'"),
    ],
)
def test_a_cluster_key_that_no_case_has_is_refused(key: str, message: str) -> None:
    """A cluster key that no case has is refused: each case would silently be its own cluster."""
    settings = ComparisonSettings(cluster=key)
    with pytest.raises(InvalidInputError, match=f"--cluster: {message}"):
        compare_columns({"exact_match": [1.0, 0.0]}, {"exact_match": [1.0, 1.0]}, settings=settings)


def test_clusters_that_one_run_knows_are_those_of_both() -> None:
    """A baseline from before the cases had categories is clustered by those of the other run, in either order."""
    settings = ComparisonSettings(cluster="category")
    runs = [
        compared("a", {"exact_match": [1.0] * 24}, settings=settings),
        compared("b", {"exact_match": [0.0] * 24}, settings=settings, categories=list("abcdefghijkl" * 2)),
    ]
    for pair in (runs, runs[::-1]):
        assert compare_runs(pair, settings).pairs[0].metric("exact_match").cluster_count == 12


@pytest.mark.parametrize(("key_of_b", "clusters"), [("category", 12), ("", None), ("tag:page", None)])
def test_the_clusters_that_all_specs_name_count(key_of_b: str, clusters: int | None) -> None:
    """Without --cluster, the specs' key counts if it is the same in all of them."""
    runs = [
        compared(
            name,
            {"exact_match": [value] * 24},
            settings=ComparisonSettings(cluster="category"),
            categories=list("abcdefghijkl" * 2),
        )
        for name, value in (("a", 1.0), ("b", 0.0))
    ]
    keys = ("category", key_of_b)
    runs = [
        replace(run, facts=replace(run.facts, config={**run.facts.config, "cluster": key}))
        for run, key in zip(runs, keys, strict=True)
    ]
    comparison = compare_runs(runs, ComparisonSettings())
    assert comparison.pairs[0].metric("exact_match").cluster_count == clusters
    assert comparison.settings.cluster == ("category" if clusters else "")


def test_five_clusters_decide_nothing() -> None:
    """Five clusters decide nothing, whatever t is; six do."""
    verdicts = []
    for count in (5, 6):
        settings = ComparisonSettings(cluster="category", primary="score")
        categories = [str(at % count) for at in range(4 * count)]
        better = [1.0 + 0.01 * (at % count) for at in range(4 * count)]
        runs = [
            compared("a", {"score": [0.0] * (4 * count)}, settings=settings, categories=categories),
            compared("b", {"score": better}, settings=settings, categories=categories),
        ]
        metric = compare_runs(runs, settings).pairs[0].metric("score")
        assert metric.t_p is not None
        assert metric.t_p < 1e-6
        verdicts.append((metric.verdict, metric.min_attainable_p))
    assert verdicts == [(ComparisonVerdict.INCONCLUSIVE, 0.0625), (ComparisonVerdict.B_BETTER, 0.03125)]


@pytest.mark.parametrize(
    ("drop", "clusters", "margin", "verdict"),
    [
        (1.0, 20, None, ComparisonVerdict.A_BETTER),
        (0.1, 20, 0.5, ComparisonVerdict.A_BETTER),
        (0.1, 6, None, ComparisonVerdict.A_BETTER),
        (0.1, 5, None, ComparisonVerdict.INCONCLUSIVE),
        (0.1, 5, 0.2, ComparisonVerdict.INCONCLUSIVE),
        (0.0, 20, None, ComparisonVerdict.INCONCLUSIVE),
        (0.0, 20, 0.01, ComparisonVerdict.INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("pattern", [(1, 1, 1), (3, 0, 0)])
def test_clusters_that_all_change_by_the_same(
    drop: float, clusters: int, margin: float | None, verdict: ComparisonVerdict, pattern: tuple[int, ...]
) -> None:
    """Without a standard error signs of the clusters' sums decide, whatever rounding makes of the differences."""
    settings = ComparisonSettings(cluster="category", primary="score", margin=margin)
    categories = [str(at) for at in range(clusters) for _ in pattern]
    before = [0.7 + 0.01 * at for at in range(3 * clusters)]
    after = [value - drop * pattern[at % 3] for at, value in enumerate(before)]
    runs = [
        compared(name, {"score": values}, settings=settings, categories=categories)
        for name, values in (("a", before), ("b", after))
    ]
    metric = compare_runs(runs, settings).pairs[0].metric("score")
    assert metric.verdict is verdict
    assert metric.standard_error == 0
    assert (metric.t, metric.t_p, metric.interval) == (None, None, None)
    assert metric.p == pytest.approx(1.0 if not drop else 2.0 ** (1 - clusters), rel=1e-6)
    assert metric.method == "sign_flip_exact"


def test_a_total_regression_is_one_with_clusters_too() -> None:
    """Every case right before and wrong after, in 20 categories: the pipeline's step fails."""
    settings = ComparisonSettings(cluster="category")
    categories = [str(at // 3) for at in range(60)]
    runs = [
        compared(name, {"exact_match": [value] * 60}, settings=settings, categories=categories)
        for name, value in (("a", 1.0), ("b", 0.0))
    ]
    comparison = compare_runs(runs, settings)
    assert comparison.pairs[0].metric("exact_match").verdict is ComparisonVerdict.A_BETTER
    assert decide(comparison, DecisionRules()).exit_status == 1


@pytest.mark.parametrize(
    ("metric", "cases", "margin", "verdict"),
    [
        ("quality", 60, 0.2, ComparisonVerdict.EQUIVALENT),
        (
            "quality",
            60,
            0.1,
            ComparisonVerdict.INCONCLUSIVE,
        ),  # 4 · 1.67 · sqrt(2 / 61) / sqrt(62) = 0.154 is not excluded
        ("quality", 5, 0.2, ComparisonVerdict.INCONCLUSIVE),
        ("score", 60, 0.2, ComparisonVerdict.INCONCLUSIVE),  # no range is declared
    ],
)
def test_equal_scores_are_equivalent_only_where_they_exclude_a_rare_loss(
    metric: str, cases: int, margin: float, verdict: ComparisonVerdict
) -> None:
    """A difference without spread has no interval of its own; a margin is compared with that of the scale."""
    column = {metric: [3.0 + 0.01 * at for at in range(cases)]}
    settings = ComparisonSettings(primary=metric, margin=margin)
    compared_metric = compare_columns(column, column, settings=settings).pairs[0].metric(metric)
    assert (compared_metric.verdict, compared_metric.t, compared_metric.d_z, compared_metric.interval) == (
        verdict,
        None,
        None,
        None,
    )


def test_three_runs() -> None:
    """The omnibus test, the set that is not worse than the best, and the chance to be best of the specification."""
    rows = ["110", "100", "111", "110", "000", "110", "100", "111"]
    columns = [{"exact_match": [float(row[at]) for row in rows]} for at in range(3)]
    comparison = compare_columns(*columns)
    assert comparison.omnibus["exact_match"].test == "cochran_q"
    assert comparison.omnibus["exact_match"].p == pytest.approx(0.022371, abs=1e-6)
    assert [(pair.a.label, pair.b.label) for pair in comparison.pairs] == [("A", "B"), ("A", "C"), ("B", "C")]
    chances = [variant.best_share for variant in comparison.variants]
    assert chances == pytest.approx([0.949, 0.051, 0.0], abs=0.02)
    assert {run.label for run in comparison.not_worse_than_best} == {"A", "B", "C"}  # eight cases decide nothing
    raw = [pair.metric("exact_match").p for pair in comparison.pairs]
    adjusted = [pair.metric("exact_match").p_adjusted for pair in comparison.pairs]
    assert raw == [0.5, 0.0625, 0.25]
    assert adjusted == [0.5, 0.125, None]  # against A alone: the third pair decides nothing
    third = comparison.pairs[2].metric("exact_match")
    assert (third.verdict, third.reason, third.decides) == (ComparisonVerdict.WITHHELD, "not_adjusted", False)


def test_all_pairs_decide_where_they_are_asked_for() -> None:
    """With `all_pairs` every pair has a verdict, adjusted over all of them."""
    rows = ["110", "100", "111", "110", "000", "110", "100", "111"]
    columns = [{"exact_match": [float(row[at]) for row in rows]} for at in range(3)]
    comparison = compare_columns(*columns, settings=ComparisonSettings(all_pairs=True))
    metrics = [pair.metric("exact_match") for pair in comparison.pairs]
    assert [metric.p_adjusted for metric in metrics] == [0.5, 0.1875, 0.5]
    assert {(metric.verdict, metric.decides) for metric in metrics} == {(ComparisonVerdict.INCONCLUSIVE, True)}


def test_figures_of_a_filter_have_no_verdict() -> None:
    """Cases chosen after the run have figures and never a verdict."""
    a_column, b_column = disagreeing(0, 10, 40)
    comparison = compare_columns(
        {"exact_match": a_column}, {"exact_match": b_column}, settings=ComparisonSettings(where="failed")
    )
    primary = comparison.pairs[0].metric("exact_match")
    assert (primary.verdict, comparison.filtered) == (ComparisonVerdict.WITHHELD, True)
    assert "exploratory" in primary.message
    assert primary.p is not None
    assert decide(comparison, DecisionRules()).exit_status == 0
    assert decide(comparison, DecisionRules(strict=True)).exit_status == 4


def test_flipped_cases_come_worst_first() -> None:
    """Cases that B alone has wrong come before those that A alone has wrong."""
    comparison = compare_columns({"exact_match": [1, 0, 1, 1]}, {"exact_match": [0, 1, 1, 0]})
    assert [(case.case_id, case.a, case.b) for case in comparison.pairs[0].flipped_cases] == [
        ("c0", 1.0, 0.0),
        ("c3", 1.0, 0.0),
        ("c1", 0.0, 1.0),
    ]
    assert comparison.pairs[0].flipped_case_count == 3


def _embedded(**changed: tuple[str, ...]) -> dict[str, Any]:
    known: dict[str, Any] = {"models": ("e 1",), "precisions": ("fast",), "engines": ("packed avx512",)}
    known["forms"] = ("whole vectors",)
    return {"metrics": {"quality": replace(METRICS["quality"], **(known | changed))}}


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ({"partial": True, "finished": 3}, "unfinished", "run b has 3 of 20 rows"),
        ({"fingerprints": ("f" * 64,)}, "judge", "another model, rubric or parameters"),
        ({"metrics": {"quality": replace(METRICS["quality"], version="2")}}, "metric_version", "versions 1 and 2"),
        ({"metrics": {"quality": replace(METRICS["quality"], models=("e 2",))}}, "embedder", "other embeddings"),
        (_embedded(precisions=("exact",)), "embedder", "another precision: exact and fast"),
        (_embedded(forms=("64 values, windowed",)), "embedder", "other windows: 64 values, windowed and whole vectors"),
        (_embedded(engines=("packed avx2",)), "embedder", "another engine: packed avx2 and packed avx512"),
    ],
)
def test_runs_that_must_not_be_compared(changed: dict[str, Any], code: str, message: str) -> None:
    """Such runs have figures without a verdict, and the exit status is 3 unless they are allowed."""
    metrics = _embedded()["metrics"]
    known: dict[str, Any] = {"metrics": metrics, "total": 20, "finished": 20, "fingerprints": ("a" * 64,)}
    a, b = facts("a", **known), facts("b", **(known | changed))
    columns = {"quality": [3.0] * 20}, {"quality": [4.0] * 20}
    runs = [compared(one.run_id, column, run_facts=one) for one, column in zip((a, b), columns, strict=True)]
    comparison = compare_runs(runs, ComparisonSettings())
    assert [one.reason for one in comparison.mismatches] == [code]
    assert message in comparison.mismatches[0].message
    assert comparison.pairs[0].metric("quality").verdict is ComparisonVerdict.WITHHELD
    assert decide(comparison, DecisionRules()).exit_status == 3
    assert decide(comparison, DecisionRules(allow_mismatch=True)).exit_status == 0


def test_a_run_that_does_not_name_its_precision_may_be_compared() -> None:
    """What a run does not record is no mismatch; nor is another engine at the precision exact."""
    known: dict[str, Any] = {"total": 20, "finished": 20}
    heads = [
        {"models": [{"model": "e", "revision": "1"}]},
        {"models": [{"model": "e", "revision": "1", "precision": "exact", "engine": "packed avx512"}]},
        {"models": [{"model": "e", "revision": "1", "precision": "exact", "engine": "packed avx2"}]},
    ]
    runs = [
        compared(
            name, {"quality": [3.0] * 20}, run_facts=facts(name, **known, metrics={"quality": _metric("quality", it)})
        )
        for name, it in zip("abc", heads, strict=True)
    ]
    assert compare_runs(runs, ComparisonSettings()).mismatches == ()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dimension": 64}, "64 values and whole vectors"),
        ({"windowed": True}, "whole vectors and windowed"),
        ({"dimension": 64, "windowed": True}, "64 values, windowed and whole vectors"),
    ],
)
def test_scores_of_other_parts_of_vectors_are_not_compared(changed: dict[str, Any], message: str) -> None:
    """A run that names neither compared whole vectors of cut texts."""
    heads = [{"models": [{"model": "e", "revision": "1", **more}]} for more in ({}, changed)]
    runs = [
        compared(
            name,
            {"quality": [3.0] * 20},
            run_facts=facts(name, total=20, finished=20, metrics={"quality": _metric("quality", it)}),
        )
        for name, it in zip("ab", heads, strict=True)
    ]
    (comparison,) = compare_runs(runs, ComparisonSettings()).mismatches
    assert message in comparison.message


def _configured(name: str, kind: str, parameters: dict[str, Any], threshold: float | None = None) -> dict[str, Any]:
    """Return the head of a run's document with one metric."""
    return {
        "run": {"run_id": name, "name": name, "labels": {}, "dataset": {}},
        "config": {"metrics": [{"name": "m", "kind": kind, "parameters": parameters}]},
        "results": {"m": {"kind": kind, "version": "1", "threshold": threshold, "value": 1.0}},
        "summary": {"total_count": 20, "finished_count": 20, "judging": None},
    }


def _compared_heads(*heads: dict[str, Any], primary: str = "m") -> Comparison:
    """Return the comparison of runs with these heads, each of which has 1 where the one before has 0."""
    runs = []
    for index, head in enumerate(heads):
        run = compared(head["run"]["run_id"], {"m": []}, run_facts=facts_of(head))
        for at in range(20):
            run.cases.take(f"c{at}", {"m": float(index)}, passed=bool(index))
        runs.append(run)
    return compare_runs(runs, ComparisonSettings(primary=primary))


@pytest.mark.parametrize(
    ("kind", "one", "other", "message"),
    [
        ("rouge", {"measure": "rouge1"}, {"measure": "rouge2"}, '`measure` is "rouge1" and "rouge2"'),
        ("contains", {"values": ["yes"]}, {"values": ["no"]}, '`values` is ["no"] and ["yes"]'),
        ("formula", {"formula": "answer_chars"}, {"formula": "tokens"}, "`formula` is"),
        ("rouge", {"measure": "rougeL", "threshold": 0.2}, {"threshold": 0.9}, ""),  # the measure is at its default
        ("mrr", {"k": 3, "goal": 0.5}, {"k": 3.0}, ""),
        ("semantic_similarity", {"model": "a"}, {"model": "b"}, ""),  # the vectors are compared, where there are any
        ("cost", {"input_price": 1.0}, {"input_price": 3.0}, ""),
        ("python", {"function": "m:f", "timeout_s": 1}, {"function": "m:f", "timeout_s": 2}, ""),
        ("of_a_later_version", {"depth": 1}, {"depth": 2}, "`depth` is 1 and 2"),
    ],
)
def test_a_metric_with_another_definition_is_not_compared(
    kind: str, one: dict[str, Any], other: dict[str, Any], message: str
) -> None:
    """Parameters that affect values must be equal; thresholds, goals and prices may differ."""
    comparison = _compared_heads(_configured("a", kind, one), _configured("b", kind, other))
    verdict = comparison.pairs[0].metric("m").verdict
    if not message:
        assert comparison.mismatches == ()
        assert verdict in (ComparisonVerdict.B_BETTER, ComparisonVerdict.A_BETTER)
        return
    (mismatch,) = comparison.mismatches
    assert mismatch.reason == "metric_version"
    assert mismatch.message.startswith("m measures something else in each run: ")
    assert message in mismatch.message
    assert verdict is ComparisonVerdict.WITHHELD
    assert decide(comparison, DecisionRules()).exit_status == 3


def test_rows_that_pass_by_other_thresholds_have_no_common_pass_rate() -> None:
    """The metric is compared, the rows' verdicts are not; a threshold of the run's value alone moves no row."""
    heads = [_configured(name, "rouge", {}, threshold) for name, threshold in (("a", 0.9), ("b", 0.2))]
    comparison = _compared_heads(*heads)
    assert comparison.mismatches == ()
    assert comparison.pairs[0].metric("m").verdict is ComparisonVerdict.B_BETTER
    rate = comparison.pairs[0].metric("pass_rate")
    assert (rate.verdict, rate.message) == (
        ComparisonVerdict.WITHHELD,
        "rows pass by other thresholds in each run: m 0.2 and 0.9",
    )
    by_rate = _compared_heads(*heads, primary="pass_rate")
    assert decide(by_rate, DecisionRules()).exit_status == 3
    assert "rows pass by other thresholds in each run: m 0.2 and 0.9" in by_rate.mismatches[0].message
    of_runs = [_configured(name, "exact_match", {}, threshold) for name, threshold in (("a", 0.9), ("b", 0.2))]
    assert _compared_heads(*of_runs).pairs[0].metric("pass_rate").verdict is ComparisonVerdict.B_BETTER


def test_rows_that_pass_by_a_metric_of_one_run_have_no_common_pass_rate() -> None:
    """A further metric makes rows fail that passed before: the agent got no worse by it."""
    heads = [_configured(name, "exact_match", {}) for name in "ab"]
    heads[1]["results"]["length"] = {
        "kind": "tokens",
        "version": "1",
        "value": 1.0,
        "passed_count": 3,
        "failed_count": 17,
    }
    comparison = _compared_heads(*heads)
    assert comparison.mismatches == ()
    assert comparison.pairs[0].metric("m").verdict is ComparisonVerdict.B_BETTER
    rate = comparison.pairs[0].metric("pass_rate")
    sentence = "rows pass by other metrics in each run: not all have length"
    assert (rate.verdict, rate.message) == (ComparisonVerdict.WITHHELD, sentence)
    by_rate = _compared_heads(*heads, primary="pass_rate")
    assert decide(by_rate, DecisionRules()).exit_status == 3
    assert sentence in by_rate.mismatches[0].message
    heads[1]["results"]["length"] |= {"passed_count": 0, "failed_count": 0}
    assert _compared_heads(*heads).pairs[0].metric("pass_rate").verdict is ComparisonVerdict.B_BETTER


def test_conversations_with_another_value_are_not_compared() -> None:
    """The mean over turns in one run, the worst turn in the other; a run that names neither takes the mean."""
    heads = [_configured(name, "exact_match", {}) for name in "ab"]
    heads[1]["config"]["turns"] = "mean"
    assert _compared_heads(*heads).mismatches == ()
    heads[1]["config"]["turns"] = "worst"
    (mismatch,) = _compared_heads(*heads).mismatches
    assert mismatch.reason == "metric_version"
    assert "`turns` is mean and worst; score both runs with one of them" in mismatch.message


@pytest.mark.parametrize("kind", METRIC_KINDS)
def test_thresholds_of_rows_are_known(kind: str) -> None:
    """A kind whose rows are scored by the threshold is one whose rows pass by it."""
    source = inspect.getsource(sys.modules[METRIC_KINDS[kind].__module__])
    of_rows = _metric("m", {"kind": kind, "threshold": 0.5}).row_threshold is not None
    assert of_rows is ("scored_by_threshold(" in source)


def test_no_interval_of_a_time_begins_below_0() -> None:
    """One slow answer of twenty makes the interval of the mean wide; a difference of times may well be negative."""
    runs = [compared(name, {"latency": [0.1] * 19 + [last]}) for name, last in (("a", 30.0), ("b", 20.0))]
    comparison = compare_runs(runs, ComparisonSettings(primary="latency"))
    low, high = comparison.variants[0].metrics["latency"].interval or (-1.0, -1.0)
    assert (low, high > 4) == (0.0, True)
    difference = comparison.pairs[0].metric("latency").interval
    assert difference is not None
    assert difference[0] < 0


def test_too_few_common_cases() -> None:
    """The overlap is a share of the smaller run; below one half the runs must not be compared."""
    first = compared("a", {"exact_match": [1.0] * 10})
    ids = [f"c{at}" for at in range(4)] + [f"x{at}" for at in range(6)]
    few = compare_runs([first, compared("b", {"exact_match": [1.0] * 10}, ids=ids)], ComparisonSettings())
    assert (few.pairs[0].common_case_count, few.pairs[0].a_only_case_count, few.pairs[0].b_only_case_count) == (4, 6, 6)
    assert few.pairs[0].overlap == 0.4
    assert "4 cases are in both, 40% of the smaller run" in few.mismatches[0].message


@pytest.mark.parametrize("other_ids", [True, False])
def test_no_common_case(other_ids: bool) -> None:
    """Runs over other cases, or over the same ids with other questions, have no figures and end with 3."""
    runs = []
    for name in ("a", "b"):
        run = compared(name, {"exact_match": [], "quality": []})
        for at in range(6):
            case_id, content = (f"{name}{at}", b"") if other_ids else (f"c{at}", name.encode())
            run.cases.take(case_id, {"exact_match": 1.0, "quality": 3.0}, passed=True, content=content)
        runs.append(run)
    comparison = compare_runs(runs, ComparisonSettings())
    assert [one.reason for one in comparison.mismatches] == ["overlap"]
    assert "runs a and b have no case in common" in comparison.mismatches[0].message
    assert {one.verdict for one in comparison.pairs[0].metrics} == {ComparisonVerdict.NO_DATA}
    assert decide(comparison, DecisionRules()).exit_status == 3
    assert decide(comparison, DecisionRules(allow_mismatch=True)).exit_status == 3  # there are no figures


def test_changed_cases_are_not_compared() -> None:
    """A case whose question or references differ between the runs is counted, and no pair."""
    runs = []
    for name, texts in (("a", [b"1", b"2", b"3"]), ("b", [b"1", b"2", b"other"])):
        run = compared(name, {"exact_match": []})
        for at, content in enumerate(texts):
            run.cases.take(f"c{at}", {"exact_match": 1.0}, passed=True, content=content)
        runs.append(run)
    pair = compare_runs(runs, ComparisonSettings()).pairs[0]
    assert (pair.common_case_count, pair.changed_case_count, pair.metric("exact_match").pair_count) == (3, 1, 2)


def test_what_cannot_be_compared_at_all() -> None:
    """One run, the same run twice, no rows, an unknown primary metric: a sentence with what to do."""
    comparison = compared("a", {"exact_match": [1.0, 0.0]})
    with pytest.raises(InvalidInputError, match="at least two runs"):
        compare_runs([comparison], ComparisonSettings())
    with pytest.raises(InvalidInputError, match="run a is given 2 times"):
        compare_runs([comparison, comparison], ComparisonSettings())
    with pytest.raises(InvalidInputError, match="run b has no rows"):
        compare_runs([comparison, compared("b", {"exact_match": []})], ComparisonSettings())
    other = compared("b", {"exact_match": [1.0, 0.0]})
    with pytest.raises(InvalidInputError, match="did you mean 'exact_match'"):
        compare_runs([comparison, other], ComparisonSettings(primary="exact_mach"))
    judged = compared("b", {"exact_match": [1.0, 0.0], "quality": [3.0, 4.0]})
    with pytest.raises(InvalidInputError, match="run a has no metric 'quality'"):
        compare_runs([comparison, judged], ComparisonSettings(primary="quality"))


def test_all_equal_and_all_without_values() -> None:
    """Equal runs differ by 0 with p 1; runs without any value have no data, and nothing is NaN."""
    equal = compare_columns({"exact_match": [1.0] * 5}, {"exact_match": [1.0] * 5}).pairs[0].metric("exact_match")
    assert (equal.difference, equal.p, equal.verdict) == (0.0, 1.0, ComparisonVerdict.INCONCLUSIVE)
    none = compare_columns({"quality": [None, None]}, {"quality": [None, None]})
    assert none.primary == "pass_rate"
    assert {metric.verdict for metric in none.pairs[0].metrics} == {ComparisonVerdict.NO_DATA}
    assert decide(none, DecisionRules()).exit_status == 3


@pytest.mark.parametrize(
    ("columns", "rules", "status", "message"),
    [
        (disagreeing(2, 10, 50), DecisionRules(), 0, ""),
        (disagreeing(10, 2, 50), DecisionRules(), 1, "exact_match of run-1 is significantly worse than that of run-0"),
        (disagreeing(10, 2, 50), DecisionRules(FailOn.NEVER), 0, "significantly worse than that of run-0"),
        (disagreeing(3, 2, 50), DecisionRules(), 0, "exact_match of run-1 against run-0 is inconclusive"),
        (disagreeing(3, 2, 50), DecisionRules(FailOn.INCONCLUSIVE), 1, "is not decided"),
        (disagreeing(3, 2, 50), DecisionRules(strict=True), 4, "exact_match of run-1 against run-0 is inconclusive"),
        (
            disagreeing(3, 2, 50),
            DecisionRules(max_drop=0.01),
            1,
            "0.02 worse than that of run-0, more than",
        ),
        (disagreeing(3, 2, 50), DecisionRules(max_drop=0.02), 0, "is inconclusive"),
        (([0.9] * 20, [0.6] * 20), DecisionRules(FailOn.NEVER, max_drop=0.3), 0, ""),  # 0.9 - 0.6 rounds to above 0.3
        (disagreeing(3, 2, 50), DecisionRules(FailOn.NEVER, max_drop=0.01), 1, "0.02 worse than that of run-0"),
        (disagreeing(2, 10, 50), DecisionRules(max_drop=0.0), 0, ""),
        (([0.85001] * 20, [0.8] * 20), DecisionRules(FailOn.NEVER, max_drop=0.05), 1, "is 0.05001 worse"),
        (([0.850001] * 20, [0.8] * 20), DecisionRules(FailOn.NEVER, max_drop=0.05), 1, "is 0.050001 worse"),
    ],
)
def test_exit_statuses(
    columns: tuple[list[float], list[float]], rules: DecisionRules, status: int, message: str
) -> None:
    """What ends a pipeline's step, and the sentence that says why."""
    decision = decide(compare_columns({"exact_match": columns[0]}, {"exact_match": columns[1]}), rules)
    assert decision.exit_status == status
    assert message in " ".join(decision.reasons)
    assert (decision.outcome is DecisionOutcome.REGRESSION) is (
        " worse than that of run-0" in " ".join(decision.reasons)
    )


def test_what_changed() -> None:
    """Settings are compared one by one, metrics by name."""
    first = {"agent": {"model": "m", "options": {"p": 1}}, "metrics": [{"name": "x", "threshold": 1}], "same": [1]}
    second = {"agent": {"model": "n", "options": {}}, "metrics": [{"name": "x", "threshold": 2}], "same": [1]}
    assert [(change.path, change.values) for change in changes([first, second])] == [
        ("agent.model", ("m", "n")),
        ("agent.options.p", (1, None)),
        ("metrics.x.threshold", (1, 2)),
    ]


def test_a_metric_of_one_run_alone_has_changed_with_its_kind() -> None:
    """The changes name the kind of a metric that the other run lacks."""
    tokens = {"name": "tokens", "kind": "tokens", "parameters": {"threshold": None}}
    short = {"name": "short", "kind": "formula", "parameters": {}}
    changed = changes([{"metrics": [tokens]}, {"metrics": [tokens | {"name": "cost", "kind": "cost"}, short]}])
    assert [(one.path, one.values) for one in changed] == [
        ("metrics.tokens.kind", ("tokens", None)),
        ("metrics.cost.kind", (None, "cost")),
        ("metrics.short.kind", (None, "formula")),
    ]


def test_facts_of_a_document() -> None:
    """Latency, tokens and cost are compared of every run, and never decide by themselves."""
    head = {
        "run": {"run_id": "r", "name": "n", "labels": {}, "dataset": {"dataset_id": "d", "name": "qa"}},
        "prompt_path": "prompts/terse.md",
        "config": {},
        "results": {"speed": {"kind": "latency", "unit": "s", "rule": "at_most", "value": 1.0}},
        "summary": {"total_count": 2, "finished_count": 2, "judging": None, "latency": {"p95_ms": 2000.0}},
    }
    run_facts = facts_of(head)
    assert run_facts.name == "terse"
    assert {name: one.is_implied for name, one in run_facts.metrics.items()} == {
        "speed": False,
        "tokens": True,
        "cost": True,
    }
    assert not any(one.higher_is_better for one in run_facts.metrics.values())
