"""Prices of a judge's calls, in billionths of a US dollar so that sums are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from assay.judging.prices import no_price, prices_that_count
from assay.providers.prices import find_price, read_prices
from assay_judge.calls.token_usage import most_input, most_input_like

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from assay.model.model_price import ModelPrice
    from assay_judge.judges import JudgeChoice
    from assay_judge.model import Prompt, Tokens

NANO = 1_000_000_000
_MOST_KNOWN = 1_000
MOST_NANO = 10**18
"""A billion dollars; sums of larger amounts would not fit into a database column."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of calls of a judge's model.

    Args:
        prices: At least one price list; each call costs the highest of them.
    """

    prices: tuple[ModelPrice, ...]

    def nano(self, tokens: Tokens, *, batched: bool = False) -> int:
        """Return the cost of a call in billionths of a dollar, rounded up."""
        return _rounded_up(
            price.dollars(
                tokens.input, tokens.output, cache_read=tokens.cache_read, cache_write=tokens.cache_write,
                batched=batched,
            )
            for price in self.prices
        )  # fmt: skip

    def most_nano(self, prompt: Prompt, max_tokens: int, *, batched: bool = False) -> int:
        """Return the most that a call can cost, as no token is shorter than a byte."""
        return self._most(most_input(prompt), max_tokens, batched=batched)

    def most_nano_like(self, answered: Tokens, prompt: Prompt, max_tokens: int) -> int:
        """Return the most that a lost call can have cost, given the answer to another attempt."""
        return self._most(most_input_like(answered, prompt), max_tokens)

    def _most(self, read: int, written: int, *, batched: bool = False) -> int:
        return _rounded_up(price.most_dollars(read, written, batched=batched) for price in self.prices)


def _rounded_up(dollars: Iterable[Fraction]) -> int:
    return min(math.ceil(max(dollars) * NANO), MOST_NANO)


class PriceTable:
    """Prices by judge.

    Args:
        path: The operator's own file; None for the file shipped with Assay.
        is_capped: Whether the operator caps runs; a price from the request alone then does not count.

    Raises:
        InvalidInputError: The file is invalid; lists all problems.
    """

    def __init__(self, path: Path | None = None, *, is_capped: bool = False) -> None:
        self._is_capped = is_capped
        self._is_own_file = path is not None
        self._entries = read_prices(path)
        self._known = lru_cache(_MOST_KNOWN)(self._find)  # every call looks up its price

    def find(self, choice: JudgeChoice) -> Price | None:
        """Return a judge's price, from the table and the request; None if neither has one."""
        return self._known(choice)

    def _find(self, choice: JudgeChoice) -> Price | None:
        listed = find_price(self._entries, choice, is_own_file=self._is_own_file)
        prices = prices_that_count(listed, choice.prices, is_capped=self._is_capped)
        return Price(prices) if prices else None

    def no_price(self, choice: JudgeChoice) -> str:
        """Return the error message for a spend cap on a judge without a price."""
        return no_price(choice.model, choice.base_url, is_capped=self._is_capped)


def nano_from_usd(usd: float) -> int:
    """Return dollars in billionths, rounded down; at most a billion dollars."""
    # By way of the decimal text, so that 0.1 is exactly a tenth.
    return min(math.floor(Fraction(repr(usd)) * NANO), MOST_NANO)


def usd_from_nano(nano: int) -> float:
    """Return billionths as dollars."""
    return nano / NANO
