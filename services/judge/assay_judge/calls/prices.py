"""What calls of a judge cost, in billionths of a US dollar, so that sums are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from assay.judging.prices import PRICE_NUMBERS, find_price, read_prices
from assay_judge.calls.token_usage import most_input

if TYPE_CHECKING:
    from pathlib import Path

    from assay_judge.judges import JudgeChoice
    from assay_judge.model import Prompt, Tokens

NANO = 1_000_000_000
_MOST_NANO = 10**18
"""A billion dollars: more is no amount, and sums of it would not fit into a database."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens.

    Args:
        input: Of the request.
        output: Of the reply, thoughts included.
        cache_read: Factor of the input's price for what comes from the provider's cache.
        cache_write: Factor for what is written to it.
        batch: Factor of all of this for what is asked through the provider's batch API.
        long: A request of more tokens than this is a long one.
        long_input: Factor of the input's price for a long request.
        long_output: Factor of the output's price for a long request.
    """

    input: float
    output: float
    cache_read: float = 0.1
    cache_write: float = 1.25
    batch: float = 0.5
    long: float = math.inf
    long_input: float = 1.0
    long_output: float = 1.0

    def nano(self, tokens: Tokens, *, batched: bool = False) -> int:
        """Return the cost of a call in billionths of a dollar, rounded up.

        (fresh·input + read·input·cache_read + written·input·cache_write + output·output price) / 10⁶ dollars, times
        `batch` where it was asked in a batch
        """
        fresh = max(0, tokens.input - tokens.cache_read - tokens.cache_write)
        paid = _exact(self.input) * (
            fresh + tokens.cache_read * _exact(self.cache_read) + tokens.cache_write * _exact(self.cache_write)
        )
        return self._nano(paid, tokens.output, tokens.input, batched)

    def most_nano(self, prompt: Prompt, max_tokens: int, *, batched: bool = False) -> int:
        """Return the most that a call can cost: no token is shorter than a byte, all may be written to the cache."""
        dearest = _exact(self.input) * max(_exact(self.cache_write), Fraction(1))
        return self._nano(dearest * most_input(prompt), max_tokens, most_input(prompt), batched)

    def _nano(self, paid: Fraction, output: int, size: int, batched: bool) -> int:
        """Return the price of an input, in dollars per million, with that of so many tokens of output."""
        of_input, of_output = (self.long_input, self.long_output) if size > self.long else (1.0, 1.0)
        all_of_it = paid * _exact(of_input) + _exact(self.output) * _exact(of_output) * output
        return min(math.ceil(all_of_it * (_exact(self.batch) if batched else 1) * NANO / 1_000_000), _MOST_NANO)


class PriceTable:
    """Prices by judge.

    Args:
        path: The operator's own file; None for the one that comes with Assay.

    Raises:
        InvalidInputError: All that is wrong with the file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._is_own_file = path is not None
        self._entries = read_prices(path)

    def find(self, choice: JudgeChoice) -> Price | None:
        """Return a judge's price; None where there is none."""
        entry = find_price(self._entries, choice, is_own_file=self._is_own_file)
        return None if entry is None else Price(**{key: entry[key] for key in PRICE_NUMBERS if key in entry})


def nano_from_usd(usd: float) -> int:
    """Return dollars in billionths, rounded down; at most a billion dollars."""
    return min(math.floor(_exact(usd) * NANO), _MOST_NANO)


def usd_from_nano(nano: int) -> float:
    """Return billionths in dollars."""
    return nano / NANO


def _exact(number: float) -> Fraction:
    # As it is written: 0.1 is a tenth.
    return Fraction(repr(number))
