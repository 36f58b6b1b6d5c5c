"""The problems and warnings of a pass over a dataset; only problems refuse it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.datasets.fields.aliases import is_blank, is_passage, is_reference_name
from assay.datasets.fields.field_names import folded
from assay.datasets.records import shown
from assay.errors import DatasetError, Problem, further_problems

if TYPE_CHECKING:
    from assay.datasets.fields.aliases import Layout
    from assay.datasets.records import Record
    from assay.model.case import Case

_MAX_PROBLEMS = 50
# UTF-8 decoded as cp1252: quotes and dashes, ≤ and ≥, accented letters, Arabic.
_MOJIBAKE = re.compile("â€|â‰|Ã[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹Œ]|Ø[§¨ª\u00ad¯±³¹]|Ù[„…†ˆŠ\u0080-\u008a]")


def looks_damaged(text: str) -> bool:
    """Return whether a text was decoded with a wrong encoding or lost characters before it got here."""
    if text.isascii():
        return False
    # The pattern is ten times slower than searching for its first letters.
    begins = "Ø" in text or "Ù" in text or "Ã" in text or "â" in text
    return "\ufffd" in text or (begins and _MOJIBAKE.search(text) is not None)


def _written(text: str) -> str:
    """Return a text that can be encoded: names of fields may hold lone surrogates."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _is_text(value: object) -> bool:
    """Return whether a value could be an answer: a text or a list of texts."""
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and item.strip() for item in items)


@dataclass(slots=True)
class Diagnostics:
    """Collects problems and warnings.

    Args:
        file: The file as the user named it; empty if there is none.
        leave_out: Whether an invalid record is left out instead of refusing the dataset.
    """

    file: str
    leave_out: bool = False
    problem_count: int = 0
    left_out_count: int = 0
    _problems: list[Problem] = field(default_factory=list)
    _left_out: list[Problem] = field(default_factory=list)
    _last_left_out: int = 0
    _unlisted_count: int = 0
    _warnings: dict[str, tuple[Problem, str, int]] = field(default_factory=dict)

    def report(self, message: str, *, record: Record | None = None, name: str = "", line: int | None = None) -> None:
        """Add a problem; only the first fifty are kept."""
        listed = self._problems
        if record is not None and self.leave_out:
            listed = self._left_out
            self.left_out_count += record.number != self._last_left_out
            self._last_left_out = record.number
        else:
            self.problem_count += 1
        if len(listed) < _MAX_PROBLEMS:
            listed.append(self._problem(message, record, name, line))
        else:
            self._unlisted_count += 1

    def left_out(self) -> tuple[Problem, ...]:
        """Return the first fifty problems of the records that are left out."""
        return tuple(self._left_out)

    def warn(self, kind: str, message: str, *, record: Record | None = None, name: str = "", many: str = "") -> None:
        """Add a warning; only the first of its kind is kept, further ones are counted.

        Args:
            kind: The kind of warning.
            message: The warning.
            record: The record it is about.
            name: The field's name.
            many: The warning for several records, with `{count}`; empty to append the number to the first one's.
        """
        if kind not in self._warnings and len(self._warnings) >= _MAX_PROBLEMS:
            return
        first, many, count = self._warnings.get(kind, (None, many, 0))
        self._warnings[kind] = (first or self._problem(message, record, name, None), many, count + 1)

    def _problem(self, message: str, record: Record | None, name: str, line: int | None) -> Problem:
        message, name = _written(message), _written(name)
        if record is None:
            return Problem(message, name, self.file, line)
        where = f"record {record.number}" + (f", {name}" if name else "")
        return Problem(message, where, self.file, record.line)

    def error(self) -> DatasetError:
        """Return the error with all problems."""
        return DatasetError([*self._problems, *self._left_out, *further_problems(self._unlisted_count, file=self.file)])

    def warnings(self) -> tuple[Problem, ...]:
        """Return the warnings, at most one per kind."""
        return tuple(
            first
            if count == 1
            else Problem(
                many.format(count=f"{count:,}") if many else f"{first.message} (and {count - 1:,} more)",
                first.field,
                first.file,
                first.line,
            )
            for first, many, count in self._warnings.values()
        )

    def look_at(self, case: Case, layout: Layout, record: Record) -> None:
        """Warn about oddities of a case that do not refuse it."""
        turn = case.turns[-1]
        for text in (turn.input, *turn.references):
            if looks_damaged(text):
                self._warn_of_text(text, record)
        if case.category and not is_blank(case.expected.get("expected_table")):
            self._look_at_table(case, record)
        for name in layout.choices:
            if name == "recorded":
                self._look_at_recorded(layout, record)
            else:
                self._look_at_choice(name, layout, record)
        for name in layout.doubtful:
            if _is_text(record.data[name]):
                self._look_at_answer(name, layout, record)
        for text in turn.expected_sources:
            if is_passage(text):
                self._warn_of_passage(text, layout, record)

    def _warn_of_text(self, text: str, record: Record) -> None:
        if _MOJIBAKE.search(text):
            self.warn(
                "mojibake",
                f"looks like UTF-8 that was read in another encoding: {shown(text[:40])}; write the file again from "
                "its source",
                record=record,
            )
        else:
            self.warn("replaced", f"holds U+FFFD where characters were lost: {shown(text[:40])}", record=record)

    def _look_at_table(self, case: Case, record: Record) -> None:
        from assay.metrics.retrieval_accuracy import is_out_of_scope  # imported here: few datasets name tables

        if is_out_of_scope(case):
            self.warn(
                "out of scope",
                f"is out of scope and expects a table, {shown(case.expected['expected_table'])}: retrieval_accuracy "
                "ignores it and wants that nothing is fetched; leave it out, or give the case another category",
                record=record,
                name="expected_table",
            )

    def _look_at_recorded(self, layout: Layout, record: Record) -> None:
        source = layout.sources["recorded"][0]
        message = f"{shown(source)} is read as an answer that an agent once gave"
        if "references" in layout.sources:
            message += f", because {shown(layout.sources['references'][0])} holds the right one"
        self.warn(
            "recorded",
            f"{message}; if it is the right answer, set `map: {{references: {source}}}`",
            record=record,
        )

    def _look_at_answer(self, name: str, layout: Layout, record: Record) -> None:
        """Warn about an unread field that looks like an answer."""
        references = layout.sources.get("references", ())
        if not references:
            advice = f"may be the right answer, and no field is read as it: set `map: {{reference: {shown(name)}}}`"
        elif references[0] in layout.answers and is_reference_name(folded(name)):
            advice = (
                f"may be the right answer, which is read from {shown(references[0])}: to change that, set "
                f"`map: {{reference: {shown(name)}}}`"
            )
        else:
            advice = f"may be an answer that an agent gave; to score it, set `map: {{recorded: {shown(name)}}}`"
        self.warn(f"answer {name}", f"is not read, and {advice}", record=record, name=name)

    def _warn_of_passage(self, text: str, layout: Layout, record: Record) -> None:
        source = layout.sources["expected_sources"][0] if "expected_sources" in layout.sources else "expected_sources"
        self.warn(
            "passage",
            f"holds a passage of {len(text):,} characters, and is compared with the names of sources: write their "
            "titles or addresses, and passages that belong to the question into `contexts`",
            record=record,
            name=source,
        )

    def _look_at_choice(self, name: str, layout: Layout, record: Record) -> None:
        # An object of expectations is not a second reference.
        held = [
            source
            for source in layout.sources[name]
            if not is_blank(record.data[source])
            and not (name == "references" and isinstance(record.data[source], dict))
        ]
        if len(held) > 1:
            self.warn(
                f"choice {held}",
                f"{shown(held[0])} is read as {name}, {', '.join(map(shown, held[1:]))} is not: "
                f"to choose, set `map: {{{name}: ...}}`",
                record=record,
            )
