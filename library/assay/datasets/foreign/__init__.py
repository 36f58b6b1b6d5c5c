"""Formats of other tools: recognised by the marks of their records, or named by the user, and read as plain records."""

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
    """What a file's records stand in.

    Args:
        top: What stands beside the list of records.
        given: The user's own mapping, canonical name to the file's.
        from_cells: Whether records are rows of a table.
        are_texts: Whether they are rows of a table that holds nothing but texts.
        warn: Takes a warning about the whole file.
    """

    top: Mapping[str, Any]
    given: Mapping[str, str]
    from_cells: bool
    are_texts: bool
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of another tool.

    Args:
        name: What users call it.
        matches: Says whether a record, by snake-case names, has the marks of the format.
        prepare: Returns what makes plain records of the format's.
        fields: Canonical field to the format's own, for people.
        oddity: Returns a warning about a record, or the empty text.
        is_sure: Whether its marks mean nothing else, so that one record that has them is enough.
        reads_top: Whether what stands beside the records matters.
        joined: Returns the plain record of a file whose records are parts of one case, by the file's name.
        is_part: Says whether a record is such a part.
        gathered: Returns one record for the records of each case, where several that follow each other are of one.
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
    """Return the `prepare` of a format each of whose records stands by itself."""

    def prepare(setting: Setting) -> Convert:
        found = (lambda row: convert(opened(row))) if setting.from_cells else convert
        return with_mapping(found, setting.given)

    return prepare


def _promptfoo(setting: Setting) -> Convert:
    if unread := promptfoo.unread_parts(setting.top):
        setting.warn(unread)
    return promptfoo.Tests(setting.top, given=setting.given, are_rows=setting.are_texts or None).convert


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
"""Every format that is read; `assay.datasets.choices` holds their names."""


def find_format(records: Sequence[Record], taken: Iterable[str] = (), name: str = "") -> Format | None:
    """Return the format that a file's first records are in; None for plain records.

    A format whose marks could be a plain record's is recognised where at least half of the records have them.

    Args:
        records: The first records.
        taken: Fields that the user's own mapping names: a mapped field is no mark.
        name: The file's name.

    Raises:
        BadFileError: Two formats fit equally, or one that is not read does.
    """
    seen = [(record, *_marks(record.data, taken)) for record in records if isinstance(record.data, Mapping)]
    counts: dict[str, int] = {}
    first: dict[str, Record] = {}
    if seen and (problem := trace_export(seen[0][0].data)):
        raise BadFileError(problem, seen[0][0].line)
    for each in FORMATS:
        fitting = [record for record, named, keys in seen if each.matches(named, keys)]
        if fitting and (each.is_sure or 2 * len(fitting) >= len(seen)):
            counts[each.name], first[each.name] = len(fitting), fitting[0]
    best = [each for each in FORMATS if counts.get(each.name) == max(counts.values(), default=0)]
    if len(best) > 1:
        names = " and ".join(each.name for each in best)
        raise BadFileError(f"looks like {names} alike: set `format:` to the one that it is", first[best[0].name].line)
    if best:
        return best[0]
    if name.lower().endswith(_TEST_FILE) and adk.may_be_turns([named for _, named, _ in seen]):
        return next(each for each in FORMATS if each.name == adk.NAME)
    for record, named, keys in seen:
        if _is_chat(named, keys):
            raise BadFileError(
                "looks like chat data for training, which is not read: Assay reads lists of cases with fields such as "
                "question and reference_answer; if these are such cases, say with `map:` what holds what",
                record.line,
            )
    return None


def doubt(records: Sequence[Record]) -> str:
    """Return the warning about plain records that another tool would read in another way, or the empty text."""
    named = [_marks(record.data, ())[0] for record in records if isinstance(record.data, Mapping)]
    if len(named) < 2 or not adk.may_be_turns(named):
        return ""
    return (
        "holds `query` and `reference` and nothing else: read as one case each; if it is a test file of ADK, which is "
        "one conversation, set `format: adk`"
    )


def is_foreign(record: Mapping[str, Any], taken: Iterable[str] = ()) -> bool:
    """Return whether a record has the marks of a format that cannot be taken for plain.

    Args:
        record: One raw record.
        taken: As for `find_format`.
    """
    named, keys = _marks(record, taken)
    return any(each.is_sure and each.matches(named, keys) for each in FORMATS) or _is_chat(named, keys)


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
