"""How large an answer may be, checked before anything is done with it."""

from __future__ import annotations

from assay.model.answers.response_fields import MalformedAnswerError

MAX_ANSWER_BYTES = 2 * 1024 * 1024
MAX_TRACEBACK_CHARS = 8_000
"""Of an agent's error."""
MAX_TOKENS = 10**12
"""The most tokens of one answer. Sums of it over the rows of a run fit the integers of databases and messages."""
MAX_VALUES = 200_000
MAX_DEPTH = 100


class AnswerTooLargeError(ValueError):
    """The answer is larger than the limit; the message says which."""


def check_bounds(value: object, max_bytes: int = MAX_ANSWER_BYTES) -> None:
    """Refuse an answer that is too large or too deep to be written as JSON, at a cost that is bounded itself.

    Args:
        value: What an agent returned, before it is read as an answer.
        max_bytes: Largest sum of its texts, in bytes of UTF-8.

    Raises:
        AnswerTooLargeError: Its texts are larger, or it holds more than 200,000 values.
        MalformedAnswerError: It is nested more than 100 levels deep.
    """
    size = count = 0
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise MalformedAnswerError(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(item, str | bytes | bytearray):
            size += len(item) if size + len(item) > max_bytes else _byte_count(item)
        elif isinstance(item, dict | list | tuple):
            # Counted before they are unfolded: a list of millions would be copied otherwise.
            count += len(item)
            if count <= MAX_VALUES:
                children = [*item.keys(), *item.values()] if isinstance(item, dict) else item
                pending += [(child, depth + 1) for child in children]
        if size > max_bytes:
            raise AnswerTooLargeError(f"the answer is larger than {max_bytes / 1024 / 1024:g} MiB")
        if count > MAX_VALUES:
            raise AnswerTooLargeError(f"the answer holds more than {MAX_VALUES:,} values")


def _byte_count(text: str | bytes | bytearray) -> int:
    if not isinstance(text, str) or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
