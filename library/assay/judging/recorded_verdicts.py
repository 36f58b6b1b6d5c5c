"""Recorded verdicts: a JSON Lines file of a judge's verdicts, used again in place of the judge.

Each line holds one verdict, and what it is on:

    {"case": "red-ring", "rubric": "quality", "question": "What does a red ring mean?", "references": ["Change it."],
     "answer": "I do not know.", "judge": "openai:gpt-4o-mini", "verdict": {"reasoning": "No answer.", "score": 1}}

It counts for an answer of that case with exactly this text, by this rubric, and, where a check of the case is judged,
for this `criterion`. What else it states (`question`, `references`, `contexts`, `rubric_sha256`) must be as it is now;
what it does not state is not compared. With `repeat` (from 1) it counts for that repeat alone, with `turn` (from 0) for
the answer of that turn of a conversation; without it, for the last one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem, first_problems
from assay.judging.rubric_file import read_rubric
from assay.metrics import METRICS
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, criterion_of
from assay.metrics.core.score import JudgeEvidence, usable_references
from assay.metrics.jury.structured_verdict import PARTS, verdict_of
from assay.metrics.quality import RUBRIC as QUALITY
from assay.metrics.quality import read_rating
from assay.model.answers.agent_response import clean_text
from assay.model.case import Case, RecordedVerdict
from assay.model.limits import MAX_CASE_ID_CHARS, MAX_JUDGE_CHARS, MAX_REPEATS
from assay.parsing.names import name_problem, unknown_name
from assay.parsing.strict_json import REPLY_DECODER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from assay.judging.rubric import Rubric
    from assay.model.run_spec import MetricSpec

ANSWER = "answer"
"""The rubric of `judge_score` where a spec names none."""

_NEEDED = ("case", "rubric", "answer", "judge", "verdict")
_WHOLE = {"repeat": (1, MAX_REPEATS), "turn": (0, MAX_REPEATS - 1)}
_STATED = ("criterion", "question", "references", "contexts", "rubric_sha256", "repeat", "turn")
_TEXTS = ("case", "rubric", "judge", "answer", "criterion", "question", "rubric_sha256")
_NAMES = {"case": MAX_CASE_ID_CHARS, "rubric": MAX_JUDGE_CHARS, "judge": MAX_JUDGE_CHARS}
_MOST_PROBLEMS = 50
_SHOWN_CASES = 3


@dataclass(frozen=True, slots=True)
class _Line:
    """One verdict of a file, with the case, answer and rubric that it states; None for each that it omits."""

    case: str
    verdict: RecordedVerdict
    question: str | None = None
    references: tuple[str, ...] | None = None
    contexts: tuple[str, ...] | None = None
    turn: int | None = None

    def turn_of(self, case: Case) -> int:
        """Return the turn of a case that it judges, from 0."""
        return len(case.turns) - 1 if self.turn is None else self.turn

    def is_on(self, case: Case) -> bool:
        """Return whether it judges this case in the dataset's current form."""
        if self.turn_of(case) >= len(case.turns):
            return False
        case = case.up_to(self.turn_of(case))
        return (
            (self.question is None or self.question == clean_text(case.question))
            and (self.references is None or self.references == tuple(map(clean_text, usable_references(case))))
            and (self.contexts is None or self.contexts == tuple(map(clean_text, case.contexts)))
        )


@dataclass(frozen=True, slots=True)
class RecordedVerdicts:
    """The verdicts of one file.

    Args:
        file: Its name, for people.
        judges: Who gave them, sorted.
        lines: By case.
        other_rubric_count: Verdicts by another version of the rubric, which are not used.
    """

    file: str
    judges: tuple[str, ...]
    lines: Mapping[str, Sequence[_Line]]
    other_rubric_count: int = 0

    def of(self, case: Case) -> tuple[RecordedVerdict, ...]:
        """Return the verdicts on a case's answers."""
        return tuple(
            dataclasses.replace(line.verdict, turn_index=line.turn_of(case))
            for line in self.lines.get(case.case_id, ())
            if line.is_on(case)
        )

    def coverage(self, metrics: Iterable[MetricSpec]) -> VerdictCoverage:
        """Return the check of which verdicts a run's cases use and which they lack.

        Args:
            metrics: The metrics of the run that use its judge.
        """
        return VerdictCoverage(self, list(metrics))


class VerdictCoverage:
    """Finds verdicts on removed or changed cases, and cases without a verdict, while the cases are read.

    Args:
        recorded: The verdicts.
        metrics: The metrics of the run that use its judge.
    """

    def __init__(self, recorded: RecordedVerdicts, metrics: Sequence[MetricSpec]) -> None:
        self._recorded = recorded
        kinds = [METRICS[metric.kind] for metric in metrics]
        self._needed = {
            (metric.rubric or rubric, "")
            for metric, kind in zip(metrics, kinds, strict=True)
            if (rubric := getattr(kind, "default_rubric", None)) is not None
        }
        self._makes_checks = any(hasattr(kind, "rubrics") for kind in kinds)
        self._stale_count = 0
        self._missing_count = 0
        self._first_missing: list[str] = []

    def take(self, case: Case) -> None:
        """Compare one case with the verdicts on it."""
        lines = self._recorded.lines.get(case.case_id, ())
        usable = {(line.verdict.rubric, line.verdict.criterion) for line in lines if line.is_on(case)}
        self._stale_count += sum(not line.is_on(case) for line in lines)
        if not self._needed | (_needed_by_checks(case) if self._makes_checks else set()) <= usable:
            self._missing_count += 1
            if len(self._first_missing) < _SHOWN_CASES:
                self._first_missing.append(case.case_id)

    def finish(self, _: object) -> list[Problem]:
        """Return the warnings, after the last case."""
        file, again = self._recorded.file, "record them again"
        warnings: list[Problem] = []
        if count := self._recorded.other_rubric_count:
            sentence = f"{_verdicts(count)} by another version of the rubric and not used"
            warnings.append(Problem(f"{sentence}: {again}", file=file))
        if self._stale_count:
            sentence = (
                f"{_verdicts(self._stale_count)} on another question, reference or context than the dataset holds and "
                "not used"
            )
            warnings.append(Problem(f"{sentence}: {again}", file=file))
        if count := self._missing_count:
            which = ", ".join(self._first_missing) + (", ..." if count > _SHOWN_CASES else "")
            cases_lack = "case lacks" if count == 1 else "cases lack"
            sentence = f"{count:,} {cases_lack} a recorded verdict that the metrics need ({which})"
            warnings.append(Problem(f"{sentence}: their rows will be errors of the judge", file=file))
        return warnings


def answer_sha256(text: str) -> str:
    """Return the fingerprint of an answer's text, in hexadecimal."""
    return hashlib.sha256(clean_text(text).encode()).hexdigest()


def rubric_sha256(rubric_yaml: str) -> str:
    """Return the fingerprint of a user's rubric, in hexadecimal."""
    return hashlib.sha256(rubric_yaml.encode()).hexdigest()


def read_recorded_verdicts(path: Path, rubrics: Mapping[str, str] | None = None) -> RecordedVerdicts:
    """Read a file of recorded verdicts.

    Args:
        path: The file.
        rubrics: The text of each of the user's own rubrics by its name.

    Raises:
        InvalidInputError: All that is wrong with it, each with its line.
    """
    name = str(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError([Problem(f"cannot be read: {error.strerror}", file=name)]) from None
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 (byte {error.start}): save it as UTF-8"
        raise InvalidInputError([Problem(message, file=name)]) from None
    reader = _Reader(name, {rubric: text for rubric, text in (rubrics or {}).items() if text})
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            reader.take(number, line)
    return reader.result()


class _Reader:
    """Collects the lines of a file and all their problems."""

    def __init__(self, file: str, own: Mapping[str, str]) -> None:
        self._file = file
        self._rubrics = {kind.rubric: read_rubric(kind.rubric_yaml) for kind in JUDGED_CHECKS.values()}
        self._rubrics |= {name: read_rubric(text) for name, text in own.items()}
        self._own_sha256 = {name: rubric_sha256(text) for name, text in own.items()}
        self._problems: list[Problem] = []
        self._lines: dict[str, list[_Line]] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._others = 0

    def take(self, number: int, text: str) -> None:
        """Add one line."""
        before = len(self._problems)
        try:
            data = REPLY_DECODER.decode(text.strip())
        except (ValueError, RecursionError) as error:
            self._say(number, f"is not valid JSON: {error}")
            return
        if not isinstance(data, dict):
            self._say(number, "must be an object with case, rubric, answer, judge and verdict")
            return
        line = self._line(number, data)
        if line is None or len(self._problems) > before:
            return
        verdict = line.verdict
        key = (line.case, verdict.rubric, verdict.criterion, verdict.answer_sha256, verdict.repeat, line.turn)
        if key in self._seen:
            self._say(number, f"is on the same answer as line {self._seen[key]}: remove one of them")
        self._seen[key] = number
        if self._is_of_another_version(data):
            self._others += 1
        else:
            self._lines.setdefault(line.case, []).append(line)

    def result(self) -> RecordedVerdicts:
        """Return the verdicts.

        Raises:
            InvalidInputError: All that was wrong.
        """
        if not self._seen and not self._problems:
            self._problems.append(Problem("holds no verdict", file=self._file))
        if self._problems:
            raise InvalidInputError(first_problems(self._problems, _MOST_PROBLEMS))
        judges = sorted({line.verdict.judge for lines in self._lines.values() for line in lines})
        return RecordedVerdicts(self._file, tuple(judges), self._lines, self._others)

    def _say(self, number: int, message: str, field: str = "") -> None:
        self._problems.append(Problem(message, field, self._file, number))

    def _line(self, number: int, data: Mapping[str, Any]) -> _Line | None:
        known = (*_NEEDED, *_STATED)
        for key in data:
            if key not in known:
                self._say(number, unknown_name("field of a recorded verdict", key, known), str(key))
        missing = [key for key in _NEEDED if key not in data]
        if missing:
            self._say(number, f"has no {', '.join(missing)}")
            return None
        for key, value in data.items():
            if problem := _value_problem(key, value):
                self._say(number, problem, key)
        if problem := self._verdict_problem(data["rubric"], data["verdict"]):
            self._say(number, problem, "verdict")
        if self._problems and self._problems[-1].line == number:
            return None
        verdict = {key: value for key, value in data["verdict"].items() if key in self._keys(data["rubric"])}
        return _Line(
            data["case"],
            RecordedVerdict(
                data["rubric"],
                answer_sha256(data["answer"]),
                data["judge"],
                verdict,
                data.get("repeat"),
                clean_text(data.get("criterion", "")),
            ),
            clean_text(data["question"]) if "question" in data else None,
            _texts(data, "references"),
            _texts(data, "contexts"),
            data.get("turn"),
        )

    def _verdict_problem(self, rubric: object, verdict: object) -> str:
        """Return why a verdict is invalid under its rubric; empty if it is valid or the rubric is unused."""
        if not isinstance(verdict, dict) or not isinstance(verdict.get("reasoning"), str):
            return "must be an object with the text reasoning, and the scores"
        if rubric == QUALITY:
            rated = read_rating(JudgeEvidence(verdict)) is not None
            return "" if rated else "must have a whole number from 1 to 5 in score"
        if rubric == ANSWER and ANSWER not in self._rubrics:
            scores = verdict_of(verdict)
            return f"must have a number from 0 to 1 in {scores[len('invalid_') :]}" if isinstance(scores, str) else ""
        known = self._rubrics.get(str(rubric))
        if known is None:
            return ""
        for criterion in known.criteria:
            value = verdict.get(criterion.name)
            if not (criterion.optional and value is None) and not _is_score(value, known):
                whole = "whole " if known.whole else ""
                return f"must have a {whole}number from {known.minimum:g} to {known.maximum:g} in {criterion.name}"
        return ""

    def _keys(self, rubric: str) -> tuple[str, ...]:
        """Return the fields of a verdict that are read; a judge's reply may hold more, such as its verdict_id."""
        if rubric == QUALITY:
            return "reasoning", "score"
        if rubric in self._rubrics:
            return "reasoning", *(criterion.name for criterion in self._rubrics[rubric].criteria)
        return "reasoning", *PARTS, "overall_score"

    def _is_of_another_version(self, data: Mapping[str, Any]) -> bool:
        stated = data.get("rubric_sha256")
        rubric = data["rubric"]
        known = self._own_sha256.get(rubric, rubric_sha256("") if rubric == ANSWER else stated)
        return stated is not None and stated != known


def _needed_by_checks(case: Case) -> set[tuple[str, str]]:
    """Return rubric and criterion of each judged check of a case."""
    judged = (check for check in case.assertions if check.type in JUDGED_CHECKS)
    return {(JUDGED_CHECKS[check.type].rubric, clean_text(criterion_of(check))) for check in judged}


def _texts(data: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    return tuple(map(clean_text, data[key])) if key in data else None


def _value_problem(key: str, value: object) -> str:
    """Return why a value is not valid for a field; empty if it is."""
    if key in ("references", "contexts"):
        is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return "" if is_texts else "must be a list of strings"
    if key in _WHOLE:
        first, last = _WHOLE[key]
        is_within = isinstance(value, int) and not isinstance(value, bool) and first <= value <= last
        return "" if is_within else f"must be a whole number from {first} to {last}, not {value!r:.60}"
    if key not in _TEXTS:
        return ""
    if not isinstance(value, str):
        return f"must be a string, not {value!r:.60}"
    return name_problem(value, _NAMES[key]) if key in _NAMES else ""


def _is_score(value: object, rubric: Rubric) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return rubric.minimum <= value <= rubric.maximum and (not rubric.whole or value == int(value))


def _verdicts(count: int) -> str:
    return f"{count:,} recorded verdict is" if count == 1 else f"{count:,} recorded verdicts are"
