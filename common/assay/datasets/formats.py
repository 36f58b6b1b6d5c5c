"""Formats of other tools that hold cases in a shape of their own: recognised, so that none is misread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.datasets.foreign import promptfoo
from assay.datasets.json_reader import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["PROMPTFOO", "foreign_format", "shape_of"]

PROMPTFOO = "a promptfoo test file"
"""The format that `assay.datasets.foreign.promptfoo` reads."""

_Record = Mapping[str, Any]


def _has(*names: str) -> Callable[[_Record, frozenset[str]], bool]:
    wanted = frozenset(names)
    return lambda _, keys: wanted <= keys


def _is_eval_set(record: _Record, keys: frozenset[str]) -> bool:
    turns = record.get("conversation")
    return bool(keys & {"conversation_scenario", "conversationscenario", "evalsetid", "evalcases"}) or (
        isinstance(turns, list)
        and any(isinstance(turn, Mapping) and ("user_content" in turn or "userContent" in turn) for turn in turns)
    )


def _is_hosted_eval(record: _Record, keys: frozenset[str]) -> bool:
    return isinstance(record.get("item"), Mapping) and keys <= {"item", "sample", "id"}


def _is_turn_list(record: _Record, keys: frozenset[str]) -> bool:
    return "query" in keys and bool(
        keys & {"expected_tool_use", "expected_intermediate_agent_responses", "expected_intermediate_agent_response"}
    )


def _is_old_eval(record: _Record, keys: frozenset[str]) -> bool:
    data = record.get("data")
    return (
        "name" in keys
        and isinstance(data, list)
        and any(isinstance(item, Mapping) and "query" in item for item in data)
    )


def _is_chat(record: _Record, keys: frozenset[str]) -> bool:
    return isinstance(record.get("messages") or record.get("conversations"), list) and not keys & {
        "input", "question", "query", "prompt", "user_input", "user_query", "turns", "instruction"
    }  # fmt: skip


_FORMATS: tuple[tuple[str, Callable[[_Record, frozenset[str]], bool]], ...] = (
    ("an ADK eval set", _is_eval_set),
    ("an ADK test file (the turns of one conversation)", _is_turn_list),
    ("an ADK eval file", _is_old_eval),
    (PROMPTFOO, promptfoo.matches),
    ("a file of pairwise labels", _has("output_1", "output_2")),
    ("an MLflow evaluation table", _has("inputs", "expectations")),
    ("a LangSmith dataset", _has("inputs", "outputs")),
    ("a pydantic-evals dataset", _has("inputs", "evaluators")),
    ("a pydantic-evals dataset", _has("inputs", "expected_output")),
    ("an Inspect multiple-choice dataset", _has("input", "target", "choices")),
    ("an Inspect dataset with a sandbox", _has("input", "target", "sandbox")),
    ("an export of hosted OpenAI evals", _is_hosted_eval),
    ("chat data for training", _is_chat),
)


def foreign_format(record: object, taken: Iterable[str] = ()) -> str:
    """Return the name of the format that a record is in, or the empty string if there is nothing odd about it.

    Args:
        record: One raw record.
        taken: Fields that the user's own mapping names: whoever maps a field has looked at it.
    """
    if not isinstance(record, Mapping):
        return ""
    kept = {folded(str(key)): value for key, value in record.items() if key not in taken}
    keys = frozenset(kept)
    return next((name for name, fits in _FORMATS if fits(kept, keys)), "")


def shape_of(record: object) -> str:
    """Return the known shape of a record: "prompt-benchmark" or "plain"."""
    if not isinstance(record, Mapping):
        return "plain"
    keys = {folded(str(key)) for key in record}
    if "user_query" in keys and keys & {"eval_id", "reference_answer"}:
        return "prompt-benchmark"
    return "plain"
