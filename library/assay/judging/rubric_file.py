"""Reading a rubric from YAML, with all problems reported at once.

    name: tone
    description: Whether the answer is friendly and professional.
    instructions: Judge the tone only, not whether the answer is right.
    scale: {minimum: 1, maximum: 5, whole: true}      # 0 to 1 where there is none
    criteria:
      - name: politeness
        description: Whether the customer is treated with respect.
        anchors: {1: rude, 3: neutral, 5: warm}
    examples:
      - question: Where is my parcel?
        answer: How should I know?
        scores: {politeness: 1}
        reasoning: It sends the customer away.

`judges_trivial: true` asks the judge even about an answer that is empty, which else gets the lowest score by rule;
for rubrics by which saying nothing may be right. `compares: true` makes it a rubric for pairs: it then has neither a
scale nor anchors nor examples.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.judging.rubric import Criterion, Example, Rubric
from assay.model.answers.agent_response import clean_text
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.parsing.yaml_nodes import Lines

RESERVED = ("verdict_id", "reasoning", "winner")
"""Keys of every verdict, which no criterion may have as its name."""

_KEYS = ("name", "description", "instructions", "scale", "criteria", "examples", "compares", "judges_trivial")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_CHARS = 100_000
_MAX_CRITERIA = 20
_MAX_EXAMPLES = 20
_MAX_SCALE = 1_000_000.0


def read_rubric(text: str, *, file: str = "", field: str = "") -> Rubric:
    """Return the rubric in a YAML text.

    Args:
        file: Its file, for messages.
        field: The field of a request that holds it, for messages.

    Raises:
        InvalidInputError: All its problems, each with line and field.
    """
    problems: list[Problem] = []
    if len(text) > _MAX_CHARS:
        raise InvalidInputError([Problem(f"is longer than {_MAX_CHARS:,} characters", field, file)])
    from assay.parsing.yaml_nodes import parse_yaml  # imported here: most processes read no YAML

    data, lines = parse_yaml(clean_text(text), file=file, problems=problems)
    if not problems and not isinstance(data, dict):
        problems.append(Problem("is not a mapping with name, description and criteria", field, file))
    if not problems:
        rubric = _Reader(data, lines, problems, file, field).read()
        if not problems:
            return rubric
    if field:
        problems = [p if p.field.startswith(field) else Problem(p.message, _join(field, p.field), p.file, p.line)
                    for p in problems]  # fmt: skip
    raise InvalidInputError(problems, reason="INVALID_RUBRIC")


@dataclass
class _Reader:
    data: dict[str, Any]
    lines: Lines
    problems: list[Problem]
    file: str
    field: str

    def read(self) -> Rubric:
        data = self.data
        self._known(data, _KEYS, "")
        compares = self._flag(data, "compares", "")
        name = self._text(data, "name", "", most=64)
        if name and not _NAME.fullmatch(name):
            self._report("name", "must be lower-case letters, digits and _, beginning with a letter")
        minimum, maximum, whole = self._scale(compares)
        criteria = self._criteria(minimum, maximum, compares)
        return Rubric(
            name,
            self._text(data, "description", "", most=500),
            criteria,
            minimum,
            maximum,
            whole,
            compares,
            self._flag(data, "judges_trivial", ""),
            self._text(data, "instructions", "", needed=False),
            self._examples(criteria, minimum, maximum, compares),
        )

    def _scale(self, compares: bool) -> tuple[float, float, bool]:
        scale = self.data.get("scale")
        if scale is None:
            return 0.0, 1.0, False
        if compares:
            self._report("scale", "has no meaning where two answers are compared: remove it")
            return 0.0, 1.0, False
        if not isinstance(scale, dict):
            self._report("scale", "must be a mapping, e.g. {minimum: 1, maximum: 5, whole: true}")
            return 0.0, 1.0, False
        self._known(scale, ("minimum", "maximum", "whole"), "scale")
        ends = [self._number(scale.get(key), f"scale.{key}") for key in ("minimum", "maximum")]
        whole = self._flag(scale, "whole", "scale")
        low, high = ends
        if low is None or high is None:
            return 0.0, 1.0, whole
        if low >= high:
            self._report("scale", f"its minimum {low:g} must be less than its maximum {high:g}")
        if whole and not (low.is_integer() and high.is_integer()):
            self._report("scale", "its ends must be whole numbers, as its scores are")
        return low, high, whole

    def _criteria(self, minimum: float, maximum: float, compares: bool) -> tuple[Criterion, ...]:
        criteria: list[Criterion] = []
        for where, item in self._items("criteria", _MAX_CRITERIA, needed=True):
            self._known(item, ("name", "description", "anchors", "optional"), where)
            name = self._text(item, "name", where, most=64)
            if name and not _NAME.fullmatch(name):
                self._report(f"{where}.name", "must be lower-case letters, digits and _, beginning with a letter")
            if name in RESERVED:
                self._report(f"{where}.name", f"{name} is a key of every verdict: choose another name")
            if name and any(criterion.name == name for criterion in criteria):
                self._report(f"{where}.name", f"{name} is named twice")
            anchors = self._anchors(item.get("anchors"), f"{where}.anchors", minimum, maximum, compares)
            description = self._text(item, "description", where)
            criteria.append(Criterion(name, description, anchors, self._flag(item, "optional", where)))
        if criteria and all(criterion.optional for criterion in criteria):
            self._report("criteria", "are all optional: a verdict needs at least one score")
        return tuple(criteria)

    def _anchors(
        self, value: object, where: str, minimum: float, maximum: float, compares: bool
    ) -> Mapping[float, str]:
        if value is None:
            return {}
        if compares or not isinstance(value, dict):
            what = "have no meaning where two answers are compared: remove them" if compares else (
                "must be a mapping from scores to what they mean"
            )  # fmt: skip
            self._report(where, what)
            return {}
        levels: dict[float, str] = {}
        for key, meaning in value.items():
            score = self._score(_parsed(key), f"{where}.{key}", minimum, maximum)
            if not isinstance(meaning, str) or not meaning.strip():
                self._report(f"{where}.{key}", "must be a string that says what this score means")
            elif score is not None:
                levels[score] = meaning
        return dict(sorted(levels.items()))

    def _examples(
        self, criteria: Sequence[Criterion], minimum: float, maximum: float, compares: bool
    ) -> tuple[Example, ...]:
        if compares and self.data.get("examples") is not None:
            self._report("examples", "are not read where two answers are compared: remove them")
            return ()
        examples = []
        for where, item in self._items("examples", _MAX_EXAMPLES, needed=False):
            self._known(item, ("question", "answer", "reference", "scores", "reasoning"), where)
            scores = item.get("scores")
            if not isinstance(scores, dict):
                self._report(f"{where}.scores", "must be a mapping from every criterion to its score")
                scores = {}
            else:
                self._known(scores, [criterion.name for criterion in criteria], f"{where}.scores")
            given: dict[str, float] = {}
            for criterion in criteria:
                if criterion.name in scores or not criterion.optional:
                    place = f"{where}.scores.{criterion.name}"
                    score = self._score(scores.get(criterion.name), place, minimum, maximum)
                    if score is not None:
                        given[criterion.name] = score
            texts = [self._text(item, key, where) for key in ("question", "answer", "reasoning")]
            reference = self._text(item, "reference", where, needed=False)
            examples.append(Example(texts[0], texts[1], given, texts[2], reference))
        return tuple(examples)

    def _score(self, value: object, where: str, minimum: float, maximum: float) -> float | None:
        number = self._number(value, where)
        if number is not None and not minimum <= number <= maximum:
            self._report(where, f"{number:g} is not on the scale from {minimum:g} to {maximum:g}")
            return None
        return number

    def _number(self, value: object, where: str) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._report(where, "must be a number")
            return None
        if abs(value) > _MAX_SCALE:
            self._report(where, f"must be between -{_MAX_SCALE:,.0f} and {_MAX_SCALE:,.0f}")
            return None
        return float(value)

    def _items(self, key: str, most: int, *, needed: bool) -> list[tuple[str, dict[str, Any]]]:
        value = self.data.get(key)
        if value is None and not needed:
            return []
        if not isinstance(value, list) or not value:
            self._report(key, "must be a list with at least one entry")
            return []
        if len(value) > most:
            self._report(key, f"has {len(value)} entries; at most {most} are taken")
            return []
        scores = []
        for index, item in enumerate(value):
            if isinstance(item, dict):
                scores.append((f"{key}[{index}]", item))
            else:
                self._report(f"{key}[{index}]", "must be a mapping")
        return scores

    def _text(self, data: Mapping[str, Any], key: str, where: str, *, needed: bool = True, most: int = 20_000) -> str:
        value = data.get(key)
        place = _join(where, key)
        if value is None and not needed:
            return ""
        if not isinstance(value, str) or not value.strip():
            self._report(place, "must be a string that is not empty")
            return ""
        if len(value) > most:
            self._report(place, f"is longer than {most:,} characters")
        return value.strip()

    def _flag(self, data: Mapping[str, Any], key: str, where: str) -> bool:
        value = data.get(key, False)
        if not isinstance(value, bool):
            self._report(_join(where, key), "must be true or false")
        return value is True

    def _known(self, data: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in data:
            if key not in keys:
                self._report(_join(where, key), unknown_name("key", key, keys))

    def _report(self, where: str, message: str) -> None:
        self.problems.append(Problem(message, _join(self.field, where), self.file, self.lines.get(where)))


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key


def _parsed(key: str) -> object:
    try:
        return float(key)
    except ValueError:
        return key
