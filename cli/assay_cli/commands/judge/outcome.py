"""A calibration: the request, the judges' verdicts, and the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.metrics.jury.jury import jury_label, jury_score
from assay.model.interval import Interval
from assay.model.judge_calibration import JudgeCalibration
from assay.parsing.names import unknown_name
from assay.reports.words.calibration_text import agreement_text, corrected_text, why_withheld
from assay.statistics.calibration import (
    calibrate_labels,
    calibrate_pairs,
    calibrate_scores,
    judges_alpha,
)
from assay.statistics.corrected_rate import AT_RANDOM, RANDOM
from assay.statistics.figure import Figure
from assay_cli.commands.judge.access import gathered, open_judge
from assay_cli.commands.judge.calls import JudgeClient
from assay_cli.commands.judge.labels import LABELS, PAIRS, check_scale
from assay_cli.commands.judge.report import calibration_text, figure_text
from assay_cli.commands.judge.rubrics import PAIRWISE, QUALITY, known_rubric, passing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.statistics.calibration import Calibration, Passing
    from assay.statistics.corrected_rate import Drawing
    from assay_cli.commands.judge.access import JudgeAccess
    from assay_cli.commands.judge.calls import Bill, Judged
    from assay_cli.commands.judge.labels import Labels
    from assay_cli.commands.judge.rubrics import AskedRubric

_FAR_APART = 3.3  # standard errors


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """Settings of a calibration.

    Args:
        labels: Human labels.
        rubric: Name or file of the rubric; None for the default.
        criterion: The criterion that counts; None for the overall score.
        threshold: Lowest passing score; None for the metric's default.
        observed: Passed and total rows of a run; None for no correction.
        drawing: Sampling design of the labelled answers.
    """

    labels: Labels
    rubric: str | None
    criterion: str | None
    threshold: float | None
    observed: tuple[int, int] | None
    drawing: Drawing = AT_RANDOM

    @property
    def is_paired(self) -> bool:
        """Whether the labels compare two answers."""
        return self.labels.kind == PAIRS

    @property
    def asked_rubric(self) -> str:
        """Name or file of the rubric, by default that of the kind of labels."""
        return self.rubric or (PAIRWISE if self.is_paired else QUALITY)

    def checked(self, rubric: AskedRubric) -> Passing | None:
        """Check the settings against the rubric; return the passing rule.

        Raises:
            InvalidInputError: Settings do not fit; lists every problem.
        """
        problems: list[Problem] = []
        gathered(lambda: check_scale(self.labels, rubric), problems)
        passing = None
        if self.is_paired:
            options = (("--criterion", self.criterion), ("--threshold", self.threshold), ("--observed", self.observed))
            problems += [Problem("has no meaning for pairs: leave it out", name) for name, value in options if value]
        else:
            passing = gathered(lambda: passing_of(rubric, self.threshold), problems)
            if self.criterion is not None and self.criterion not in rubric.criteria:
                problems.append(Problem(unknown_name("criterion", self.criterion, rubric.criteria), "--criterion"))
            if passing is None and self.threshold is None and (self.labels.kind == LABELS or self.observed):
                problem = f"is missing: name the lowest passing score of the rubric {rubric.name!r}"
                problems.append(Problem(problem, "--threshold"))
        if problems:
            raise InvalidInputError(problems)
        return passing


class Outcome:
    """The outcome of a calibration.

    Args:
        request: Settings of the calibration.
        rubric: The rubric.
        passing: The passing rule; None if none applies.
        judged: Verdicts by judge; several judges form a jury.
        bill: Counts and cost.
    """

    def __init__(
        self,
        request: CalibrationRequest,
        rubric: AskedRubric,
        passing: Passing | None,
        judged: Sequence[Judged],
        bill: Bill,
    ) -> None:
        self.request = request
        self.rubric = rubric
        self.passing = passing
        self.judged = judged
        self.bill = bill
        self.values = [self._values(verdicts) for verdicts in judged]
        self.single = [self._single(verdicts, scores) for verdicts, scores in zip(judged, self.values, strict=True)]
        self.jury: Calibration | None = None
        self.jury_alpha: Figure | None = None
        if len(judged) > 1:
            self._convene()
        self.corrected = None if request.observed is None else self.decisive.corrected(*request.observed)

    @property
    def decisive(self) -> Calibration:
        """The calibration of the jury, or of the only judge."""
        return self.jury if self.jury is not None else self.single[0]

    def _values(self, judged: Judged) -> list[Any]:
        items = self.request.labels.items
        if self.request.is_paired:
            return [None if choice is None else choice.winner for choice in judged.choices(items)]
        return judged.scores(items, self.rubric, self.request.criterion)

    def _single(self, judged: Judged, scores: list[Any]) -> Calibration:
        if self.request.is_paired:
            return calibrate_pairs(judged.choices(self.request.labels.items), self._people())
        return self._held(scores)

    def _held(self, scores: Sequence[float | None]) -> Calibration:
        if self.request.labels.kind == LABELS:
            assert self.passing is not None
            return calibrate_labels(scores, self._people(), passing=self.passing, drawing=self.request.drawing)
        return calibrate_scores(
            scores, self._people(), whole=self.rubric.whole, passing=self.passing, drawing=self.request.drawing
        )

    def _people(self) -> list[Any]:
        return [item.people for item in self.request.labels.items]

    def _convene(self) -> None:
        rows = list(zip(*self.values, strict=True))
        if self.request.is_paired:
            self.jury_alpha = judges_alpha(self.values, "nominal")
            winners = [jury_label(row).value for row in rows]
            self.jury = calibrate_pairs([], self._people(), winners=winners)
        else:
            self.jury_alpha = judges_alpha(self.values, "interval")
            self.jury = self._held([jury_score(row).value for row in rows])

    def storable(self) -> JudgeCalibration | None:
        """Return the calibration to store for runs with the same judge; None for pairs, or without a called verdict."""
        decisive = self.decisive
        fingerprints = {fingerprint for judged in self.judged for fingerprint in judged.fingerprints}
        if self.request.is_paired or not decisive.n or not fingerprints:
            return None
        alpha = decisive.figures[decisive.measure]
        nothing = Figure(None, 0)
        right, wrong = (decisive.figures.get(name, nothing) for name in ("sensitivity", "specificity"))
        return JudgeCalibration(
            rubric=self.rubric.name,
            criterion=self.request.criterion or "",
            fingerprints=tuple(sorted(fingerprints)),
            judge=" + ".join(judged.name for judged in self.judged),
            answer_count=decisive.n,
            measure=decisive.measure,
            alpha=alpha.value,
            interval=Interval.of(alpha.interval),
            trust=decisive.trust.level,
            threshold=None if self.passing is None else self.passing.threshold,
            rule="" if self.passing is None else self.passing.rule,
            sensitivity=right.value,
            passed_count=right.n,
            specificity=wrong.value,
            failed_count=wrong.n,
            drawing=decisive.drawn,
        )

    def doubt(self) -> str:
        """Return a warning if the labelled answers can hardly be a random sample of the corrected rows; else empty.

        In a random sample, the judge passes about the same share of both: the limit is exceeded by chance once in
        1,000.
        """
        labels = self.decisive.passes
        if self.request.observed is None or self.decisive.drawn != RANDOM or not labels:
            return ""
        passed, total = self.request.observed
        ours = sum(label.judge_passes for label in labels)
        both = (passed + ours) / (total + len(labels))
        error = math.sqrt(both * (1 - both) * (1 / total + 1 / len(labels)))
        if abs(passed / total - ours / len(labels)) <= _FAR_APART * error:
            return ""
        return (
            f"the judge passes {ours / len(labels):.0%} of the labelled answers and {passed / total:.0%} of the rows: "
            "they were hardly drawn at random from these rows, and the corrected rate may be wrong"
        )

    def mean(self, index: int) -> float | None:
        """Return the mean score of a judge; None for pairs or without scores."""
        scores = [] if self.request.is_paired else [score for score in self.values[index] if score is not None]
        return math.fsum(scores) / len(scores) if scores else None

    def document(self) -> dict[str, Any]:
        """Return the outcome as a JSON document."""
        rubric, passing = self.rubric, self.passing
        return {
            "labels": self.request.labels.file,
            "kind": self.request.labels.kind,
            "rubric": {
                "name": rubric.name, "minimum": rubric.minimum, "maximum": rubric.maximum, "whole": rubric.whole,
            },
            "criterion": self.request.criterion,
            "passing": None if passing is None else {"threshold": passing.threshold, "rule": passing.rule},
            "judges": [
                {
                    "judge": judged.name, "models": sorted(judged.models), "fingerprints": sorted(judged.fingerprints),
                    "mean": self.mean(index), "calibration": self.single[index].document(),
                }
                for index, judged in enumerate(self.judged)
            ],
            "jury": None if self.jury is None or self.jury_alpha is None else {
                "judges": len(self.judged), "alpha": self.jury_alpha.document(), "calibration": self.jury.document(),
            },
            "corrected_pass_rate": None if self.corrected is None else {
                **self.corrected.document(), "message": why_withheld(self.corrected) or self.doubt() or None,
            },
            "bill": self.bill.document(),
        }  # fmt: skip

    def text(self) -> str:
        """Return the outcome as text."""
        parts = []
        for index, judged in enumerate(self.judged):
            mean = self.mean(index)
            shown = f"  mean {mean:.3f}" if mean is not None else ""
            heading = f"judge  {judged.name}  rubric {self.rubric.name}{shown} "
            parts.append(calibration_text(self.single[index], heading))
        if self.jury is not None and self.jury_alpha is not None:
            value, why = figure_text("alpha", self.jury_alpha)
            heading = f"jury  {len(self.judged)} judges, alpha among them {value if value != '-' else why} "
            parts.append(calibration_text(self.jury, heading))
        if self.corrected is not None and self.request.observed is not None:
            passed, total = self.request.observed
            alpha = self.decisive.figures[self.decisive.measure]
            parts.append(f"pass rate  {passed / total:.1%} of {total} rows as judged, as people would "
                         f"{corrected_text(self.corrected)}\n"
                         "by this calibration: "
                         f"{agreement_text(alpha.value, alpha.interval, self.decisive.n)}")  # fmt: skip
            parts += [f"warning: {self.doubt()}"] if self.doubt() else []
        return "\n\n".join([*parts, self.bill.sentence()])


async def calibrated(access: JudgeAccess, request: CalibrationRequest) -> Outcome:
    """Call the judges and compare them with the human labels.

    Raises:
        InvalidInputError: The labels do not fit the rubric, or the service refuses the request.
        SetupError: No judge service can be reached or started.
    """
    rubric = known_rubric(request.asked_rubric)
    if rubric is not None:
        request.checked(rubric)  # before a service is started
    async with open_judge(access) as stub:
        client = JudgeClient(stub, access)
        rubric = rubric or await client.rubric(request.asked_rubric)
        passing = request.checked(rubric)
        judged = [await client.judge_all(request.labels.items, rubric, name) for name in access.names or (None,)]
    return Outcome(request, rubric, passing, judged, client.bill)
