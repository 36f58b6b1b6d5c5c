"""A queue of tokenized texts, from which runs of the model are cut."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_embedder.models.encoder import Tokens
    from assay_embedder.queues.jobs import Job

_WORKERS_PER_RUN_AHEAD = 4  # tokenizing takes a twentieth of a run; what is ahead makes a late scope wait
_GATHERED_BATCHES = 4  # enough texts to sort by length, few enough that a late small request waits little


class Piece:
    """A text, or one window of it, as the model reads it.

    Args:
        job: The text.
        tokens: Its word pieces.
        at: Which window it is.

    Attributes:
        length: How many word pieces it has, at least one, so that every piece counts.
    """

    __slots__ = ("at", "job", "length", "tokens")

    def __init__(self, job: Job, tokens: Tokens, at: int = 0) -> None:
        self.job, self.tokens, self.at = job, tokens, at
        self.length = len(tokens.ids) or 1


class ReadyQueue:
    """The queue that the workers take from. Not safe for threads.

    A model that packs reads real word pieces: runs are cut in order of arrival. Another pads each text to the longest
    of its run: a few runs' worth are sorted by length first, and padding counts.

    Args:
        budget_tokens: Word pieces per run; a longer piece runs alone.
        packed: Whether the model packs.
        worker_count: Workers that take from it.
    """

    def __init__(self, *, budget_tokens: int, packed: bool, worker_count: int) -> None:
        self._budget_tokens = budget_tokens
        self._packed = packed
        ahead = max(1, worker_count // _WORKERS_PER_RUN_AHEAD) if packed else max(worker_count, _GATHERED_BATCHES)
        self._limit_tokens = budget_tokens * ahead
        self._pieces: deque[Piece] = deque()
        self._sorted: deque[list[Piece]] = deque()
        self._tokens = 0

    def __bool__(self) -> bool:
        """Whether the queue has a piece."""
        return bool(self._pieces or self._sorted)

    @property
    def has_room(self) -> bool:
        """Whether the workers will soon run out: more is prepared only then, so that a late scope waits little."""
        return self._tokens < self._limit_tokens

    def add(self, pieces: Sequence[Piece]) -> int:
        """Append pieces; return their total number of word pieces."""
        tokens = sum([piece.length for piece in pieces])
        self._pieces.extend(pieces)
        self._tokens += tokens
        return tokens

    def take(self, idle_workers: int = 1) -> list[Piece]:
        """Return the next run of the model, and with it pieces that no request wants any more, which cost no budget.

        Args:
            idle_workers: Workers without a run, the one that asks included: few texts are divided over them.
        """
        run = self._next_packed(idle_workers) if self._packed else self._next_sorted()
        self._tokens -= sum([piece.length for piece in run])
        return run

    def take_all(self) -> list[Piece]:
        """Empty the queue and return what was in it."""
        pieces = [*self._pieces, *(piece for run in self._sorted for piece in run)]
        self._pieces.clear()
        self._sorted.clear()
        self._tokens = 0
        return pieces

    def _next_packed(self, idle_workers: int) -> list[Piece]:
        budget = min(self._budget_tokens, -(-self._tokens // idle_workers))
        run: list[Piece] = []
        tokens = 0
        while self._pieces and (not run or tokens + self._pieces[0].length <= budget):
            piece = self._pieces.popleft()
            tokens += piece.length if piece.job.is_wanted else 0
            run.append(piece)
        return run

    def _next_sorted(self) -> list[Piece]:
        if not self._sorted:
            # The longest first: what takes most memory fails at once, not after the rest was computed.
            pieces = deque(sorted(self._pieces, key=lambda piece: piece.length, reverse=True))
            self._pieces.clear()
            while pieces:
                count = max(1, self._budget_tokens // pieces[0].length)
                self._sorted.append([pieces.popleft() for _ in range(min(count, len(pieces)))])
        return self._sorted.popleft() if self._sorted else []
