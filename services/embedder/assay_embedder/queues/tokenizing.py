"""Tokenizing ahead of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_embedder.queues.ready_queue import Piece
from assay_embedder.queues.windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay_embedder.models.encoder import Encoder, Tokens
    from assay_embedder.queues.jobs import Job

_CHARS_PER_TOKEN = 4  # of prose in languages of the Latin script
_MOST_CHARS_PER_TOKEN = 16  # texts with longer word pieces all along are read whole
_OWN_TOKENS = 2  # the special ones


def estimated_tokens(text: str, max_tokens: int, *, windowed: bool) -> int:
    """Return an estimate of the word pieces that the model reads of a text."""
    tokens = len(text) // _CHARS_PER_TOKEN + _OWN_TOKENS
    return tokens if windowed or tokens < max_tokens else max_tokens


def pieces_of(jobs: Sequence[Job], encoder: Encoder, max_tokens: int) -> list[Piece]:
    """Return the pieces that the model reads of each text.

    Args:
        jobs: Texts.
        encoder: The model.
        max_tokens: Its window in word pieces.
    """
    plain = [job for job in jobs if not job.windowed]
    tokens = tokens_of([job.text for job in plain], encoder, max_tokens) if plain else []
    pieces = [Piece(job, each) for job, each in zip(plain, tokens, strict=True)]
    return pieces + [piece for job in jobs if job.windowed for piece in _windows(job, encoder, max_tokens)]


def tokens_of(texts: Sequence[str], encoder: Encoder, max_tokens: int) -> list[Tokens]:
    """Return the word pieces of each text, cut to the model's window.

    What is far beyond the window is cut off first, between words: tokenizers take time for all of a text. Where that
    was too much, as of words that are one piece each however long they are, the whole text is read.
    """
    most_chars = max_tokens * _MOST_CHARS_PER_TOKEN
    long = [at for at, text in enumerate(texts) if len(text) > most_chars]
    read = list(texts)
    for at in long:
        read[at] = _beginning(texts[at], most_chars)
    tokens = encoder.tokenize(read)
    for at in long:
        if not tokens[at].truncated:
            (tokens[at],) = encoder.tokenize([texts[at]])
    return tokens


def _beginning(text: str, most_chars: int) -> str:
    shorter = text[:most_chars]
    words = shorter.rsplit(None, 1)
    return words[0] if len(words) == 2 else shorter  # the last word is cut in two


def _windows(job: Job, encoder: Encoder, max_tokens: int) -> Iterator[Piece]:
    windows = windows_of(job.text, encoder, max_tokens)
    if len(windows) > 1:
        job.windows = [None] * len(windows)
    for at, tokens in enumerate(windows):
        yield Piece(job, tokens, at)
