"""The price of a model's calls, by tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices in US dollars per million tokens.

    Args:
        input: Price of input tokens.
        output: Price of output tokens, thoughts included.
        cache_read: Factor of the input price for tokens read from the provider's cache.
        cache_write: Factor of the input price for tokens written to it.
        batch: Factor of the whole cost for calls through the provider's batch API.
        long: A request of more tokens than this is long; None for no limit.
        long_input: Factor of the input price for a long request.
        long_output: Factor of the output price for a long request.
    """

    input: float
    output: float
    cache_read: float = 0.1
    cache_write: float = 1.25
    batch: float = 0.5
    long: float | None = None
    long_input: float = 1.0
    long_output: float = 1.0

    def dollars(
        self, read: int, written: int, *, cache_read: int = 0, cache_write: int = 0, batched: bool = False
    ) -> Fraction:
        """Return the exact cost of a call in US dollars.

        (fresh·input + cache_read·input·factor + cache_write·input·factor + written·output) / 10⁶, times `batch` for a
        batch

        Args:
            read: Input tokens, cached ones included.
            written: Output tokens, thoughts included.
            cache_read: Input tokens read from the provider's cache.
            cache_write: Input tokens written to it.
            batched: Whether the call was part of a batch.
        """
        fresh = max(0, read - cache_read - cache_write)
        unit, rates = _rates(self, self.is_long(read), batched)
        counts = (fresh, cache_read, cache_write, written)
        return Fraction(sum(count * rate for count, rate in zip(counts, rates, strict=True)), unit)

    def most_dollars(self, read: int, written: int, *, batched: bool = False) -> Fraction:
        """Return the highest possible cost of a call with these tokens, as if all input were written to the cache."""
        stored = read if self.cache_write > 1 else 0
        return self.dollars(read, written, cache_write=stored, batched=batched)

    def is_long(self, read: int) -> bool:
        """Return whether a request with this number of tokens is long."""
        return self.long is not None and read > self.long


@lru_cache(maxsize=1_000)
def _rates(price: ModelPrice, is_long: bool, batched: bool) -> tuple[int, tuple[int, ...]]:
    """Return the prices of a fresh, a cached, a stored and a written token, as whole parts of a unit of a dollar.

    Each verdict needs three costs, and fractions of decimal texts take longer than the rest of a cost.
    """
    shared = (_exact(price.batch) if batched else Fraction(1)) / 1_000_000
    of_input = shared * _exact(price.input) * (_exact(price.long_input) if is_long else 1)
    of_output = shared * _exact(price.output) * (_exact(price.long_output) if is_long else 1)
    rates = (of_input, of_input * _exact(price.cache_read), of_input * _exact(price.cache_write), of_output)
    unit = math.lcm(*(rate.denominator for rate in rates))
    return unit, tuple(int(rate * unit) for rate in rates)


def _exact(number: float) -> Fraction:
    # Converted from its decimal text: 0.1 is exactly a tenth.
    return Fraction(repr(number))
