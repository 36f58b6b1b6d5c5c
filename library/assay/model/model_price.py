"""The price of a model's calls, by tokens."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


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
        weighted = fresh + cache_read * _exact(self.cache_read) + cache_write * _exact(self.cache_write)
        of_input, of_output = (self.long_input, self.long_output) if self.is_long(read) else (1.0, 1.0)
        paid = weighted * _exact(self.input) * _exact(of_input) + written * _exact(self.output) * _exact(of_output)
        return paid * (_exact(self.batch) if batched else 1) / 1_000_000

    def most_dollars(self, read: int, written: int, *, batched: bool = False) -> Fraction:
        """Return the highest possible cost of a call with these tokens, as if all input were written to the cache."""
        stored = read if self.cache_write > 1 else 0
        return self.dollars(read, written, cache_write=stored, batched=batched)

    def is_long(self, read: int) -> bool:
        """Return whether a request with this number of tokens is long."""
        return self.long is not None and read > self.long


def _exact(number: float) -> Fraction:
    # Converted from its decimal text: 0.1 is exactly a tenth.
    return Fraction(repr(number))
