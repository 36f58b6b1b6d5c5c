"""What a call of a model costs by its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars per million tokens.

    Args:
        input: Of the request.
        output: Of the reply, thoughts included.
        cache_read: Factor of the input's price for what comes from the provider's cache.
        cache_write: Factor for what is written to it.
        batch: Factor of all of this for what is asked through the provider's batch API.
        long: A request of more tokens than this is a long one; None for none.
        long_input: Factor of the input's price for a long request.
        long_output: Factor of the output's price for a long request.
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

        (fresh·input + cache_read·input·its factor + cache_write·input·its factor + written·output) / 10⁶, times
        `batch` where it was asked in a batch

        Args:
            read: Tokens of the request, cached ones included.
            written: Tokens of the reply, thoughts included.
            cache_read: Tokens of the request that came from the provider's cache.
            cache_write: Tokens of the request that were written to it.
            batched: Whether it was asked in a batch.
        """
        fresh = max(0, read - cache_read - cache_write)
        weighted = fresh + cache_read * _exact(self.cache_read) + cache_write * _exact(self.cache_write)
        of_input, of_output = (self.long_input, self.long_output) if self.is_long(read) else (1.0, 1.0)
        paid = weighted * _exact(self.input) * _exact(of_input) + written * _exact(self.output) * _exact(of_output)
        return paid * (_exact(self.batch) if batched else 1) / 1_000_000

    def most_dollars(self, read: int, written: int, *, batched: bool = False) -> Fraction:
        """Return the most that a call of so many tokens can cost: all of its request may be written to the cache."""
        stored = read if self.cache_write > 1 else 0
        return self.dollars(read, written, cache_write=stored, batched=batched)

    def is_long(self, read: int) -> bool:
        """Return whether a request of so many tokens is a long one."""
        return self.long is not None and read > self.long


def _exact(number: float) -> Fraction:
    # As it is written: 0.1 is a tenth.
    return Fraction(repr(number))
