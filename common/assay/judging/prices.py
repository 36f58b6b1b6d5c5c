"""What judges cost, as a table says: the one that comes with Assay, or the operator's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.errors import InvalidInputError, Problem
from assay.parsing.model_tables import matches, read_table
from assay.providers.own_services import OWN_URLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import JudgeSettings
    from assay.parsing.model_tables import Entry

VARIABLE = "ASSAY_JUDGE_PRICES"
"""The environment variable of a judge service with its file of prices."""

_FILE = Path(__file__).with_name("prices.yaml")
PRICE_NUMBERS = ("input", "output", "cache_read", "cache_write", "batch", "long", "long_input", "long_output")

NO_PRICE = (
    "{model} has no price, so that a spend cap cannot hold: give its price with --prices FILE "
    "(prices: [{{model: {model}, input: …, output: …}}], US dollars per million tokens), or remove the cap"
)
"""What is wrong with a cap for such a model, and what to do."""


class Judge(Protocol):
    """A judge, as far as its price depends on it."""

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
    """Return the entries of a file of prices; of the one that comes with Assay where none is given.

    Raises:
        InvalidInputError: All that is wrong with the file.
    """
    return read_table(path or _FILE, "prices", PRICE_NUMBERS, ("input", "output"))


def find_price(entries: Sequence[Entry], who: Judge, *, is_own_file: bool) -> Entry | None:
    """Return the entry of a judge; None where there is none.

    Args:
        entries: What `read_prices` returned.
        who: The judge.
        is_own_file: Whether the file is the operator's: ours has no prices of other services.
    """
    if who.base_url and not is_own_file:
        return None
    place = {"provider": who.provider, "model": who.model, "base_url": who.base_url or OWN_URLS.get(who.provider, "")}
    return next((entry for entry in entries if matches(entry, place)), None)


def price_problems(judge: JudgeSettings, environ: Mapping[str, str]) -> list[Problem]:
    """Return which judges of a run have no price though there is a spend cap, or what is wrong with the prices.

    Args:
        judge: Who judges; without problems of its own.
        environ: The environment of the judge service.
    """
    own = environ.get(VARIABLE)
    if not own and judge.spend_cap_usd is None:
        return []
    try:
        entries = read_prices(Path(own) if own else None)
    except InvalidInputError as error:
        return error.problems
    if judge.spend_cap_usd is None:
        return []
    return [
        Problem(NO_PRICE.format(model=one.model), f"judge.jury[{place}].model" if judge.others else "judge.model")
        for place, one in enumerate(judge.judges)
        if one.provider in OWN_URLS and find_price(entries, one, is_own_file=bool(own)) is None
    ]
