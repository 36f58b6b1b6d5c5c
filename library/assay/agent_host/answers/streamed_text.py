"""Joining the texts that a generator streams, and the answer that may follow them."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.answers.plain_answers import is_answer
from assay.model.answers.agent_response import MalformedAnswerError
from assay.model.answers.response_limits import AnswerTooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer that followed its streamed text.

    Args:
        text: The joined text.
        answer: The answer that followed.
    """

    text: str
    answer: object


class Pieces:
    """Joins the pieces of an answer. Create it in the event loop; a synchronous generator is read in a thread.

    Args:
        on_piece: Called in the event loop with each piece; None if only the whole is needed.
        max_bytes: Maximum characters of all pieces; bytes are counted once the answer is complete.
        takes_any: Whether any object may follow the pieces, or only an answer.
    """

    def __init__(self, on_piece: Callable[[str], None] | None, max_bytes: int, *, takes_any: bool = False) -> None:
        self._on_piece = on_piece
        self._max_bytes = max_bytes
        self._takes_any = takes_any
        self._texts: list[str] = []
        self._size = 0
        self._answer: object = None
        self._loop = asyncio.get_running_loop()
        self._is_over = threading.Event()
        self.first_at: float | None = None

    def close(self) -> None:
        """Request no further piece, because no client waits for the answer."""
        self._is_over.set()

    async def join(self, pieces: AsyncGenerator[object, Any]) -> object:
        """Return the text, or a StreamedAnswer.

        Raises:
            MalformedAnswerError: A piece is neither a text nor a final answer.
            AnswerTooLargeError: The text is too large.
        """
        async with aclosing(pieces):
            async for piece in pieces:
                if (text := self._take(piece)) is not None and self._on_piece is not None:
                    self._on_piece(text)
        return self._joined()

    def join_generator(self, pieces: Generator[object, Any, Any]) -> object:
        """Same as `join`, in a thread; the generator's return value counts as the answer too."""
        with closing(pieces):
            while not self._is_over.is_set():
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    if end.value is not None:
                        self._take(end.value)
                    break
                if (text := self._take(piece)) is not None and self._on_piece is not None:
                    self._loop.call_soon_threadsafe(self._on_piece, text)
        return self._joined()

    def _take(self, piece: object) -> str | None:
        """Accept a piece; return it if it is a text."""
        if self._answer is not None:
            raise MalformedAnswerError(f"it yielded more after its answer, a {type(self._answer).__name__}")
        if not isinstance(piece, str):
            if not is_answer(piece) and (piece is None or not self._takes_any):
                raise MalformedAnswerError(
                    f"it yielded a {type(piece).__name__}: pieces of an answer are texts, the last may be the answer"
                )
            self._answer = piece
            return None
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise AnswerTooLargeError(f"the answer is larger than {self._max_bytes / 1024 / 1024:g} MiB")
        if piece and self.first_at is None:
            self.first_at = time.perf_counter()
        self._texts.append(piece)
        return piece

    def _joined(self) -> object:
        text = "".join(self._texts)
        return text if self._answer is None else StreamedAnswer(text, self._answer)
