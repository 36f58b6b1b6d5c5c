"""Limits on the queue of one model, in total and per scope."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_FACTOR = 4  # all scopes together, against one alone


@dataclass(frozen=True, slots=True)
class Load:
    """A number of texts with their size.

    Args:
        texts: How many.
        chars: Their characters, which take memory.
        tokens: Their word pieces, estimated, which take time.
    """

    texts: int = 0
    chars: int = 0
    tokens: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.texts + other.texts, self.chars + other.chars, self.tokens + other.tokens)

    def __sub__(self, other: Load) -> Load:
        return Load(self.texts - other.texts, self.chars - other.chars, self.tokens - other.tokens)

    def within(self, limit: Load) -> bool:
        """Return whether no part of the load exceeds the limit."""
        return self.texts <= limit.texts and self.chars <= limit.chars and self.tokens <= limit.tokens

    def divided(self, parts: int, least: Load) -> Load:
        """Return an equal part, at least `least` but at most the whole."""
        return Load(
            max(self.texts // parts, min(self.texts, least.texts)),
            max(self.chars // parts, min(self.chars, least.chars)),
            max(self.tokens // parts, min(self.tokens, least.tokens)),
        )


LEAST_SHARE = Load(texts=512, chars=4 * 1024 * 1024, tokens=128 * 1024)
"""What a scope may always have waiting: one request of the largest size."""


class Admission:
    """Counts the queued load. Each scope may fill only its share of the limit, so a flood of one leaves others room.

    Not safe for threads.

    Args:
        limit: What one scope may have waiting while no other has; with n scopes each has an n-th of it, at least
            `LEAST_SHARE`. All together have at most four times the limit.
    """

    def __init__(self, limit: Load) -> None:
        self._limit = limit
        self._most = Load(limit.texts * _MOST_FACTOR, limit.chars * _MOST_FACTOR, limit.tokens * _MOST_FACTOR)
        self._waiting: dict[str, Load] = {}
        self._total = Load()

    @property
    def total(self) -> Load:
        """The total queued load."""
        return self._total

    def waiting(self, scope: str) -> Load:
        """Return the queued load of a scope."""
        return self._waiting.get(scope, Load())

    def admits(self, scope: str, load: Load) -> bool:
        """Return whether a scope may add a load; a scope with an empty queue always may."""
        waiting = self.waiting(scope)
        if not self._total.texts:
            return True
        if not (self._total + load).within(self._most):
            return False
        share = self._limit.divided(len(self._waiting.keys() | {scope}), LEAST_SHARE)
        return not waiting.texts or (waiting + load).within(share)

    def add(self, scope: str, load: Load) -> None:
        """Count an admitted load."""
        self._total += load
        self._waiting[scope] = self.waiting(scope) + load

    def release(self, scope: str, load: Load) -> None:
        """Subtract a load that no longer waits."""
        self._total -= load
        left = self.waiting(scope) - load
        if left.texts:
            self._waiting[scope] = left
        else:
            self._waiting.pop(scope, None)
