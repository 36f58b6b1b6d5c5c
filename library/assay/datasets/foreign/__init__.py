"""Formats of other tools, detected by marks in their records or named by the user, and converted to plain records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.field_names import folded
from assay.datasets.foreign import (
    adk,
    assay_results,
    deepeval,
    inspect_ai,
    langsmith,
    llama_index,
    mlflow,
    openai_evals,
    pairwise,
    promptfoo,
    pydantic_evals,
    ragas,
)
from assay.datasets.foreign.mapped import with_mapping
from assay.datasets.readers.trace_exports import trace_export
from assay.datasets.records import BadFileError
from assay.datasets.values.cells import opened

if TYPE_CHECKING:
    from assay.datasets.records import Record

__all__ = ["FORMATS", "Convert", "Format", "Setting", "doubt", "find_format", "is_foreign", "shape_of"]

_TEST_FILE = (".test.json", ".test.json.gz")

Convert = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Setting:
    """The context of a file's records.

    Args:
        top: The file's data beside the list of records.
        user_map: The user's own mapping, from canonical names to the file's.
        from_cells: Whether records are table rows.
        are_texts: Whether they are rows of a table that holds only texts.
        warn: Accepts a warning about the whole file.
    """

    top: Mapping[str, Any]
    user_map: Mapping[str, str]
    from_cells: bool
    are_texts: bool
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of another tool.

    Args:
        name: Its name for users.
        matches: Returns whether a record, by snake-case names, has the marks of the format.
        prepare: Returns the converter to plain records.
        fields: The format's own field names by canonical field, for display.
        oddity: Returns a warning about a record, or the empty text.
        is_sure: Whether its marks are unambiguous, so that one record with them is enough.
        reads_top: Whether the data beside the records matters.
        joined: Returns the plain record, named by the file, of a file whose records form one case.
        is_part: Returns whether a record is such a part.
        gathered: Returns a record per case if consecutive records belong to one case.
    """

    name: str
    matches: Callable[[Mapping[str, Any], frozenset[str]], bool]
    prepare: Callable[[Setting], Convert]
    fields: Mapping[str, str] = field(default_factory=dict)
    oddity: Callable[[Mapping[str, Any]], str] | None = None
    is_sure: bool = True
    reads_top: bool = False
    joined: Callable[[Sequence[object], str], dict[str, Any]] | None = None
    is_part: Callable[[Mapping[str, Any]], bool] = lambda _: False
    gathered: Callable[[Iterable[Record]], Iterator[Record]] | None = None


def _records(convert: Convert) -> Callable[[Setting], Convert]:
    """Return the `prepare` of a format with independent records."""

    def prepare(setting: Setting) -> Convert:
        converter = (lambda row: convert(opened(row))) if setting.from_cells else convert
        return with_mapping(converter, setting.user_map)

    return prepare


def _promptfoo(setting: Setting) -> Convert:
    if unread := promptfoo.unread_parts(setting.top):
        setting.warn(unread)
    return promptfoo.Tests(setting.top, field_map=setting.user_map, are_rows=setting.are_texts or None).convert


def _pydantic_evals(setting: Setting) -> Convert:
    completed = pydantic_evals.with_common(setting.top)
    if unread := pydantic_evals.oddity({"expected_output": "x", "evaluators": setting.top.get("evaluators")}):
        setting.warn(unread)
    convert = _records(pydantic_evals.convert)(setting)
    return lambda record: convert(completed(record))


FORMATS = (
    Format("promptfoo", promptfoo.matches, _promptfoo, promptfoo.FIELDS, reads_top=True),
    Format(adk.NAME, adk.matches, _records(adk.convert), adk.FIELDS, joined=adk.joined, is_part=adk.is_turn),
    Format(openai_evals.NAME, openai_evals.matches, _records(openai_evals.convert), openai_evals.FIELDS, is_sure=False),
    Format(inspect_ai.NAME, inspect_ai.matches, _records(inspect_ai.convert), inspect_ai.FIELDS, is_sure=False),
    Format(ragas.NAME, ragas.matches, _records(ragas.convert), ragas.FIELDS, is_sure=False),
    Format(deepeval.NAME, deepeval.matches, _records(deepeval.convert), deepeval.FIELDS, is_sure=False),
    Format(mlflow.NAME, mlflow.matches, _records(mlflow.convert), mlflow.FIELDS),
    Format(langsmith.NAME, langsmith.matches, _records(langsmith.convert), langsmith.FIELDS, langsmith.oddity),
    Format(
        pydantic_evals.NAME,
        pydantic_evals.matches,
        _pydantic_evals,
        pydantic_evals.FIELDS,
        pydantic_evals.oddity,
        reads_top=True,
    ),
    Format(llama_index.NAME, llama_index.matches, _records(llama_index.convert), llama_index.FIELDS, is_sure=False),
    Format(pairwise.NAME, pairwise.matches, _records(pairwise.convert), pairwise.FIELDS),
    Format(
        assay_results.NAME,
        assay_results.matches,
        _records(assay_results.convert),
        assay_results.FIELDS,
        gathered=assay_results.gathered,
    ),
)
"""All formats; `assay.datasets.choices` has their names."""


def find_format(records: Sequence[Record], taken: Iterable[str] = (), name: str = "") -> Format | None:
    """Return the format of a file's first records; None for plain records.

    If a format's marks could be a plain record's, at least half of the records must have them.

    Args:
        records: The first records.
        taken: Fields in the user's own mapping, which do not count as marks.
        name: The file's name.

    Raises:
        BadFileError: Two formats fit equally, or an unsupported one does.
    """
    seen = [(record, *_marks(record.data, taken)) for record in records if isinstance(record.data, Mapping)]
    counts: dict[str, int] = {}
    first: dict[str, Record] = {}
    if seen and (problem := trace_export(seen[0][0].data)):
        raise BadFileError(problem, seen[0][0].line)
    for candidate in FORMATS:
        fitting = [record for record, named, keys in seen if candidate.matches(named, keys)]
        if fitting and (candidate.is_sure or 2 * len(fitting) >= len(seen)):
            counts[candidate.name], first[candidate.name] = len(fitting), fitting[0]
    best = [candidate for candidate in FORMATS if counts.get(candidate.name) == max(counts.values(), default=0)]
    if len(best) > 1:
        names = " and ".join(candidate.name for candidate in best)
        raise BadFileError(f"looks like {names} alike: set `format:` to the one that it is", first[best[0].name].line)
    if best:
        return best[0]
    if name.lower().endswith(_TEST_FILE) and adk.may_be_turns([named for _, named, _ in seen]):
        return next(candidate for candidate in FORMATS if candidate.name == adk.NAME)
    for record, named, keys in seen:
        if _is_chat(named, keys):
            raise BadFileError(
                "looks like chat data for training, which is not read: Assay reads lists of cases with fields such as "
                "question and reference_answer; if these are such cases, map their fields with `map:`",
                record.line,
            )
    return None


def doubt(records: Sequence[Record]) -> str:
    """Return the warning about plain records that another tool would read differently, or the empty text."""
    named = [_marks(record.data, ())[0] for record in records if isinstance(record.data, Mapping)]
    if len(named) < 2 or not adk.may_be_turns(named):
        return ""
    return (
        "holds `query` and `reference` and nothing else: read as one case each; if it is a test file of ADK, which is "
        "one conversation, set `format: adk`"
    )


def is_foreign(record: Mapping[str, Any], taken: Iterable[str] = ()) -> bool:
    """Return whether a record has the unambiguous marks of a format.

    Args:
        record: A raw record.
        taken: As for `find_format`.
    """
    named, keys = _marks(record, taken)
    return any(candidate.is_sure and candidate.matches(named, keys) for candidate in FORMATS) or _is_chat(named, keys)


def _marks(record: Mapping[str, Any], taken: Iterable[str]) -> tuple[dict[str, Any], frozenset[str]]:
    named = {folded(str(key)): value for key, value in record.items() if key not in taken}
    return named, frozenset(named)


def _is_chat(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    return isinstance(record.get("messages") or record.get("conversations"), list) and not keys & {
        "input", "question", "query", "prompt", "user_input", "user_query", "turns", "instruction"
    }  # fmt: skip


def shape_of(record: object) -> str:
    """Return the known shape of a plain record: "prompt-benchmark" or "plain"."""
    if not isinstance(record, Mapping):
        return "plain"
    keys = {folded(str(key)) for key in record}
    if "user_query" in keys and keys & {"eval_id", "reference_answer"}:
        return "prompt-benchmark"
    return "plain"
