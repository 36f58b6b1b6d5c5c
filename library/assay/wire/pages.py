"""Pages: the part of a list that fits in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

MAX_PAGE_BYTES = 3 * 1024 * 1024
"""The rest of a message has room for a run, or for the values that rows can be filtered by."""

M = TypeVar("M", bound="Message")


def first_page(messages: Iterable[M]) -> list[M]:
    """Return the first messages, at least one, that together fit in a message.

    Only bytes count: a Chinese character takes three, a character that JSON escapes six.
    """
    page: list[M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if page and size > MAX_PAGE_BYTES:
            break
        page.append(message)
    return page
