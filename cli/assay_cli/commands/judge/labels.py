"""Datasets of answers with human labels, validated as a whole.

A record has a question, and either an answer with human scores or verdicts, or two answers with a human choice.
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
"""Fields of a record with their accepted names; further people's labels are `human_...`."""

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
        name: Id or number of the record.
        answer: The answer, or a pair's first answer.
        second: A pair's second answer.
        reference: The reference answer, or None.
        contexts: Passages that the answer should rest on.
        people: Human labels: numbers, "pass" or "fail", or "a", "b" or "tie".
        weight: Sampling weight, 1 / the probability of being drawn; None if the file does not say.
        line: Line in the file.
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
    """The labelled items of a file.

    Args:
        kind: "scores", "labels" or "pairs".
        items: At least one item.
        file: The file as the user named it.
    """

    kind: str
    items: tuple[Item, ...]
    file: str

    def drawing(self, drawn: str | None) -> Drawing:
        """Return the sampling design of the items.

        Args:
            drawn: The value of --drawn: "random", "human-verdict" or "judge-verdict"; None without it.
        """
        weights = [item.weight for item in self.items if item.weight is not None]
        if len(set(weights)) > 1:
            return Drawing(WEIGHTED, tuple(weights))
        return Drawing(RANDOM if weights else drawn.replace("-", "_") if drawn else UNKNOWN)


def read_items(path: Path, *, labelled: bool = True) -> Labels:
    """Read a file of labels.

    Args:
        path: JSON Lines, JSON, CSV, TSV, YAML or Parquet.
        labelled: Whether every item needs a label; if not, labels are not read.

    Raises:
        DatasetError: The file is wrong; lists every problem with line and field.
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
                raise BadFileError(f"has more than {_MAX_ITEMS:,} records: calibrate with a sample of them")
    except BadFileError as error:
        problems.append(Problem(error.message, file=str(path), line=error.line))
    except OSError as error:
        problems.append(Problem(f"cannot be read: {error.strerror or error}", file=str(path)))
    reader = _Reader(str(path), problems, labelled=labelled, cells=cells)
    items = reader.items(records)
    if not items and not problems:
        problems.append(Problem("has no record", file=str(path)))
    if problems:
        raise DatasetError(problems)
    return Labels(reader.kind, tuple(items), str(path))


def check_scale(labels: Labels, rubric: AskedRubric) -> None:
    """Check that the labels fit a rubric.

    Raises:
        DatasetError: Scores are off its scale, or it compares and the labels do not, or the reverse.
    """
    if rubric.compares != (labels.kind == PAIRS):
        mismatch = "compares two answers, but the file has single answers" if rubric.compares else (
            "scores one answer, but the file has pairs"
        )  # fmt: skip
        raise DatasetError([Problem(f"the rubric {rubric.name!r} {mismatch}", "--rubric", labels.file)])
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
    """Reads records and collects their problems."""

    def __init__(self, file: str, problems: list[Problem], *, labelled: bool, cells: bool) -> None:
        self._file = file
        self._problems = problems
        self._labelled = labelled
        self._cells = cells
        self._names: Counter[str] = Counter()
        self._weighs = False
        self._lacking: set[str] = set()  # answer fields that no record has, or that this kind of file requires
        self._line: int | None = None
        self.kind = SCORES

    def items(self, records: Sequence[Record]) -> list[Item]:
        """Return the valid items."""
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
        items = [self._item(record) for record in records]
        return [item for item in items if item is not None]

    def _item(self, record: Record) -> Item | None:
        self._line = record.line
        before = len(self._problems)
        if record.problem or not isinstance(record.data, dict):
            self._say(record.problem or "is not an object with question, answer and human", record.field)
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
        """Return the name that the record uses for a field, and its value."""
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
        """Return an answer, possibly empty; an empty table cell counts as absent."""
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
        if isinstance(value, list) and all(isinstance(passage, str) for passage in value):
            return tuple(value)
        self._say("must be a string or a list of strings", name)
        return ()

    def _labels(self, data: Mapping[str, Any]) -> tuple[float | str, ...]:
        if not self._labelled:
            return ()
        fields = list(_people(data))
        if not fields:
            self._say(f"is missing: a person's label; also read: {', '.join(FIELDS['human'][1:])}, and "
                      f"{_MORE}... for further people", "human")  # fmt: skip
        labels = [self._label(name, value) for name, value in fields]
        return tuple(label for label in labels if label is not None)

    def _weight(self, data: Mapping[str, Any]) -> float | None:
        (name, share), (weight_name, weight) = self._find(data, "probability"), self._find(data, "weight")
        if share is not None and weight is not None:
            self._say(f"and {name} say the same in two ways: leave one out", weight_name)
            return None
        if share is None and weight is None:
            self._say("is missing: other records give their probability of being drawn, so every record must", name)
            return None
        value = share if weight is None else weight
        number = _number(value)
        if number is None or number <= 0 or (weight is None and number > 1):
            expected = "a probability above 0, up to 1" if weight is None else "a number above 0"
            self._say(f"must be {expected}, not {shown(value)}", name if weight is None else weight_name)
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
    """Yield every person's label with the name of its field."""
    main = next((name for name in FIELDS["human"] if data.get(name) is not None), None)
    for name, value in data.items():
        if name == main or (name.startswith(_MORE) and name not in FIELDS["human"]):
            for label in value if isinstance(value, list) else [value]:
                if label is not None and not is_blank(label):
                    yield name, label


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
