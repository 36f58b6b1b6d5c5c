"""Files of answers with human labels: read whole, and refused with every problem at once.

Every record has a question, and an answer with people's scores or verdicts, or two answers with people's choice.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.readers.detection import recognise_container
from assay.datasets.records import BadFileError, find_unusable, shown
from assay.errors import DatasetError, Problem
from assay.statistics.corrected_rate import RANDOM, UNKNOWN, WEIGHTED, Drawing
from assay.text.csv_text import csv_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.datasets.records import Record
    from assay_cli.commands.judge.rubrics import AskedRubric

SCORES, LABELS, PAIRS = "scores", "labels", "pairs"

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "case_id"),
    "question": ("question", "input", "query", "prompt"),
    "answer": ("answer", "output", "response"),
    "answer_a": ("answer_a", "output_1", "response_a"),
    "answer_b": ("answer_b", "output_2", "response_b"),
    "reference": ("reference", "expected", "expected_answer", "ground_truth"),
    "contexts": ("contexts", "context"),
    "human": ("human", "label", "score", "human_score", "preference", "winner"),
    "probability": ("probability", "sampling_probability"),
    "weight": ("weight", "sampling_weight"),
}
"""What a record may hold, and the names under which it is found; further people are `human_...`."""

_PASS = {"pass", "passed", "good", "true", "yes", "correct"}
_FAIL = {"fail", "failed", "bad", "false", "no", "incorrect", "wrong"}
_FIRST = {"a", "1", "first", "answer_a", "output_1"}
_SECOND = {"b", "2", "second", "answer_b", "output_2"}
_TIE = {"tie", "0", "equal", "both", "neither", "draw", "same"}
_MORE = "human_"
_MAX_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class Item:
    """One labelled answer, or pair of answers.

    Args:
        name: Its id, or its number.
        answer: The answer; the first one of a pair.
        second: The second answer of a pair.
        reference: The reference answer; None where there is none.
        contexts: Passages that the answer should rest on.
        people: What people said: numbers, "pass" or "fail", or "a", "b" or "tie".
        weight: For how many rows it stands: 1 / the probability with which it was drawn; None where the file does not
            say.
        line: Its line in the file.
    """

    name: str
    question: str
    answer: str
    second: str | None = None
    reference: str | None = None
    contexts: tuple[str, ...] = ()
    people: tuple[float | str, ...] = ()
    weight: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """A file of them.

    Args:
        kind: "scores", "labels" or "pairs".
        items: At least one.
        file: The file as the user named it.
    """

    kind: str
    items: tuple[Item, ...]
    file: str

    def drawing(self, drawn: str | None) -> Drawing:
        """Return how the items were drawn.

        Args:
            drawn: What the user says: "random", "human-verdict" or "judge-verdict"; None for nothing.
        """
        weights = [item.weight for item in self.items if item.weight is not None]
        if len(set(weights)) > 1:
            return Drawing(WEIGHTED, tuple(weights))
        return Drawing(RANDOM if weights else drawn.replace("-", "_") if drawn else UNKNOWN)


def read_items(path: Path, *, labelled: bool = True) -> Labels:
    """Return what a file of labels holds.

    Args:
        path: JSON Lines, JSON, CSV, TSV, YAML or Parquet.
        labelled: Whether labels are read, of which every item then needs one.

    Raises:
        DatasetError: All that is wrong with it, each with line and field.
    """
    problems: list[Problem] = []
    records: list[Record] = []
    cells = False
    try:
        container = recognise_container(path, None)
        cells = container.kind in ("csv", "tsv")
        for record in container.records():
            records.append(record)
            if len(records) > _MAX_ITEMS:
                raise BadFileError(f"holds more than {_MAX_ITEMS:,} records: calibrate with a sample of them")
    except BadFileError as error:
        problems.append(Problem(error.message, file=str(path), line=error.line))
    except OSError as error:
        problems.append(Problem(f"cannot be read: {error.strerror or error}", file=str(path)))
    reader = _Reader(str(path), problems, labelled=labelled, cells=cells)
    items = reader.items(records)
    if not items and not problems:
        problems.append(Problem("holds no record", file=str(path)))
    if problems:
        raise DatasetError(problems)
    return Labels(reader.kind, tuple(items), str(path))


def check_scale(labels: Labels, rubric: AskedRubric) -> None:
    """Refuse labels that a rubric cannot be held against.

    Raises:
        DatasetError: Scores are not on its scale, or it is of the other kind.
    """
    if rubric.compares != (labels.kind == PAIRS):
        what = "compares two answers, but the file holds single ones" if rubric.compares else (
            "scores one answer, but the file holds pairs"
        )  # fmt: skip
        raise DatasetError([Problem(f"the rubric {rubric.name!r} {what}", "--rubric", labels.file)])
    low, high = rubric.minimum, rubric.maximum
    problems = [
        Problem(f"{score:g} is not on the scale of {rubric.name!r}, {low:g} to {high:g}{_hint(score)}", "human",
                labels.file, item.line)
        for item in labels.items for score in item.people if isinstance(score, int | float) and not low <= score <= high
    ]  # fmt: skip
    if problems and rubric.text:
        scores = [score for item in labels.items for score in item.people if isinstance(score, int | float)]
        scale = f"scale: {{minimum: {min(*scores, low):g}, maximum: {max(*scores, high):g}}}"
        message = f"write the scale of the labels into the rubric: {scale}; without one it is 0 to 1"
        problems.append(Problem(message, "--rubric", labels.file))
    if problems:
        raise DatasetError(problems)


def _hint(score: float) -> str:
    return ": where 1 and 0 mean right and wrong, write pass and fail" if score in (0, 1) else ""


class _Reader:
    """Reads records, and says what is wrong with all of them."""

    def __init__(self, file: str, problems: list[Problem], *, labelled: bool, cells: bool) -> None:
        self._file = file
        self._problems = problems
        self._labelled = labelled
        self._cells = cells
        self._names: Counter[str] = Counter()
        self._weighs = False
        self._lacking: set[str] = set()  # answers that no record has, or that may not be absent in this kind of file
        self._line: int | None = None
        self.kind = SCORES

    def items(self, records: Sequence[Record]) -> list[Item]:
        """Return the items that are right."""
        held = [record.data for record in records if isinstance(record.data, dict)]
        is_paired = any(self._find(data, "answer_a")[1] is not None for data in held)
        words = [_word(value) for data in held for _, value in _people(data)]
        if is_paired:
            self.kind = PAIRS
        elif any(word in _PASS | _FAIL for word in words):
            self.kind = LABELS
        self._weighs = any(
            self._find(data, field)[1] is not None for data in held for field in ("probability", "weight")
        )
        self._lacking = {
            field
            for field in ("answer", "answer_a", "answer_b")
            if not self._cells or all(self._find(data, field)[1] is None for data in held)
        }
        found = [self._item(record) for record in records]
        return [item for item in found if item is not None]

    def _item(self, record: Record) -> Item | None:
        self._line = record.line
        before = len(self._problems)
        if record.problem or not isinstance(record.data, dict):
            self._say(record.problem or "is no object with question, answer and human", record.field)
            return None
        if unusable := find_unusable(record.data):
            self._say(unusable)
            return None
        data: dict[str, Any] = record.data
        name = self._text(data, "id", needed=False) or f"#{record.number}"
        self._names[name] += 1
        if self._names[name] == 2:
            self._say(f"{shown(name)} is the id of two records", "id")
        first, second = ("answer_a", "answer_b") if self.kind == PAIRS else ("answer", "")
        item = Item(
            name,
            self._text(data, "question") or "",
            self._answer(data, first),
            self._answer(data, second) if second else None,
            self._text(data, "reference", needed=False),
            self._contexts(data),
            self._labels(data),
            self._weight(data) if self._labelled and self._weighs else None,
            record.line,
        )
        return item if len(self._problems) == before else None

    def _find(self, data: Mapping[str, Any], field: str) -> tuple[str, Any]:
        """Return under which name a field stands, and what it holds."""
        for name in FIELDS[field]:
            value = data.get(name)
            if value is not None:
                return name, csv_value(value) if self._cells and isinstance(value, str) else value
        return FIELDS[field][0], None

    def _text(self, data: Mapping[str, Any], field: str, *, needed: bool = True) -> str | None:
        name, value = self._find(data, field)
        if value is None and needed:
            self._say(f"is missing; also read: {', '.join(FIELDS[field][1:])}", name)
        if isinstance(value, bool | dict | list):
            self._say(f"must be a string, not {shown(value)}", name)
            return None
        if needed and value is not None and not str(value).strip():
            self._say("is empty", name)
        return None if value is None else str(value)

    def _answer(self, data: Mapping[str, Any], field: str) -> str:
        """Return an answer, which may be empty; an empty cell is an absent field."""
        value = self._find(data, field)[1]
        if value is None and field not in self._lacking:
            return ""
        return value if isinstance(value, str) else self._text(data, field) or ""

    def _contexts(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        name, value = self._find(data, "contexts")
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        self._say("must be a string or a list of strings", name)
        return ()

    def _labels(self, data: Mapping[str, Any]) -> tuple[float | str, ...]:
        if not self._labelled:
            return ()
        given = list(_people(data))
        if not given:
            self._say(f"is missing: what a person says of it; also read: {', '.join(FIELDS['human'][1:])}, and "
                      f"{_MORE}... for further people", "human")  # fmt: skip
        found = [self._label(name, value) for name, value in given]
        return tuple(label for label in found if label is not None)

    def _weight(self, data: Mapping[str, Any]) -> float | None:
        (name, share), (other, weight) = self._find(data, "probability"), self._find(data, "weight")
        if share is not None and weight is not None:
            self._say(f"and {name} say the same in two ways: leave one of them out", other)
            return None
        if share is None and weight is None:
            self._say("is missing: other records say how probable it was to be drawn, and every one must", name)
            return None
        given = share if weight is None else weight
        number = _number(given)
        if number is None or number <= 0 or (weight is None and number > 1):
            what = "a probability above 0, up to 1" if weight is None else "a number above 0"
            self._say(f"must be {what}, not {shown(given)}", name if weight is None else other)
            return None
        return 1 / number if weight is None else number

    def _label(self, name: str, value: object) -> float | str | None:
        word = _word(value)
        if self.kind == PAIRS:
            for label, words in (("a", _FIRST), ("b", _SECOND), ("tie", _TIE)):
                if word in words:
                    return label
            self._say(f"must say which answer is better, a, b or tie, not {shown(value)}", name)
            return None
        if self.kind == LABELS:
            if word in _PASS | _FAIL:
                return "pass" if word in _PASS else "fail"
            self._say(f"must be pass or fail, as elsewhere in this file, not {shown(value)}", name)
            return None
        number = _number(value)
        if number is None:
            self._say(f"must be a score, or pass or fail, not {shown(value)}", name)
        return number

    def _say(self, message: str, field: str = "") -> None:
        self._problems.append(Problem(message, field, self._file, self._line))


def _people(data: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    """Yield what every person said, and the field it stands in."""
    main = next((name for name in FIELDS["human"] if data.get(name) is not None), None)
    for name, value in data.items():
        if name == main or (name.startswith(_MORE) and name not in FIELDS["human"]):
            for each in value if isinstance(value, list) else [value]:
                if each is not None and not is_blank(each):
                    yield name, each


def _word(value: object) -> str:
    return str(value).strip().lower().replace(" ", "_").replace("-", "_").removesuffix(".0")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
