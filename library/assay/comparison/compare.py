"""Comparing runs, as docs/compare.md describes: join by case, test every metric, adjust, decide, rank."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

from assay.comparison.facts import MetricFacts, RunFacts, default_primary
from assay.comparison.joined import CompleteCases, JoinedRuns, label_of, metric_facts
from assay.comparison.matching import matched
from assay.comparison.metric_pairs import NoVerdict, PairedValues, compare_values, estimate
from assay.comparison.mismatch import Mismatch, MismatchReason
from assay.comparison.model import (
    PASS_RATE,
    Comparison,
    ComparisonSettings,
    ComparisonVerdict,
    Estimate,
    OmnibusTest,
    PairComparison,
    RandomDraws,
    Reason,
    RunRef,
    Side,
    Variant,
)
from assay.comparison.preconditions import Overlap, mismatches, other_rules_of_rows
from assay.comparison.recommendation import Confidence, RankedVariant, VariantRecommendation
from assay.comparison.run_names import run_names
from assay.comparison.stopped import shared_stopping, stopping_outcome
from assay.comparison.verdicts import decided
from assay.comparison.what_changed import CODE, changes
from assay.errors import InvalidInputError
from assay.model.cluster_key import missing_cluster
from assay.model.limits import MAX_COMPARED_RUNS
from assay.parsing.names import unknown_name
from assay.statistics.independent import cochran_q, friedman
from assay.statistics.ranking import best_shares, ranked, ranking_score
from assay.statistics.sign_flips import DRAWS, MORE_DRAWS
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.comparison.cases import CaseScores
    from assay.comparison.model import NoiseFloor

QUESTION_CHARS = 200
"""The most characters of a flipped case's question."""
_MOST_FLIPPED = 50  # of a pair of runs
_MOST_FLIPPED_OF_ALL = 1_000  # a comparison travels in one message
_FILTERED = NoVerdict(Reason.FILTERED, "the cases were chosen by a filter after the run: the figures are exploratory")
_MISMATCH = NoVerdict(Reason.MISMATCH, "the runs must not be compared")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run and its rows.

    Args:
        facts: The run as a whole.
        cases: Its rows, folded by case.
    """

    facts: RunFacts
    cases: CaseScores


def compare_runs(runs: Sequence[ComparedRun], settings: ComparisonSettings) -> Comparison:
    """Compare runs, the first of which is the baseline.

    Args:
        runs: Two to 26 different runs.
        settings: The settings of the comparison.

    Raises:
        InvalidInputError: There are too few or too many runs, a run is repeated, no run has the primary metric, no case
            has the cluster key, or a margin is given without its metric.
    """
    _check(runs)
    runs = matched_runs(runs)
    settings = _with_clusters(runs, settings)
    metrics = common_metrics(runs)
    facts = [run.facts for run in runs]
    rule = shared_stopping(facts)
    primary = rule.metric if rule is not None and not settings.primary else primary_metric(runs, metrics, settings)
    cases = [run.cases for run in runs]
    joined = [JoinedRuns(a, b, cases, settings) for a, b in itertools.combinations(range(len(runs)), 2)]
    found_mismatches = mismatches(facts, metrics, [_overlap(joint, facts) for joint in joined])
    other_rules = other_rules_of_rows(facts, metrics)
    if other_rules and primary == PASS_RATE:
        found_mismatches.append(
            Mismatch(MismatchReason.METRIC_VERSION, f"{other_rules}; run both with one, or choose --primary")
        )
    withheld = _MISMATCH if found_mismatches else _FILTERED if settings.where else None
    names = [primary, *(name for name in (PASS_RATE, *metrics) if name != primary)]
    of_rows = NoVerdict(Reason.MISMATCH, other_rules) if other_rules else None
    values = [
        joint.values(metric_facts(name, metrics), name == primary, withheld or (of_rows if name == PASS_RATE else None))
        for joint in joined
        for name in names
    ]
    better = metric_facts(primary, metrics).higher_is_better
    complete = CompleteCases(cases, settings)
    rows = complete.rows(primary)
    best = best_shares(rows if better else -rows, seed=settings.seed) if len(rows) else [None] * len(runs)
    variants = tuple(_variant(index, run, names, metrics, settings, best[index]) for index, run in enumerate(runs))
    called = run_names(variants)
    variants = tuple(replace(variant, name=called[variant.label]) for variant in variants)
    stopping = stopping_outcome(rule, facts, [len(joint.case_ids) for joint in cases], values[0], settings)
    of_pairs = [(called[label_of(joint.a)], called[label_of(joint.b)]) for joint in joined for _ in names]
    verdicts = decided(compare_values(values, settings), values, settings, stopping, of_pairs)
    pairs = tuple(
        joint.comparison(
            _ref(variants[joint.a]),
            _ref(variants[joint.b]),
            verdicts[at * len(names) : (at + 1) * len(names)],
            joint.flips(primary, metrics),
            most_flipped=min(_MOST_FLIPPED, _MOST_FLIPPED_OF_ALL // len(joined)),
        )
        for at, joint in enumerate(joined)
    )
    ranking = _ranking(variants, primary, better=better)
    return Comparison(
        settings=settings,
        assay_version=__version__,
        primary=primary,
        variants=variants,
        pairs=pairs,
        omnibus=_omnibus(runs, names, complete) if len(runs) > 2 else {},
        mismatches=tuple(found_mismatches),
        changes=tuple(changes([{**run.facts.config, CODE: run.facts.code} for run in runs])),
        ranking=ranking,
        recommendation=_recommendation(ranking, pairs, variants),
        not_worse_than_best=_not_worse(variants, pairs, primary, better=better),
        filtered=bool(settings.where),
        random_draws=RandomDraws(DRAWS, MORE_DRAWS, 10_000),
        stopping=stopping,
    )


def matched_runs(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Return runs whose equal cases have equal ids."""
    return [replace(run, cases=cases) for run, cases in zip(runs, matched([run.cases for run in runs]), strict=True)]


def with_questions(comparison: Comparison, questions: Mapping[str, str]) -> Comparison:
    """Return a comparison with the beginnings of the questions of flipped cases.

    Args:
        comparison: The comparison.
        questions: By the case's id in the first run; only pairs with the first run get questions.
    """

    def asked(pair: PairComparison) -> PairComparison:
        cases = (
            replace(case, question=questions.get(case.case_id, "")[:QUESTION_CHARS]) for case in pair.flipped_cases
        )
        return replace(pair, flipped_cases=tuple(cases))

    first = comparison.variants[0].label
    pairs = (asked(pair) if pair.a.label == first else pair for pair in comparison.pairs)
    return replace(comparison, pairs=tuple(pairs))


def flipped_ids(comparison: Comparison) -> set[str]:
    """Return the ids in the first run of the cases that came out differently in another run."""
    return {case.case_id for pair in comparison.baseline_pairs for case in pair.flipped_cases}


def with_floors(comparison: Comparison, floors: Mapping[str, NoiseFloor]) -> Comparison:
    """Return a comparison with the noise floor of each metric added.

    Args:
        comparison: The comparison.
        floors: The measured noise floors by metric.
    """
    pairs = [
        replace(pair, metrics=tuple(replace(metric, noise_floor=floors.get(metric.metric)) for metric in pair.metrics))
        for pair in comparison.pairs
    ]
    return replace(comparison, pairs=tuple(pairs))


def check_run_ids(run_ids: Sequence[str]) -> None:
    """Check the number of runs, and that they differ.

    Raises:
        InvalidInputError: There are too few or too many runs, or a run is repeated.
    """
    if len(run_ids) < 2:
        raise InvalidInputError("a comparison needs at least two runs: name a second one")
    if len(run_ids) > MAX_COMPARED_RUNS:
        raise InvalidInputError(
            f"{len(run_ids)} runs are more than the {MAX_COMPARED_RUNS} that can be compared at once"
        )
    for run_id, count in Counter(run_ids).items():
        if count > 1:
            raise InvalidInputError(
                f"run {run_id} is given {count} times: a run compared with itself says nothing. `--aa` runs the agent "
                "twice and measures how far it is from itself"
            )


def without_rows(run_id: str) -> InvalidInputError:
    """Return the error for a run without rows."""
    return InvalidInputError(f"run {run_id} has no rows: there is nothing to compare")


def _check(runs: Sequence[ComparedRun]) -> None:
    check_run_ids([run.facts.run_id for run in runs])
    for run in runs:
        if not run.cases.case_ids:
            raise without_rows(run.facts.run_id)


def _with_clusters(runs: Sequence[ComparedRun], settings: ComparisonSettings) -> ComparisonSettings:
    """Return the settings with their cluster key, or else with that of all specs.

    Raises:
        InvalidInputError: No case has the cluster key, so that every case would be a cluster of its own.
    """
    has_clusters = any(run.cases.has_clusters for run in runs)
    if settings.cluster:
        if not has_clusters:
            raise InvalidInputError(f"--cluster: {missing_cluster(settings.cluster, ' of the runs')}")
        return settings
    keys = {run.facts.cluster for run in runs}
    return replace(settings, cluster=keys.pop()) if has_clusters and len(keys) == 1 else settings


def common_metrics(runs: Sequence[ComparedRun]) -> dict[str, MetricFacts]:
    """Return the metrics that all runs have, in the order of the first run, with the facts of the first run.

    A metric whose bounds differ between the runs has none; a metric that one of them implies is implied.
    """
    first, *others = (run.facts.metrics for run in runs)
    common = {name: facts for name, facts in first.items() if all(name in other for other in others)}
    return {
        name: replace(
            facts,
            scale=facts.scale if all(other[name].scale == facts.scale for other in others) else None,
            is_implied=facts.is_implied or any(other[name].is_implied for other in others),
        )
        for name, facts in common.items()
    }


def primary_metric(
    runs: Sequence[ComparedRun], metrics: Mapping[str, MetricFacts], settings: ComparisonSettings
) -> str:
    """Return the metric that decides.

    Raises:
        InvalidInputError: A run lacks the chosen metric.
    """
    if not settings.primary:
        return default_primary(_with_values(runs, metrics))
    if settings.primary in metrics or settings.primary == PASS_RATE:
        return settings.primary
    for run in runs:
        if settings.primary in run.facts.metrics:
            lacking = next(other for other in runs if settings.primary not in other.facts.metrics)
            raise InvalidInputError(
                f"run {lacking.facts.run_id} has no metric {settings.primary!r}, which is to be the primary one: "
                "score it again with the metric, or choose another with --primary"
            )
    raise InvalidInputError(f"--primary: {unknown_name('metric', settings.primary, (PASS_RATE, *metrics))}")


def _with_values(runs: Sequence[ComparedRun], metrics: Mapping[str, MetricFacts]) -> dict[str, MetricFacts]:
    """Return the metrics with values of cases in every run; an aggregate over a run has none."""
    return {name: facts for name, facts in metrics.items() if all(run.cases.has_values(name) for run in runs)}


def _overlap(joined: JoinedRuns, runs: Sequence[RunFacts]) -> Overlap:
    return Overlap(
        runs[joined.a].run_id,
        runs[joined.b].run_id,
        joined.overlap,
        joined.common_case_count,
        joined.changed_case_count,
    )


def _omnibus(runs: Sequence[ComparedRun], names: Sequence[str], complete: CompleteCases) -> dict[str, OmnibusTest]:
    tests = {}
    for name in names:
        rows = complete.rows(name)
        if all(run.cases.is_binary(name) for run in runs):
            test, result = "cochran_q", cochran_q(rows.astype(int))
        else:
            test, result = "friedman", friedman(rows)
        tests[name] = OmnibusTest(test, result.statistic, result.p, len(rows), result.note)
    return tests


def _variant(
    index: int,
    run: ComparedRun,
    names: Sequence[str],
    metrics: Mapping[str, MetricFacts],
    settings: ComparisonSettings,
    best: float | None,
) -> Variant:
    facts, cases = run.facts, run.cases
    estimates = {name: _estimate(name, cases, metrics, settings) for name in names}
    agent_cost = cases.total(_named(facts, "cost"))
    latency_s = _mean(cases, _named(facts, "latency"))
    known = [cost for cost in (agent_cost, facts.judge_cost_usd) if cost is not None]
    return Variant(
        label=label_of(index),
        name=facts.name,
        run_id=facts.run_id,
        prompt_path=facts.prompt_path,
        case_count=len(cases.case_ids),
        repeat_count=cases.repeats,
        partial=facts.partial,
        agent_error_count=cases.agent_errors,
        interrupted_count=cases.interrupted,
        metrics=estimates,
        cost_usd=math.fsum(known) if known else None,
        judge_cost_usd=facts.judge_cost_usd,
        mean_latency_ms=None if latency_s is None else 1000 * latency_s,
        p95_latency_ms=facts.p95_latency_ms,
        mean_tokens=_mean(cases, _named(facts, "tokens")),
        fingerprints=facts.fingerprints,
        invalid_verdict_count=facts.invalid_verdict_count,
        verdict_count=facts.verdict_count,
        dataset_id=facts.dataset_id,
        dataset_name=facts.dataset_name,
        ranking_score=ranking_score(facts.ranking),
        best_share=best,
    )


def _named(facts: RunFacts, kind: str) -> str:
    """Return the name of the run's metric of a kind."""
    return next((metric.name for metric in facts.metrics.values() if metric.kind == kind), kind)


def _mean(cases: CaseScores, metric: str) -> float | None:
    values = cases.surviving(metric)
    values = values[values == values]
    return math.fsum(values.tolist()) / len(values) if len(values) else None


def _estimate(
    name: str, cases: CaseScores, metrics: Mapping[str, MetricFacts], settings: ComparisonSettings
) -> Estimate:
    column = cases.values(name)
    known = column == column
    facts = metric_facts(name, metrics)
    values = PairedValues(
        metric=name,
        is_primary=False,
        higher_is_better=facts.higher_is_better,
        is_binary=cases.is_binary(name),
        bounds=facts.bounds,
        a=column[known],
        b=column[:0],
        clusters=list(compress(cases.clusters, known)) if settings.cluster else None,
    )
    return estimate(values.a, values, settings)


def _ref(variant: Variant) -> RunRef:
    return RunRef(variant.label, variant.run_id)


def _ranking(variants: Sequence[Variant], primary: str, *, better: bool) -> tuple[RankedVariant, ...]:
    """Return the runs by their classical score; without any score, by the primary metric."""
    scores = {variant.label: variant.ranking_score for variant in variants}
    ids = {variant.label: variant.run_id for variant in variants}
    if all(score is None for score in scores.values()):
        sign = 1 if better else -1
        means = {variant.label: variant.metrics[primary].value for variant in variants}
        order = ranked({label: None if mean is None else sign * mean for label, mean in means.items()})
        return tuple(RankedVariant(label, ids[label], None) for label, _ in order)
    return tuple(RankedVariant(label, ids[label], score) for label, score in ranked(scores))


def _recommendation(
    ranking: Sequence[RankedVariant], pairs: Sequence[PairComparison], variants: Sequence[Variant]
) -> VariantRecommendation:
    first, second = ranking[0], ranking[1]
    pair = next(pair for pair in pairs if {pair.a.label, pair.b.label} == {first.label, second.label})
    winners = {
        metric.metric: (pair.a if metric.classical.winner is Side.A else pair.b).label
        for metric in pair.metrics
        if metric.classical is not None and metric.classical.winner is not Side.NEITHER
    }
    recommendation = recommend(RunRef(first.label, first.run_id), second.label, winners)
    differ = (
        len({frozenset(name for name, metric in variant.metrics.items() if metric.case_count) for variant in variants})
        > 1
    )
    return replace(recommendation, note="metrics_differ") if differ and not recommendation.note else recommendation


def recommend(first: RunRef, second: str, winners: Mapping[str, str]) -> VariantRecommendation:
    """Return the recommendation by the first two variants of a ranking and the tests between them.

    Args:
        first: The first of the ranking.
        second: The label of the next one.
        winners: By metric, the label of the significantly better one of the two; other metrics are ties.
    """
    better = tuple(name for name, winner in winners.items() if winner == first.label)
    worse = [name for name, winner in winners.items() if winner == second]
    if len(worse) > len(better):
        return VariantRecommendation(first.label, first.run_id, better, Confidence.LOW, "ranking_and_tests_disagree")
    confidence = Confidence.MEDIUM if better else Confidence.LOW
    if worse:
        confidence = Confidence.LOW
    elif len(better) > 1:
        confidence = Confidence.HIGH
    return VariantRecommendation(first.label, first.run_id, better, confidence)


def _not_worse(
    variants: Sequence[Variant], pairs: Sequence[PairComparison], primary: str, *, better: bool
) -> tuple[RunRef, ...]:
    """Return the leader by the primary metric and then all runs that are not significantly worse than it."""
    known = [(variant.metrics[primary].value, variant) for variant in variants]
    with_value = [(value, variant) for value, variant in known if value is not None]
    if not with_value:
        return ()
    leader = (max if better else min)(with_value, key=lambda entry: entry[0])[1]
    worse = set()
    for pair in pairs:
        verdict = pair.metric(primary).verdict
        if leader.label == pair.a.label and verdict is ComparisonVerdict.A_BETTER:
            worse.add(pair.b.label)
        if leader.label == pair.b.label and verdict is ComparisonVerdict.B_BETTER:
            worse.add(pair.a.label)
    others = (variant for variant in variants if variant is not leader and variant.label not in worse)
    return tuple(map(_ref, (leader, *others)))
