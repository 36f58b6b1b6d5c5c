"""How far a judge agrees with people, as it is stored: runs with verdicts of the same fingerprint name it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MOST_CALIBRATIONS = 1_000
"""Most calibrations of a team; the oldest go first."""
MOST_FINGERPRINTS = 20
MAX_CALIBRATION_BYTES = 4_000
"""Largest calibration, as JSON: a list of all those of a team fits in a message."""


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """One calibration of a judge, or of a jury.

    Args:
        rubric: By which rubric it judged.
        criterion: The criterion that counted; empty for the whole.
        fingerprints: Of judge and rubric, sorted; of a jury those of each judge.
        judge: Who judged, for people.
        n: Answers with both a label and a valid verdict.
        measure: Which alpha it is: "alpha_interval" or "alpha_nominal".
        alpha: Krippendorff's alpha of judge and people; None where it cannot be computed.
        low: Lower end of its 95 % interval; None where there is none.
        high: Upper end.
        trust: "trusted", "tentative", "untrusted" or "unknown".
        threshold: From which score an answer passed; None where nothing decided.
        rule: "at_least" or "more_than"; empty without a threshold.
        sensitivity: Share of what people passed that the judge passed; None where it is not known.
        n_passed: Answers that people passed.
        specificity: Share of what people failed that the judge failed; None where it is not known.
        n_failed: Answers that people failed.
        drawn: How the answers were drawn: "random", "human_verdict", "judge_verdict", "weighted" or "unknown".
        calibrated_at: When it was stored, ISO 8601, UTC.
        calibration_id: The same for every calibration of this rubric, criterion and fingerprints; empty before it is
            stored.
    """

    rubric: str
    criterion: str = ""
    fingerprints: tuple[str, ...] = ()
    judge: str = ""
    n: int = 0
    measure: str = ""
    alpha: float | None = None
    low: float | None = None
    high: float | None = None
    trust: str = ""
    threshold: float | None = None
    rule: str = ""
    sensitivity: float | None = None
    n_passed: int = 0
    specificity: float | None = None
    n_failed: int = 0
    drawn: str = ""
    calibrated_at: str = ""
    calibration_id: str = ""

    def is_of(self, fingerprints: Collection[str]) -> bool:
        """Return whether verdicts with these fingerprints are of this judge, or of every judge of this jury."""
        return set(self.fingerprints) <= set(fingerprints)
