"""Messages on why the tokens of an answer are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.answers.possible_usage import counted_parts
from assay.model.answers.usage_names import read_counts, unread_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.answers.agent_response import AgentResponse

_MOST_NAMED, _MOST_CHARS = 8, 200


def why_uncounted(response: AgentResponse, *, parts: bool = False) -> str:
    """Return why the tokens of an answer are unknown; empty if it reports no usage.

    Args:
        response: The answer.
        parts: Whether input and output tokens are needed separately.
    """
    usage, unread = response.usage, response.metadata.get("usage")
    if isinstance(unread, dict):
        names = ", ".join(unread_names(unread)[:_MOST_NAMED])[:_MOST_CHARS]
        return f"no tokens: usage has fields that are not read ({names}): name them input_tokens and output_tokens"
    if usage is None:
        field = _field_with_counts(response.metadata)
        return f"no tokens: usage is read from the field 'usage', and the counts are in {field}" if field else ""
    if 0 in (usage.input_tokens, usage.output_tokens, usage.total_tokens) and counted_parts(usage) == (None, None):
        return "no tokens: usage says 0, which means that they were not counted"
    if parts and usage.total_tokens is not None:
        return "no tokens: usage has total_tokens alone, and a cost needs input_tokens and output_tokens"
    return ""


def _field_with_counts(metadata: Mapping[str, Any]) -> str:
    """Return the field other than `usage` in which an answer has token counts; empty if there is none."""
    for name, value in metadata.items():
        parts = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {}
        for field, part in {name: value, **parts}.items():
            usage = part if isinstance(part, dict) else {name: value}
            counts = read_counts(usage, lambda count, _: count if type(count) is int else None)
            if "input_tokens" in counts or "output_tokens" in counts:
                return repr(field[:_MOST_CHARS])
    return ""
