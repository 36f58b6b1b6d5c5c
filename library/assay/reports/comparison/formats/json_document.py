"""comparison_results.json: every number of a comparison and what it can be computed again from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from assay.reports.comparison.words.headline import verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions, decision_sentence, stopping_texts
from assay.reports.comparison.words.tables import pair_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import PairComparison, Variant
    from assay.reports.comparison.document.comparison_report import ComparisonReport

SCHEMA = "assay/comparison/1"
_OF_A_RUN = ("timestamp", "prompt_path", "test_cases_path", "test_cases_count", "config", "results", "summary")


def comparison_document(report: ComparisonReport) -> dict[str, Any]:
    """Return the document of a comparison; it holds neither NaN nor infinity."""
    comparison = report.comparison
    return {
        "schema": SCHEMA,
        "timestamp": report.timestamp,
        "assay_version": comparison.assay_version,
        "comparison_id": report.comparison_id,
        "prompt_paths": [one.prompt_path or None for one in comparison.variants],
        "verdict": {
            "sentence": verdict_sentence(report),
            "banners": banners(report),
            "cautions": cautions(report),
            "decision": decision_sentence(report),
        },
        "decision": plain(report.decision),
        "stopped_early": _stopped_early(report),
        "individual_results": [_individual(report, index, one) for index, one in enumerate(comparison.variants)],
        "statistical_comparison": {
            "pairwise_comparisons": {
                key: _pairwise(report, pair) for key, pair in zip(_keys(report), comparison.pairs, strict=True)
            },
            "overall_ranking": [[report.names[one.label], plain(one.score)] for one in comparison.ranking],
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
        **{name: plain(report.heads[index].get(name)) for name in _OF_A_RUN},
    }


def evaluation_name(index: int) -> str:
    """Return the file that holds the document of a run, by its place from 0."""
    return f"evaluation_{index + 1}.json"


def _stopped_early(report: ComparisonReport) -> dict[str, Any] | None:
    """Return why and when the runs stopped early; null where their rule did not decide, or they have none."""
    stopping = report.comparison.stopping
    if stopping is None or not stopping.has_decided:
        return None
    return {**plain(stopping), "sentences": stopping_texts(report)}


def _keys(report: ComparisonReport) -> Sequence[str]:
    """Return what the pairs are called: by the names of the runs, or by their labels where two would be alike."""
    names, pairs = report.names, report.comparison.pairs
    found = [f"{names[pair.a]}_vs_{names[pair.b]}" for pair in pairs]
    return found if len(set(found)) == len(found) else [pair_key(pair) for pair in pairs]


def _pairwise(report: ComparisonReport, pair: PairComparison) -> dict[str, Any]:
    winners = {"A": report.names[pair.a], "B": report.names[pair.b]}
    classical = [(one.metric, one.classical) for one in pair.metrics if one.classical is not None]
    overall = report.names.get(pair.classical_winner, "tie")
    return {
        "a": pair.a,
        "b": pair.b,
        "overall_winner": overall,
        "significant_differences": [name for name, test in classical if test.winner != "tie"],
        "metrics_comparison": {
            one.metric: {
                "unit": report.units.get(one.metric, ""),
                "winner": None if one.classical is None else winners.get(one.classical.winner, "tie"),
                **plain(one),
            }
            for one in pair.metrics
        },
    }


def _recommendation(report: ComparisonReport) -> dict[str, Any] | None:
    found = report.comparison.recommendation
    if found is None:
        return None
    scores = {one.label: one.score for one in report.comparison.ranking}
    return {
        "recommended_prompt": report.names[found.label],
        "ranking_score": plain(scores.get(found.label)),
        "significant_improvements": list(found.improvements),
        "confidence": found.confidence,
        "note": found.note or None,
    }


def plain(value: Any) -> Any:
    """Return a value as JSON has it: objects as mappings, names of choices as text, numbers that are none as null."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
