"""comparison_results.json: all figures of a comparison, and the data to recompute them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.comparison.model import Side
from assay.model.plain import plain
from assay.reports.comparison.words.headline import verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions, decision_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import PairComparison, Variant
    from assay.reports.comparison.document.comparison_report import ComparisonReport

SCHEMA = "assay/comparison/1"
_OF_A_RUN = ("timestamp", "prompt_path", "test_cases_path", "test_cases_count", "config", "results", "summary")


def comparison_document(report: ComparisonReport) -> dict[str, Any]:
    """Return the document of a comparison, without NaN and infinity."""
    comparison = report.comparison
    return {
        "schema": SCHEMA,
        "timestamp": report.timestamp,
        "assay_version": comparison.assay_version,
        "comparison_id": report.comparison_id,
        "prompt_paths": [item.prompt_path or None for item in comparison.variants],
        "verdict": {
            "sentence": verdict_sentence(report),
            "banners": banners(report),
            "cautions": cautions(report),
            "decision": decision_sentence(report),
        },
        "decision": plain(report.decision),
        "individual_results": [_individual(report, index, item) for index, item in enumerate(comparison.variants)],
        "statistical_comparison": {
            "pairwise_comparisons": {
                key: _pairwise(report, pair) for key, pair in zip(_keys(report), comparison.pairs, strict=True)
            },
            "overall_ranking": [[report.names[item.label], plain(item.score)] for item in comparison.ranking],
        },
        "recommendation": _recommendation(report),
        "comparison": plain(comparison),
    }


def _individual(report: ComparisonReport, index: int, variant: Variant) -> dict[str, Any]:
    return {
        "label": variant.label,
        "prompt": report.names[variant.label],
        "run_id": variant.run_id,
        "evaluation_file": evaluation_name(index) if report.runs else None,
        **{name: report.heads[index].get(name) for name in _OF_A_RUN},
    }


def evaluation_name(index: int) -> str:
    """Return the name of the file with the document of a run, by the run's position from 0."""
    return f"evaluation_{index + 1}.json"


def _keys(report: ComparisonReport) -> Sequence[str]:
    """Return the names of the pairs: from the runs' names, or from their labels if two pairs would be alike."""
    names, pairs = report.names, report.comparison.pairs
    keys = [f"{names[pair.a.label]}_vs_{names[pair.b.label]}" for pair in pairs]
    return keys if len(set(keys)) == len(keys) else [f"{pair.a.label}_vs_{pair.b.label}" for pair in pairs]


def _pairwise(report: ComparisonReport, pair: PairComparison) -> dict[str, Any]:
    winners = {Side.A: report.names[pair.a.label], Side.B: report.names[pair.b.label]}
    classical = [(metric.metric, metric.classical) for metric in pair.metrics if metric.classical is not None]
    return {
        "overall_winner": winners.get(pair.classical_winner, "tie"),
        "significant_differences": [name for name, test in classical if test.winner is not Side.NEITHER],
        "metrics_comparison": {
            name: {"winner": winners.get(test.winner, "tie"), "test": test.test, "p": plain(test.p)}
            for name, test in classical
        },
    }


def _recommendation(report: ComparisonReport) -> dict[str, Any] | None:
    recommendation = report.comparison.recommendation
    if recommendation is None:
        return None
    scores = {entry.label: entry.score for entry in report.comparison.ranking}
    return {
        "recommended_prompt": report.names[recommendation.label],
        "ranking_score": plain(scores.get(recommendation.label)),
        "significant_improvements": list(recommendation.improvements),
        "confidence": recommendation.confidence.value,
        "note": recommendation.note or None,
    }
