"""Which field of a dataset holds what: names, their aliases, and the user's own mapping."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from assay.datasets.json_reader import folded
from assay.datasets.records import shown
from assay.parsing.names import nearest, unknown_name
from assay.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ALIASES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "eval_id", "case_id", "example_id", "name"),
    "input": ("input", "question", "query", "user_query", "user_input", "prompt", "instruction"),
    "turns": ("turns",),
    "history": ("history", "messages"),
    "references": ("references", "reference_answer", "reference", "ground_truth", "ground_truths", "expected_answer",
                   "expected_output", "expected", "expected_response", "ideal", "target"),
    "recorded": ("recorded", "actual_output"),
    "expected_sources": ("expected_sources", "reference_contexts", "expected_urls"),
    "expected_tools": ("expected_tools",),
    "assertions": ("assertions",),
    "threshold": ("threshold",),
    "thresholds": ("thresholds",),
    "weight": ("weight",),
    "skip": ("skip",),
    "choices": ("choices",),
    "labels": ("labels",),
    "variables": ("variables", "vars"),
    "parameters": ("parameters", "filters"),
    "contexts": ("contexts", "context"),
    "category": ("category", "type"),
    "tags": ("tags",),
    "metadata": ("metadata",),
}  # fmt: skip
"""Canonical field to the names it is recognised by, best first; case does not count, `-` and space are `_`."""

_SYNONYMS = {"case_id": "id", "reference": "references", "context": "contexts", "filters": "parameters"}
# The answer that is right, or the answer that an agent once gave: what stands beside it decides.
_TWO_FACED = ("answer", "output", "response")
_MAX_LAYOUTS = 1000


def is_plural(name: str) -> bool:
    """Return whether a name speaks of several things."""
    return name.strip().lower().endswith("s")


def is_blank(value: object) -> bool:
    """Return whether a field holds nothing: null, or an empty text."""
    return value is None or value == ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the fields of one kind of record are.

    Args:
        sources: Canonical name to the record's fields for it, best first.
        hidden: Fields that would give the answer away; agents must not see them.
        rest: Fields that Assay does not read.
        choices: Of `input`, `references` and `recorded`, those that another reading is possible of.
        plain: Set where a short cut reads the record.
    """

    sources: Mapping[str, tuple[str, ...]]
    hidden: tuple[str, ...]
    rest: tuple[str, ...]
    choices: tuple[str, ...] = ()
    plain: PlainFields | None = None


@dataclass(frozen=True, slots=True)
class PlainFields:
    """The fields of a record that holds nothing but a question, one reference, an id and a category.

    `may_list` says whether the reference's name is a plural.
    """

    input: str
    reference: str | None
    id: str | None
    category: str | None
    may_list: bool

    @classmethod
    def of(cls, sources: Mapping[str, tuple[str, ...]]) -> PlainFields | None:
        """Return the fields if the sources are as plain as that."""
        if "input" not in sources or not sources.keys() <= {"input", "references", "id", "category"}:
            return None
        if any(len(found) > 1 for found in sources.values()):
            return None
        first = {name: found[0] for name, found in sources.items()}
        reference = first.get("references")
        return cls(first["input"], reference, first.get("id"), first.get("category"), is_plural(reference or ""))


@dataclass(slots=True)
class FieldMap:
    """Which field of the dataset holds what.

    `learn` settles, from the first records, what a field called `answer` is; `layout` then places every record.

    Args:
        given: The user's own mapping, canonical name to the dataset's; an empty name switches a field off.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    seen: dict[str, dict[str, None]] = field(default_factory=dict)
    answer_is_recorded: bool = False
    _named: dict[str, str] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)
    _found: dict[str, None] = field(default_factory=dict)
    _layouts: dict[tuple[str, ...], Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given = {_SYNONYMS.get(folded(name), folded(name)): source for name, source in self.given.items()}

    def problems(self) -> list[str]:
        """Return what is wrong with the user's mapping."""
        return [unknown_name("field in map", name, ALIASES) for name in self.given if name not in ALIASES]

    def take_canonical(self, fields: Mapping[str, str]) -> None:
        """Note that the records were turned into canonical ones, with the user's mapping applied.

        Args:
            fields: Canonical field to the name that the records had for it before.
        """
        self._shown = {**fields, **{name: source for name, source in self.given.items() if source}}
        self._named = dict(self.given)
        self.given = {name: name if source else "" for name, source in self.given.items()}

    def learn(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Settle what `answer` is: recorded, if some record holds it beside another reference."""
        if source := self.given.get("references"):
            self.answer_is_recorded = folded(source) not in _TWO_FACED
        elif "references" in self.given:
            self.answer_is_recorded = True
        else:
            self.answer_is_recorded = any(map(self._holds_both, records))

    def _holds_both(self, record: Mapping[str, Any]) -> bool:
        held = {folded(key) for key, value in record.items() if not is_blank(value)}
        return "answer" in held and not held.isdisjoint(ALIASES["references"])

    def layout(self, record: Mapping[str, Any]) -> Layout:
        """Return where the fields of a record are."""
        keys = tuple(record)
        found = self._layouts.get(keys)
        if found is None:
            found = self._place(keys)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[keys] = found
            for name, sources in found.sources.items():
                self.seen.setdefault(name, {}).update(dict.fromkeys(sources))
            if len(self._found) < _MAX_LAYOUTS:
                self._found.update(dict.fromkeys(keys))
        return found

    def _place(self, keys: tuple[str, ...]) -> Layout:
        named: dict[str, str] = {}
        for key in keys:
            named.setdefault(folded(key), key)
        sources: dict[str, tuple[str, ...]] = {}
        for name, source in self.given.items():
            actual = source if source in keys else named.get(folded(source))
            if source and actual is not None:
                sources[name] = (actual,)
        taken = {key for found in sources.values() for key in found}
        for name, aliases in self._aliases().items():
            free = tuple(named[alias] for alias in aliases if alias in named and named[alias] not in taken)
            if name not in self.given and free:
                sources[name] = free
        used = {key for found in sources.values() for key in found}
        rest = tuple(key for key in keys if key not in used)
        hidden = tuple(key for key in rest if gives_away(folded(key)))
        choices = tuple(
            name
            for name, found in sources.items()
            if (name in ("input", "references") and len(found) > 1)
            or (name == "recorded" and "references" not in sources and folded(found[0]) in _TWO_FACED)
        )
        plain = None if hidden else PlainFields.of(sources)
        return Layout(sources, hidden, tuple(key for key in rest if key not in hidden), choices, plain)

    def _aliases(self) -> dict[str, tuple[str, ...]]:
        aliases = dict(ALIASES)
        if self.answer_is_recorded:
            aliases["recorded"] += _TWO_FACED
        else:
            aliases["references"] += ("answer",)
            aliases["recorded"] += ("output", "response")
        return aliases

    def mapping(self) -> dict[str, str]:
        """Return, for people, canonical name to the dataset's fields as recognised so far."""
        return {name: self._shown.get(name, " | ".join(self.seen[name])) for name in ALIASES if name in self.seen}

    def unused(self) -> list[str]:
        """Return what is wrong with the user's mapping after all records were seen."""
        if self._named:
            # A question that no variable holds was reported with every record.
            return [
                f"{name}: no record has a field {shown(source)}"
                for name, source in self._named.items()
                if source and name not in self.seen and name != "input"
            ]
        found = ", ".join(shown(name) for name in list(self._found)[:12])
        return [
            f"{name}: no record has a field {shown(source)}; did you mean {shown(close)}?"
            if (close := nearest(source, self._found))
            else f"{name}: no record has a field {shown(source)}; fields found: {found or 'none'}"
            for name, source in self.given.items()
            if source and name not in self.seen
        ]

    def without_input(self, fields: Iterable[str]) -> str:
        """Return the sentence for a dataset in which no field holds the question."""
        fields = list(fields)
        listed = ", ".join(shown(name) for name in fields[:12]) or "none"
        if source := self.given.get("input"):
            return f"map: input: no record has a field {shown(source)}; fields found: {listed}"
        close = next((name for name in fields if nearest(name, ALIASES["input"])), None)
        if close is not None:
            hint = f"if {shown(close)} is the question, set `map: {{input: {close}}}`"
        else:
            example = shown(fields[0]) if fields else "YOUR_FIELD"
            hint = f"say which field is the question, such as `map: {{input: {example}}}`"
        known = ", ".join(ALIASES["input"])
        return f"no field holds the question (fields found: {listed}; read as the question: {known}); {hint}"


def gives_away(name: str) -> bool:
    """Return whether a field would give the answer away, by its folded name."""
    return name.startswith(("expected", "ground_truth", "reference")) or name in ALIASES["references"] + _TWO_FACED
