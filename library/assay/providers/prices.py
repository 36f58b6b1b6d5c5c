"""Prices of models, from Assay's table or the user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.errors import Problem
from assay.model.model_price import ModelPrice
from assay.parsing.model_tables import matches, number_problems, read_table
from assay.parsing.names import unknown_name
from assay.providers.own_services import OWN_URLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.parsing.model_tables import Entry
    from assay.providers.messages import TokenUsage

_FILE = Path(__file__).with_name("prices.yaml")
PRICE_NUMBERS = ("input", "output", "cache_read", "cache_write", "batch", "long", "long_input", "long_output")
"""The numbers of an entry; the first two are needed."""
_MOST = 10_000
"""Of a price that a spec says; what is above is in another unit, and sums of it may not fit into a database."""


class PricedModel(Protocol):
    """A model, as far as its price depends on it."""

    @property
    def provider(self) -> str:
        """Whose protocol it speaks."""

    @property
    def model(self) -> str:
        """The model's id."""

    @property
    def base_url(self) -> str:
        """Where the service is; empty for the provider's own."""


def read_prices(path: Path | None) -> Sequence[Entry]:
    """Return the entries of a price file; of Assay's own table by default.

    Raises:
        InvalidInputError: All that is wrong with the file.
    """
    return read_table(path or _FILE, "prices", PRICE_NUMBERS, PRICE_NUMBERS[:2])


def find_price(entries: Sequence[Entry], who: PricedModel, *, is_own_file: bool) -> ModelPrice | None:
    """Return the price of a model; None where there is none.

    Args:
        entries: What `read_prices` returned.
        who: The model.
        is_own_file: Whether the file is the operator's: ours has no prices of other services.
    """
    if who.base_url and not is_own_file:
        return None
    place = {"provider": who.provider, "model": who.model, "base_url": who.base_url or OWN_URLS.get(who.provider, "")}
    entry = next((entry for entry in entries if matches(entry, place)), None)
    return None if entry is None else ModelPrice(**{key: entry[key] for key in PRICE_NUMBERS if key in entry})


def price_number_problems(numbers: Mapping[str, Any], known: Sequence[str] = PRICE_NUMBERS) -> list[tuple[str, str]]:
    """Return the problems of the numbers in a spec's price, by name.

    Args:
        numbers: The price by the names of `ModelPrice`.
        known: The names that it may have.
    """
    problems = number_problems(numbers, known, PRICE_NUMBERS[:2])
    wrong = {name for name, _ in problems}
    return problems + [
        (name, f"must be at most {_MOST:,}: prices are US dollars per million tokens")
        for name in known
        if name not in wrong and name != "long" and (numbers.get(name) or 0) > _MOST
    ]


def price_from_mapping(
    value: Mapping[str, Any], where: str, problems: list[Problem], known: Sequence[str] = PRICE_NUMBERS
) -> ModelPrice | None:
    """Return the price in a spec; None if it has problems, which are added to `problems`.

    Args:
        value: The price by the names of `ModelPrice`.
        where: The field of the spec.
        problems: Takes what is wrong.
        known: The names that it may have.
    """
    wrong = price_number_problems(value, known)
    wrong += [(str(name), unknown_name("price", name, known)) for name in value if name not in known]
    problems += [Problem(message, f"{where}.{name}") for name, message in wrong]
    return None if wrong else ModelPrice(**value)


def cost_of(price: ModelPrice, tokens: TokenUsage) -> float | None:
    """Return the cost of a call in US dollars; None if its tokens are unknown, as 0 and 0 mean."""
    if tokens.input is None or tokens.output is None or not (tokens.input or tokens.output):
        return None
    read, written = tokens.cache_read or 0, tokens.cache_write or 0
    return float(price.dollars(tokens.input, tokens.output, cache_read=read, cache_write=written))
