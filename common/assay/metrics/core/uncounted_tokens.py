"""Why the tokens of an answer are not known, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.possible_usage import counted_parts
from assay.model.usage_names import unread_names

if TYPE_CHECKING:
    from assay.model.agent_response import AgentResponse

_MOST_NAMED, _MOST_CHARS = 8, 200


def why_uncounted(response: AgentResponse, *, parts: bool = False) -> str:
    """Return why the tokens of an answer are not known, as a message; empty where it reports no usage.

    Args:
        response: The answer.
        parts: Whether input and output are needed apart.
    """
    usage, unread = response.usage, response.metadata.get("usage")
    if isinstance(unread, dict):
        names = ", ".join(unread_names(unread)[:_MOST_NAMED])[:_MOST_CHARS]
        return f"no tokens: usage has fields that are not read ({names}): name them input_tokens and output_tokens"
    if usage is None:
        return ""
    if 0 in (usage.input_tokens, usage.output_tokens, usage.total_tokens) and counted_parts(usage) == (None, None):
        return "no tokens: usage says 0, which means that they were not counted"
    if parts and usage.total_tokens is not None:
        return "no tokens: usage has total_tokens alone, and a cost needs input_tokens and output_tokens"
    return ""
