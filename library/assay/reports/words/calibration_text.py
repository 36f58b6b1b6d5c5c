"""Agreement of a run's judges with people, and corrected pass rates, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics import rubric_of
from assay.model.plain import plain
from assay.statistics.corrected_rate import (
    DRAWING_UNKNOWN,
    ENOUGH_OF_A_KIND,
    LABELS_WITHOUT_WEIGHTS,
    LEAST_OF_A_KIND,
    LEAST_OF_A_WEIGHT,
    MOST_OF_SMALL_STRATA,
    MOST_TO_ONE,
    NO_BETTER_THAN_CHANCE,
    TOO_FEW_OF_A_KIND,
    TOO_FEW_OF_A_WEIGHT,
    TOO_UNEVEN,
    WEIGHTED,
    corrected_pass_rate,
    is_uneven,
)
from assay.statistics.figure import NOTHING, Figure
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.judge_calibration import JudgeCalibration
    from assay.model.run import MetricSummary, Run

NO_CALIBRATION = (
    "none of this judge by this rubric: how far it agrees with people is not known; `assay judge calibrate` measures it"
)
_ONLY_WITH_LABELS = "labels_are_weighted"
_WITHHELD = {
    LABELS_WITHOUT_WEIGHTS: "the labelled answers were drawn by the judge's verdict, so that its mistakes among them "
    "are not those among all rows: add a column probability with the share of the drawing for each label "
    "(docs/judges.md), or draw at random with `assay judge sample`",
    DRAWING_UNKNOWN: "it is not known how the labelled answers were drawn, and labels drawn by the judge's verdict "
    "make this rate wrong: say --drawn random or --drawn human-verdict, or add a column probability (docs/judges.md)",
    TOO_FEW_OF_A_KIND: f"people passed, or failed, fewer than {LEAST_OF_A_KIND} of the labelled answers: label more "
    "of them",
    TOO_UNEVEN: f"fewer than {ENOUGH_OF_A_KIND} labels are of one kind, passed or failed by people, and more than "
    f"{MOST_TO_ONE} times as many of the other: label more of the rare kind",
    TOO_FEW_OF_A_WEIGHT: f"fewer than {LEAST_OF_A_WEIGHT} labels share a probability, and these stand for more than "
    f"{MOST_OF_SMALL_STRATA:.0%} of the rows: label more answers of these probabilities",
    NO_BETTER_THAN_CHANCE: "the judge is no better than chance",
    NOTHING: "there are no labels of both kinds, passed and failed",
    _ONLY_WITH_LABELS: "the labels have weights, and count for the run that they were drawn from: "
    "`assay judge calibrate --observed` has them",
}


def why_withheld(corrected: Figure) -> str:
    """Return why there is no corrected pass rate, and a remedy; empty if there is one."""
    return _WITHHELD.get(corrected.reason, corrected.reason)


def corrected_text(corrected: Figure) -> str:
    """Return a corrected pass rate with its interval, or why it is withheld."""
    if corrected.value is None or corrected.interval is None:
        return f"-  withheld: {why_withheld(corrected)}"
    low, high = corrected.interval
    cut = " (cut off: such a rate does not fit the errors found here; label answers of that run)" if low == high else ""
    return f"{corrected.value:.1%} [{low:.1%}, {high:.1%}]{cut}"


def calibration_sentences(run: Run) -> list[str]:
    """Return the agreement of a run's judges with people, or that it is unknown; empty if no judge was asked."""
    if run.summary is None or run.summary.judging is None or not run.summary.judging.fingerprints:
        return []
    return [_sentence(run, calibration) for calibration in run.calibrations] or [NO_CALIBRATION]


def calibration_documents(run: Run) -> list[dict[str, Any]]:
    """Return the calibrations of a run's judges for JSON, each with the corrected pass rates of its metrics."""
    return [
        {
            **plain(calibration),
            "corrected": {
                metric.metric: {
                    **figure.document(),
                    "message": why_withheld(figure) or _caution(figure, calibration) or None,
                }
                for metric, figure in _corrected(run, calibration)
            },
        }
        for calibration in run.calibrations
    ]


def agreement_text(alpha: float | None, interval: tuple[float, float] | None, n: int) -> str:
    """Return alpha with its interval and the number of labels behind it."""
    if alpha is None:
        return f"no alpha from {n} answers"
    between = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval is not None else " without an interval"
    return f"alpha {alpha:.2f}{between} with people on {n} answers"


def _sentence(run: Run, calibration: JudgeCalibration) -> str:
    of = f"{calibration.rubric} {calibration.criterion}".strip()
    agreement = agreement_text(calibration.alpha, calibration.interval, calibration.answer_count)
    rates = "".join(
        f"; {shorten(metric.metric, 40)}: {metric.passed_count} of {metric.scored_count} rows pass, as people would "
        f"{corrected_text(corrected)}{f' ({caution})' if (caution := _caution(corrected, calibration)) else ''}"
        for metric, corrected in _corrected(run, calibration)
    )
    return f"{shorten(of, 80)}: {calibration.trust.upper()}, {agreement} ({calibration.calibrated_at[:10]}){rates}"


def _corrected(run: Run, calibration: JudgeCalibration) -> Iterator[tuple[MetricSummary, Figure]]:
    """Yield the metrics that pass exactly if the calibrated judge passes, with their corrected pass rates."""
    rubrics = {metric.name: rubric_of(metric) for metric in run.spec.metrics}
    for metric in run.summary.metrics if run.summary is not None else ():
        is_asked = rubrics.get(metric.metric) == calibration.rubric and not calibration.criterion
        if (
            is_asked
            and metric.scored_count
            and (metric.threshold, metric.rule) == (calibration.threshold, calibration.rule)
        ):
            yield metric, _corrected_rate(metric.passed_count, metric.scored_count, calibration)


def _corrected_rate(passed: int, n: int, calibration: JudgeCalibration) -> Figure:
    if calibration.drawing == WEIGHTED:
        return Figure(None, n, reason=_ONLY_WITH_LABELS)
    is_known = calibration.sensitivity is not None and calibration.specificity is not None
    return corrected_pass_rate(
        passed / n,
        n,
        specificity=calibration.specificity or 0.0,
        n_failed=calibration.failed_count if is_known else 0,
        sensitivity=calibration.sensitivity or 0.0,
        n_passed=calibration.passed_count if is_known else 0,
        drawn=calibration.drawing,
    )


def _caution(corrected: Figure, calibration: JudgeCalibration) -> str:
    """Return the condition under which the interval of a corrected rate is too narrow; usually empty."""
    if corrected.value is None or not is_uneven(calibration.failed_count, calibration.passed_count):
        return ""
    rare, count = min(
        ("failed", calibration.failed_count), ("passed", calibration.passed_count), key=lambda kind: kind[1]
    )
    return (
        f"people {rare} only {count} of {calibration.failed_count + calibration.passed_count} labelled answers: the "
        "interval is too narrow if these are not drawn from this run"
    )
