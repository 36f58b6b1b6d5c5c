"""What events of Google ADK mean, in process and as its server writes them: one agent has one score by both ways."""

from __future__ import annotations

from assay.model.retrying import is_retryable_status

OUTPUT_TOOLS = frozenset({"set_model_response", "finish_task"})
"""Tools by which a model hands over its structured output and the result of a task: none of the user's."""

_RETRYABLE_CODES = frozenset({"ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
                              "UNKNOWN", "UNKNOWN_ERROR"})  # fmt: skip


def is_retryable(code: str) -> bool:
    """Return whether another attempt may help after an error code of a model, which may be a status of HTTP."""
    if code.isascii() and code.isdigit():
        return is_retryable_status(int(code))
    return code in _RETRYABLE_CODES


def output_tokens(
    input_count: int | None, candidates: int | None, thoughts: int | None, total: int | None
) -> int | None:
    """Return the tokens that a call of a model made, thoughts included; None where nothing is known of them.

    Gemini counts thoughts beside the candidates, LiteLLM and OpenAI's models among them: the total shows which.

    Args:
        input_count: Tokens of the prompt and of tools' prompts.
        candidates: Tokens of the answer.
        thoughts: Tokens of thoughts.
        total: All tokens of the call.
    """
    if not thoughts or (total and total == (input_count or 0) + (candidates or 0)):
        return candidates
    return (candidates or 0) + thoughts
