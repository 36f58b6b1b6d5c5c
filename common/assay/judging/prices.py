"""Which judges of a run have no price."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.providers.own_services import OWN_URLS
from assay.providers.prices import find_price, read_prices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.run import JudgeSettings

VARIABLE = "ASSAY_JUDGE_PRICES"
"""The environment variable of a judge service with its file of prices."""


def no_price(model: str, base_url: str) -> str:
    """Return what is wrong with a spend cap for a model that has no price, and what to do.

    Args:
        model: The model's id.
        base_url: Where its service is; empty for the provider's own.
    """
    where = f" at {base_url} (the prices that come with Assay are for the providers' own services)" if base_url else ""
    return (
        f"{model} has no price{where}, so that a spend cap cannot hold: give its price with --prices FILE "
        f"(prices: [{{model: {model}, input: …, output: …}}], US dollars per million tokens), or remove the cap"
    )


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
        Problem(no_price(one.model, one.base_url), f"judge.jury[{place}].model" if judge.others else "judge.model")
        for place, one in enumerate(judge.judges)
        if one.provider in OWN_URLS and find_price(entries, one, is_own_file=bool(own)) is None
    ]
