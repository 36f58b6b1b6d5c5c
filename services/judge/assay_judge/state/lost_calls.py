"""Calls of a run whose outcome is unknown: a time-out, a caller who left, a process that was killed.

Each counts as spent with the most that it may have cost. Once an identical request is answered, its usage shows how
many tokens the lost one can have read, so that the rest is free again; what it may have written stays `max_tokens`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_KEYS = 200  # they are written with each change of the account


class LostCalls:
    """The lost calls of one run.

    Args:
        amounts: The most that each may have cost, in billionths of a dollar, by the key of the verdict.
        bounded: What those may have cost that are never bounded again.
    """

    def __init__(self, amounts: Mapping[str, Sequence[int]] | None = None, bounded: int = 0) -> None:
        self._amounts = OrderedDict((key, list(each)) for key, each in (amounts or {}).items())
        self._bounded = bounded

    @classmethod
    def read(cls, text: str) -> LostCalls:
        """Return the lost calls of an account as it was written; calls in flight then are lost now."""
        data = json.loads(text) if text else {}
        return cls(data.get("calls"), data.get("bounded", 0))

    def text(self, in_flight: Mapping[str, Sequence[int]]) -> str:
        """Return what is written: these, and the calls in flight, which are lost if the process is killed."""
        if not (self._amounts or self._bounded or in_flight):
            return ""
        calls = {key: [*self._amounts.get(key, ()), *in_flight.get(key, ())] for key in {**self._amounts, **in_flight}}
        return json.dumps({"calls": calls, "bounded": self._bounded}, separators=(",", ":"))

    @property
    def total(self) -> int:
        """What all of them may have cost, in billionths of a dollar."""
        return self._bounded + sum(map(sum, self._amounts.values()))

    def add(self, key: str, amount: int) -> None:
        """Add a call; those for no verdict are never bounded, nor the oldest where there are very many."""
        if not key:
            self._bounded += amount
            return
        self._amounts.setdefault(key, []).append(amount)
        if len(self._amounts) > _MOST_KEYS:
            self._bounded += sum(self._amounts.popitem(last=False)[1])

    def bound(self, key: str, most: int) -> int:
        """Bound the calls for one verdict by the most that each can have cost; return how much less that is."""
        amounts = self._amounts.pop(key, [])
        costs = [min(amount, most) for amount in amounts]
        self._bounded += sum(costs)
        return sum(amounts) - sum(costs)
