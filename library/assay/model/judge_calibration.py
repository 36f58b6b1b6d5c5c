"""Stored calibrations: a judge's agreement with people; runs with verdicts of the same fingerprint report it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from assay.model.interval import Interval

MOST_CALIBRATIONS = 1_000
"""Maximum number of calibrations per team; the oldest are dropped."""
MOST_FINGERPRINTS = 20
MAX_CALIBRATION_BYTES = 4_000
"""Maximum size of a calibration as JSON: a list of all of a team's must fit in a message."""


class AgreementMeasure(StrEnum):
    """The kind of an alpha."""

    ALPHA_INTERVAL = "alpha_interval"
    ALPHA_NOMINAL = "alpha_nominal"


class JudgeTrust(StrEnum):
    """How far a judge can be trusted to judge as people do."""

    TRUSTED = "trusted"
    TENTATIVE = "tentative"
    UNTRUSTED = "untrusted"
    UNKNOWN = "unknown"


class LabelDrawing(StrEnum):
    """How labelled answers were drawn from those of a run."""

    RANDOM = "random"
    HUMAN_VERDICT = "human_verdict"
    JUDGE_VERDICT = "judge_verdict"
    WEIGHTED = "weighted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """A calibration of a judge or jury.

    Args:
        rubric: The rubric of the verdicts.
        criterion: The criterion that counted; empty for the overall verdict.
        fingerprints: Fingerprints of judge and rubric, sorted; for a jury, of each judge.
        judge: The judge's name, for display.
        answer_count: Number of answers with both a label and a valid verdict.
        measure: The alpha used, an `AgreementMeasure`; empty if not stated.
        alpha: Krippendorff's alpha of judge and people; None if it cannot be computed.
        interval: Its 95% interval; None if there is none.
        trust: A `JudgeTrust`; empty if not stated.
        threshold: The score at which an answer passed; None if answers were not decided.
        rule: "at_least" or "more_than"; empty without a threshold.
        sensitivity: Share of the answers passed by people that the judge passed; None if unknown.
        passed_count: Number of answers that people passed.
        specificity: Share of the answers failed by people that the judge failed; None if unknown.
        failed_count: Number of answers that people failed.
        drawing: How the answers were drawn, a `LabelDrawing`; empty if not stated.
        calibrated_at: When it was stored, ISO 8601, UTC.
        calibration_id: The same for every calibration of this rubric, criterion and fingerprints; empty until it is
            stored.
    """

    rubric: str
    criterion: str = ""
    fingerprints: tuple[str, ...] = ()
    judge: str = ""
    answer_count: int = 0
    measure: str = ""
    alpha: float | None = None
    interval: Interval | None = None
    trust: str = ""
    threshold: float | None = None
    rule: str = ""
    sensitivity: float | None = None
    passed_count: int = 0
    specificity: float | None = None
    failed_count: int = 0
    drawing: str = ""
    calibrated_at: str = ""
    calibration_id: str = ""

    def is_of(self, fingerprints: Collection[str]) -> bool:
        """Return whether the fingerprints include this judge, or every judge of this jury."""
        return set(self.fingerprints) <= set(fingerprints)
