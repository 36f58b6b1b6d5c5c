"""Pages: how many messages of a list fit in one message together."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

MAX_PAGE_BYTES = 3_500_000
"""Beside them a message has room for a run, or for what rows can be filtered by."""

M = TypeVar("M", bound="Message")


def first_page(messages: Iterable[M]) -> list[M]:
    """Return the first messages, at least one, that fit in one message together.

    Only bytes count: a character of Chinese takes three, one that JSON escapes six.
    """
    found: list[M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if found and size > MAX_PAGE_BYTES:
            break
        found.append(message)
    return found
