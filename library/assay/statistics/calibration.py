"""Calibration of a judge against human labels: figures of agreement, the confusion table, and trust.

Several people count as one rater: their scores by the mean, their labels by the majority. Items without labels or with
a tie between people are left out, and so are items without a valid verdict, which the invalid rate counts. On a scale
of whole numbers, kappas and the table round means to the nearest whole number. The agreement between people is a
separate figure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.statistics.agreement import accuracy, cohen_kappa, confusion, spearman, weighted_kappa
from assay.statistics.agreement_interval import (
    INTERVAL_ALPHA,
    KAPPA,
    NOMINAL_ALPHA,
    QUADRATIC_KAPPA,
    Measure,
    agreement_interval,
)
from assay.statistics.corrected_rate import (
    AT_RANDOM,
    JUDGE_VERDICT,
    LABELS_WITHOUT_WEIGHTS,
    RANDOM,
    WEIGHTED,
    Drawing,
    DrawnLabel,
    corrected_pass_rate,
    weighted_pass_rate,
)
from assay.statistics.figure import NOTHING, Figure, rate
from assay.statistics.intervals import wilson
from assay.statistics.krippendorff import LEVELS, Level, alpha
from assay.statistics.pairs import PairJudgement, position_figures
from assay.statistics.thresholds import holds
from assay.statistics.trust import Trust, judge_trust

PASS, FAIL = "pass", "fail"


@dataclass(frozen=True, slots=True)
class Passing:
    """The rule by which a score passes.

    Args:
        threshold: The threshold on the rubric's scale.
        rule: "at_least" or "more_than".
    """

    threshold: float
    rule: str = "at_least"

    def label(self, score: float) -> str:
        """Return "pass" or "fail"."""
        return PASS if holds(score, self.rule, self.threshold) else FAIL


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Args:
        kind: "scores", "labels" or "pairs".
        n: Items with both a label and a valid verdict.
        n_items: All items.
        figures: By name, in display order.
        confusion: The judge's labels (inner) for each label of people (outer).
        labels: The labels of that table in order.
        measure: The figure that decides about trust.
        trust: The trust in the judge.
        drawn: How the items were drawn: "random", "human_verdict", "judge_verdict", "weighted" or "unknown".
        passes: Whether judge and people pass each item, and its weight; empty where nothing decides.
    """

    kind: str
    n: int
    n_items: int
    figures: Mapping[str, Figure]
    confusion: Mapping[str, Mapping[str, int]]
    labels: tuple[str, ...]
    measure: str
    trust: Trust
    drawn: str = RANDOM
    passes: tuple[DrawnLabel, ...] = ()

    def corrected(self, passed: int, n: int) -> Figure:
        """Return the pass rate that people would have given.

        Args:
            passed: Rows that the judge passes.
            n: Rows that it judged, above 0.

        Returns:
            No value if there are too few labels, or if they were drawn in a way that does not allow a correction.
        """
        if self.drawn == WEIGHTED:
            return weighted_pass_rate(passed / n, n, self.passes)
        right, wrong = (self.figures.get(name, Figure(None, 0)) for name in ("sensitivity", "specificity"))
        return corrected_pass_rate(
            passed / n,
            n,
            specificity=wrong.value or 0.0,
            n_failed=wrong.n if wrong.value is not None else 0,
            sensitivity=right.value or 0.0,
            n_passed=right.n if right.value is not None else 0,
            drawn=self.drawn,
        )

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "kind": self.kind,
            "answer_count": self.n,
            "item_count": self.n_items,
            "figures": {name: figure.document() for name, figure in self.figures.items()},
            "confusion": {label: dict(row) for label, row in self.confusion.items()},
            "labels": list(self.labels),
            "measure": self.measure,
            "drawn": self.drawn,
            "trust": {
                "level": self.trust.level,
                "sentence": self.trust.sentence,
                "warnings": list(self.trust.warnings),
            },
        }


def calibrate_scores(
    judge: Sequence[float | None],
    people: Sequence[Sequence[float]],
    *,
    whole: bool,
    passing: Passing | None = None,
    drawing: Drawing = AT_RANDOM,
) -> Calibration:
    """Compare a judge's scores with human scores.

    Args:
        judge: A score per item on the rubric's scale; None without a valid verdict.
        people: The human scores of each item, on the same scale; empty if there are none.
        whole: Whether the scale has only whole numbers.
        passing: The rule by which a score passes; None without a threshold.
        drawing: How the items were drawn.
    """
    means = [math.fsum(ratings) / len(ratings) if ratings else None for ratings in people]
    both = [(a, b) for a, b in zip(judge, means, strict=True) if a is not None and b is not None]
    passes: tuple[DrawnLabel, ...] = ()
    ours, theirs = [a for a, _ in both], [b for _, b in both]
    figures = {"invalid_rate": _invalid(judge)}
    table: Mapping[str, Mapping[str, int]] = {}
    labels: tuple[str, ...] = ()
    if whole:
        rounded = [(math.floor(a + 0.5), math.floor(b + 0.5)) for a, b in both]
        figures |= _of_labels([a for a, _ in rounded], [b for _, b in rounded], weighted=True)
        labels = tuple(str(value) for value in sorted({value for pair in rounded for value in pair}))
        table = confusion([str(a) for a, _ in rounded], [str(b) for _, b in rounded])
    figures["spearman"] = spearman(ours, theirs)
    figures |= _alphas(both, people, LEVELS if whole else ("ordinal", "interval"), "interval")
    figures["mean_difference"] = _mean([a - b for a, b in both])
    figures["mean_distance"] = _mean([abs(a - b) for a, b in both])
    if passing is not None:
        verdicts = [passing.label(a) for a in ours], [passing.label(b) for b in theirs]
        figures |= {f"pass_{name}": figure for name, figure in _of_labels(*verdicts).items()}
        passes = _passes(verdicts, _weights(judge, means, drawing))
        figures |= _errors(passes, drawing)
        table, labels = (table, labels) if whole else (confusion(*verdicts), (PASS, FAIL))
    calibration = _calibration("scores", both, figures, table, labels, "alpha_interval", len(judge))
    return replace(calibration, drawn=drawing.how, passes=passes)


def calibrate_labels(
    judge: Sequence[float | None],
    people: Sequence[Sequence[str]],
    *,
    passing: Passing,
    drawing: Drawing = AT_RANDOM,
) -> Calibration:
    """Compare a judge's pass or fail with that of people.

    Args:
        judge: A score per item; None without a valid verdict.
        people: "pass" or "fail" by each person who labelled an item.
        passing: The rule by which a score passes.
        drawing: How the items were drawn.
    """
    verdicts = [None if score is None else passing.label(score) for score in judge]
    both = _both(verdicts, people)
    ours, theirs = [a for a, _ in both], [b for _, b in both]
    figures = {"invalid_rate": _invalid(judge), **_of_labels(ours, theirs)}
    figures |= _alphas(both, people, ("nominal",), "nominal")
    passes = _passes(
        (ours, theirs), _weights(verdicts, [majority(labels_of_item) for labels_of_item in people], drawing)
    )
    figures |= _errors(passes, drawing)
    calibration = _calibration(
        "labels", both, figures, confusion(ours, theirs), (PASS, FAIL), "alpha_nominal", len(judge)
    )  # fmt: skip
    return replace(calibration, drawn=drawing.how, passes=passes)


def calibrate_pairs(
    judge: Sequence[PairJudgement | None],
    people: Sequence[Sequence[str]],
    *,
    winners: Sequence[str | None] | None = None,
) -> Calibration:
    """Compare a judge's choice between two answers with that of people.

    Args:
        judge: The verdicts on each pair in both orders; None if either verdict is invalid.
        people: "a", "b" or "tie" by each person who labelled a pair.
        winners: The winners of the pairs if `judge` does not determine them, as with a jury; there are then no figures
            of position bias.
    """
    choices = (
        [None if judgement is None else judgement.winner for judgement in judge] if winners is None else list(winners)
    )
    both = _both(choices, people)
    ours, theirs = [a for a, _ in both], [b for _, b in both]
    figures = {"invalid_rate": _invalid(choices), **_of_labels(ours, theirs)}
    figures |= _alphas(both, people, ("nominal",), "nominal")
    if winners is None:
        figures |= position_figures([judgement for judgement in judge if judgement is not None])
    return _calibration(
        "pairs", both, figures, confusion(ours, theirs), ("a", "b", "tie"), "alpha_nominal", len(choices)
    )  # fmt: skip


def judges_alpha(judges: Sequence[Sequence[Hashable | None]], level: Level) -> Figure:
    """Return the agreement of several judges.

    Args:
        judges: The verdict of each judge on each item; None without a valid verdict.
        level: "interval" for scores, "nominal" for labels.
    """
    return alpha(list(zip(*judges, strict=True)), level)


def majority(labels: Sequence[str]) -> str | None:
    """Return the label that most people gave; None without labels or in a tie."""
    ranked = Counter(labels).most_common(2)
    return None if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]) else ranked[0][0]


def _both(judge: Sequence[str | None], people: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    agreed = [majority(labels) for labels in people]
    return [(a, b) for a, b in zip(judge, agreed, strict=True) if a is not None and b is not None]


def _invalid(judge: Sequence[object]) -> Figure:
    return rate(sum(verdict is None for verdict in judge), len(judge))


def _mean(values: Sequence[float]) -> Figure:
    return Figure(math.fsum(values) / len(values), len(values)) if values else Figure(None, 0, reason=NOTHING)


def _of_labels(ours: Sequence[Any], theirs: Sequence[Any], *, weighted: bool = False) -> dict[str, Figure]:
    both = list(zip(ours, theirs, strict=True))
    figures = {"accuracy": accuracy(ours, theirs), "kappa": _with_interval(cohen_kappa(ours, theirs), both, KAPPA)}
    if weighted:
        figures["quadratic_kappa"] = _with_interval(weighted_kappa(ours, theirs), both, QUADRATIC_KAPPA)
    return figures


def _with_interval(figure: Figure, both: Sequence[tuple[Hashable, Hashable]], measure: Measure) -> Figure:
    return figure if figure.value is None else replace(figure, interval=agreement_interval(both, measure))


def _alphas(
    both: Sequence[tuple[Hashable, Hashable]],
    people: Sequence[Sequence[Hashable]],
    levels: Sequence[Level],
    measure: Level,
) -> dict[str, Figure]:
    """Return alpha of judge and people at some levels, with an interval at one, and that of people alone.

    People count as one rater, since many people who agree with each other would hide a judge who disagrees.
    """
    figures = {f"alpha_{level}": alpha(both, level) for level in levels}
    kind = NOMINAL_ALPHA if measure == "nominal" else INTERVAL_ALPHA
    figures[f"alpha_{measure}"] = _with_interval(figures[f"alpha_{measure}"], both, kind)
    if any(len(labels) > 1 for labels in people):
        figures["alpha_people"] = alpha(people, measure)
    return figures


def _weights(judge: Sequence[object], people: Sequence[object], drawing: Drawing) -> list[float]:
    """Return the weights of the items with verdicts of both judge and people."""
    weights = drawing.weights or (1.0,) * len(judge)
    rows = zip(judge, people, weights, strict=True)
    return [weight for ours, theirs, weight in rows if ours is not None and theirs is not None]


def _passes(verdicts: tuple[Sequence[str], Sequence[str]], weights: Sequence[float]) -> tuple[DrawnLabel, ...]:
    return tuple(
        DrawnLabel(ours == PASS, theirs == PASS, weight)
        for ours, theirs, weight in zip(*verdicts, weights, strict=True)
    )


def _errors(passes: Sequence[DrawnLabel], drawing: Drawing) -> dict[str, Figure]:
    """Return the judge's sensitivity and specificity against people."""
    return {
        "sensitivity": _share([item for item in passes if item.people_pass], drawing, passes=True),
        "specificity": _share([item for item in passes if not item.people_pass], drawing, passes=False),
    }


def _share(labels: Sequence[DrawnLabel], drawing: Drawing, *, passes: bool) -> Figure:
    """Return the weighted share of labels that the judge passes, or fails.

    Its interval is that of an effective number of labels, (Σ w)² / Σ w² (L. Kish, "Survey sampling", 1965).
    """
    hits = [label for label in labels if label.judge_passes is passes]
    if drawing.how == JUDGE_VERDICT:
        return Figure(None, len(labels), reason=LABELS_WITHOUT_WEIGHTS)
    if drawing.weights is None or not labels:
        return rate(len(hits), len(labels))
    total = math.fsum(label.weight for label in labels)
    share = math.fsum(label.weight for label in hits) / total
    effective = total**2 / math.fsum(label.weight**2 for label in labels)
    return Figure(share, len(labels), wilson(share * effective, effective))


def _calibration(
    kind: str,
    both: Sequence[object],
    figures: Mapping[str, Figure],
    table: Mapping[str, Mapping[str, int]],
    labels: tuple[str, ...],
    measure: str,
    n_items: int,
) -> Calibration:
    return Calibration(kind, len(both), n_items, figures, table, labels, measure, judge_trust(figures, measure))
