"""Matching a dataset's fields to canonical ones by names, aliases and the user's own mapping."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.field_names import folded
from assay.datasets.fields.languages import foreign_names
from assay.datasets.records import shown
from assay.parsing.names import nearest, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ALIASES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "eval_id", "case_id", "example_id", "name"),
    "input": ("input", "question", "query", "user_query", "user_input", "prompt", "instruction"),
    "turns": ("turns",),
    "history": ("history", "messages"),
    "references": ("references", "reference_answer", "reference", "ground_truth", "ground_truths", "expected_answer",
                   "expected_output", "expected", "expected_response", "ideal", "target", "correct_answer",
                   "correct_answers", "right_answer", "gold_answer", "golden_answer", "gold", "golden", "truth",
                   "solution", "ideal_answer", "best_answer", "reference_output", "answer_key"),
    "recorded": ("recorded", "actual_output"),
    "expected_sources": ("expected_sources", "reference_contexts", "expected_urls"),
    "expected_tools": ("expected_tools",),
    "assertions": ("assertions",),
    "threshold": ("threshold",),
    "thresholds": ("thresholds",),
    "weight": ("weight",),
    "skip": ("skip",),
    "choices": ("choices",),
    "human_labels": ("human_labels", "labels"),
    "variables": ("variables", "vars"),
    "parameters": ("parameters", "filters"),
    "contexts": ("contexts", "context"),
    "category": ("category", "type"),
    "tags": ("tags",),
    "metadata": ("metadata",),
    "approvals": ("approvals",),
}  # fmt: skip
"""The recognised names of each canonical field, best first, in the form of `folded`."""

_SYNONYMS = {"case_id": "id", "reference": "references", "context": "contexts", "filters": "parameters"}
# Beside one of these, `answer` may still be the right answer: a worked solution has a short answer too.
_LOOSE_REFERENCES = frozenset(ALIASES["references"][ALIASES["references"].index("correct_answer") :])
_TRUTH = frozenset({"truth", "groundtruth", "gt", "gold", "golden"})
_RIGHT = frozenset({"true", "correct", "right", "ideal", "best", "expected", "reference", "ref", "target", "official"})
_ANSWER_NOUNS = frozenset({"answer", "answers", "response", "responses", "reply", "output", "completion"})
_RIGHT_NAMES = frozenset({"y_true", "ans_true", "oracle", "expectation", "want", "should_be", "chosen", "label_text"})
_DOUBTFUL_NAMES = frozenset({"label", "y"})
OPTION_NAMES = frozenset({"options", "endings", "answer_choices", "alternatives", "candidates"})
"""Unread fields that may hold the choices of a question."""
_UNNAMED = re.compile(r"unnamed:_\d+(\.\d+|_level_\d+)?|__index_level_\d+__|level_\d+")
_MAX_LAYOUTS = 1000
_PASSAGE_CHARS = 200
_SENTENCE = re.compile(r"\S\s+\S+\s+[^\W\d_A-Z]{3,}[.。؟।]\s*\Z")
"""The end of a sentence: titles end without a full stop, or with an abbreviation."""


@cache
def names_of(field: str) -> tuple[str, ...]:
    """Return the recognised names of a canonical field, English ones first.

    The field `answer` stands for words that mean either the right answer or a recorded one; the neighbouring fields
        decide.
    """
    return tuple(dict.fromkeys((*ALIASES.get(field, (field,)), *foreign_names().get(field, ()))))


@cache
def _two_faced() -> frozenset[str]:
    return frozenset((*names_of("answer"), "output", "response"))


def is_passage(text: object) -> bool:
    """Return whether a text is a passage and not the name of a source."""
    if not isinstance(text, str) or not any(map(str.isspace, text.strip())):
        return False
    return len(text) > _PASSAGE_CHARS or "\n" in text.strip() or _SENTENCE.search(text) is not None


def is_plural(name: str) -> bool:
    """Return whether a name is a plural."""
    return name.strip().lower().endswith("s")


def is_blank(value: object) -> bool:
    """Return whether a value is null or an empty text."""
    return value is None or value == ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a kind of record: which field holds what.

    Args:
        sources: The record's fields for each canonical name, best first.
        hidden: Fields that would reveal the answer; agents must not see them.
        rest: Fields that Assay does not use.
        choices: The fields among `input`, `references` and `recorded` that could be read differently.
        plain: Set if the short cut can read the record.
        doubtful: Unread fields that look like a right or recorded answer.
        turns: The layout of the turns; None for a record without turns.
        answers: Fields of `references` named `answer`, in any language.
        first_choice: The number of the first choice if answers are choice numbers; None if unknown.
    """

    sources: Mapping[str, tuple[str, ...]]
    hidden: tuple[str, ...]
    rest: tuple[str, ...]
    choices: tuple[str, ...] = ()
    plain: PlainFields | None = None
    doubtful: tuple[str, ...] = ()
    turns: FieldMap | None = None
    answers: tuple[str, ...] = ()
    first_choice: int | None = None


@dataclass(frozen=True, slots=True)
class PlainFields:
    """The fields of a record of only a question, one reference, an id and a category.

    `may_list` says whether the reference's name is a plural.
    """

    input: str
    reference: str | None
    id: str | None
    category: str | None
    may_list: bool

    @classmethod
    def of(cls, sources: Mapping[str, tuple[str, ...]]) -> PlainFields | None:
        """Return the fields if the sources are that plain."""
        if "input" not in sources or not sources.keys() <= {"input", "references", "id", "category"}:
            return None
        if any(len(names) > 1 for names in sources.values()):
            return None
        first = {name: names[0] for name, names in sources.items()}
        reference = first.get("references")
        return cls(first["input"], reference, first.get("id"), first.get("category"), is_plural(reference or ""))


@dataclass(slots=True)
class FieldMap:
    """Maps a dataset's fields to canonical ones.

    `learn` determines the meaning of a field named `answer` from the first records; `layout` then maps every record.

    Args:
        user_map: The user's own mapping, from canonical names to the dataset's; an empty name disables a field.
    """

    user_map: Mapping[str, str] = field(default_factory=dict)
    seen: dict[str, dict[str, None]] = field(default_factory=dict)
    answer_is_recorded: bool = False
    turns: FieldMap | None = None
    _first_choice: int | None = None
    unnamed: list[str] = field(default_factory=list)
    _index: frozenset[str] = frozenset()
    _unused: frozenset[str] = frozenset()
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)
    _found: dict[str, None] = field(default_factory=dict)
    _layouts: dict[tuple[str, ...], Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.user_map = {_SYNONYMS.get(folded(name), folded(name)): source for name, source in self.user_map.items()}

    def problems(self) -> list[str]:
        """Return the problems of the user's mapping."""
        return [unknown_name("field in map", name, ALIASES) for name in self.user_map if name not in ALIASES]

    def take_canonical(self, fields: Mapping[str, str]) -> None:
        """Accept records that were converted to canonical fields with the user's mapping applied.

        Args:
            fields: The records' original names, by canonical field.
        """
        self._shown = {**fields, **{name: source for name, source in self.user_map.items() if source}}
        self._named = dict(self.user_map)
        self.user_map = {name: name if source else "" for name, source in self.user_map.items()}

    def learn(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Resolve names with two meanings from the first records.

        `answer` is a recorded answer if any record has it beside another reference; contexts that are passages are not
        names of sources; a number that occurs twice is not an id.
        """
        named = [{folded(key): value for key, value in record.items() if not is_blank(value)} for record in records]
        if source := self.user_map.get("references"):
            self.answer_is_recorded = folded(source) not in _two_faced()
        else:
            self.answer_is_recorded = "references" in self.user_map or any(map(_holds_both, named))
        unused = {name for name in foreign_names()["id"] if _repeats(name, named)}
        if any(map(is_passage, _texts_under("reference_contexts", named))):
            unused.add("reference_contexts")
        unnamed = {name for fields in named for name in fields if _UNNAMED.fullmatch(name)}
        self._index = frozenset(name for name in unnamed if all(map(_is_whole, _texts_under(name, named))))
        self.unnamed = [key for key in dict.fromkeys(itertools.chain(*records)) if folded(key) in unnamed - self._index]
        self._unused = frozenset(unused)
        self._known = self._names()
        self._first_choice = self._find_first_choice(named)
        turns = [turn for fields in named for turn in _objects_in(fields.get("turns"))]
        if turns:
            self.turns = FieldMap()
            self.turns.learn(turns)

    def _find_first_choice(self, records: Sequence[Mapping[str, Any]]) -> int | None:
        """Return the number, 0 or 1, from which the answers of these records must count the choices."""
        names = [folded(self.user_map[name]) if self.user_map.get(name) else name for name in ("choices", "references")]
        numbers, last = set(), False
        for record in records:
            choices = record.get(names[0])
            answer = next((record[name] for name in (names[1], *self._known["references"]) if name in record), None)
            number = str(answer).removesuffix(".0")
            if isinstance(choices, list) and number.isdecimal():
                numbers.add(int(number))
                last = last or int(number) == len(choices)
        if 0 in numbers:
            return None if last else 0
        return 1 if last else None

    def _names(self) -> dict[str, tuple[str, ...]]:
        names = {name: names_of(name) for name in ALIASES}
        if self.user_map.get("input"):
            # If users map the question themselves, a word such as `Antwort` does not by itself mean the right answer:
            # it may be a recorded one.
            names["references"] = ALIASES["references"]
            names["recorded"] = ALIASES["recorded"]
            answers: tuple[str, ...] = ("answer",)
        else:
            answers = names_of("answer")
        if self.answer_is_recorded:
            names["recorded"] += (*answers, "output", "response")
        else:
            names["references"] += answers
            names["recorded"] += ("output", "response")
        return {name: tuple(alias for alias in aliases if alias not in self._unused) for name, aliases in names.items()}

    def layout(self, record: Mapping[str, Any]) -> Layout:
        """Return the layout of a record's fields."""
        keys = tuple(record)
        known = self._layouts.get(keys)
        if known is None:
            known = self._place(keys)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[keys] = known
            for name, sources in known.sources.items():
                self.seen.setdefault(name, {}).update(dict.fromkeys(sources))
            if len(self._found) < _MAX_LAYOUTS:
                self._found.update(dict.fromkeys(keys))
        return known

    def _place(self, keys: tuple[str, ...]) -> Layout:
        named: dict[str, str] = {}
        for key in keys:
            named.setdefault(folded(key), key)
        sources: dict[str, tuple[str, ...]] = {}
        for name, source in self.user_map.items():
            actual = source if source in keys else named.get(folded(source))
            if source and actual is not None:
                sources[name] = (actual,)
        taken = {key for names in sources.values() for key in names}
        self._known = self._known or self._names()
        for name, aliases in self._known.items():
            free = tuple(named[alias] for alias in aliases if alias in named and named[alias] not in taken)
            if name not in self.user_map and free:
                sources[name] = free
        used = {key for names in sources.values() for key in names}
        rest = tuple(key for key in keys if key not in used and not (self._index and folded(key) in self._index))
        hidden = tuple(key for key in rest if gives_away(folded(key)))
        choices = tuple(name for name, names in sources.items() if self._is_choice(name, names, sources))
        doubtful = tuple(key for key in rest if self._is_doubtful(folded(key))) if "recorded" not in sources else ()
        has_options = any(key.lower() in OPTION_NAMES for key in rest)
        plain = None if hidden or doubtful or has_options else PlainFields.of(sources)
        rest = tuple(key for key in rest if key not in hidden)
        return Layout(
            sources,
            hidden,
            rest,
            choices,
            plain,
            doubtful,
            self.turns if "turns" in sources else None,
            tuple(key for key in sources.get("references", ()) if folded(key) in names_of("answer")),
            self._first_choice,
        )

    def _is_doubtful(self, name: str) -> bool:
        if looks_like_answer(name) or name in _DOUBTFUL_NAMES:
            return True
        return name in foreign_names()["references"] or name in foreign_names()["answer"]

    def _is_choice(self, name: str, fields: tuple[str, ...], sources: Mapping[str, tuple[str, ...]]) -> bool:
        if name in ("input", "references"):
            return len(fields) > 1
        if name != "recorded" or name in self.user_map or folded(fields[0]) not in _two_faced():
            return False
        return "references" not in sources or folded(sources["references"][0]) in _LOOSE_REFERENCES

    def mapping(self) -> dict[str, str]:
        """Return the dataset's fields detected so far, by canonical name, for display."""
        return {name: self._shown.get(name, " | ".join(self.seen[name])) for name in ALIASES if name in self.seen}

    def unused(self) -> list[str]:
        """Return the problems of the user's mapping after all records were read."""
        if self._named:
            # A question that no variable holds was already reported with every record.
            return [
                f"{name}: no record has a field {shown(source)}"
                for name, source in self._named.items()
                if source and name not in self.seen and name != "input"
            ]
        listed = ", ".join(shown(name) for name in list(self._found)[:12])
        return [
            f"{name}: no record has a field {shown(source)}; did you mean {shown(close)}?"
            if (close := nearest(source, self._found))
            else f"{name}: no record has a field {shown(source)}; fields found: {listed or 'none'}"
            for name, source in self.user_map.items()
            if source and name not in self.seen
        ]


def gives_away(name: str) -> bool:
    """Return whether a field would reveal the answer, by its folded name."""
    if name.startswith(("expected", "ground_truth", "reference", "gold_", "golden_", "correct_", "solution")):
        return True
    return name in names_of("references") or name in _two_faced() or is_reference_name(name)


def is_reference_name(name: str) -> bool:
    """Return whether an unknown folded name means a right answer, as `gold_text` does."""
    words = name.split("_")
    if name in _RIGHT_NAMES or not _TRUTH.isdisjoint(words):
        return True
    is_text = words[-1] == "text" or not _ANSWER_NOUNS.isdisjoint(words)
    return is_text and not _RIGHT.isdisjoint(words)


def looks_like_answer(name: str) -> bool:
    """Return whether an unknown folded name means an answer, right or not: `answer_2`, `bot_response`."""
    stem = name.rstrip("0123456789").rstrip("_")
    if is_reference_name(name) or (stem != name and stem in _two_faced()):
        return True
    if stem.split("_")[-1] in _ANSWER_NOUNS:
        return True
    return stem.endswith(_foreign_endings()) and stem not in foreign_names()["answer"]


@cache
def _foreign_endings() -> tuple[str, ...]:
    """Return the words for `answer` that other words end with, as `modellantwort` does."""
    return tuple(word for word in foreign_names()["answer"] if len(word) > 3)


def _holds_both(fields: Mapping[str, Any]) -> bool:
    return not fields.keys().isdisjoint(names_of("answer")) and not fields.keys().isdisjoint(names_of("references"))


def _objects_in(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _repeats(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    values = [str(record[name]) for record in records if name in record]
    return len(set(values)) < len(values)


def _is_whole(value: object) -> bool:
    """Return whether a value is absent or an integer, like those of an index."""
    return is_blank(value) or (str(value).isdecimal() and not isinstance(value, bool))


def _texts_under(name: str, records: Sequence[Mapping[str, Any]]) -> Iterator[object]:
    for record in records:
        value = record.get(name)
        yield from value if isinstance(value, list) else [value]
