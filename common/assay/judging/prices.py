"""Which judges of a run have no price."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.providers.own_services import OWN_URLS
from assay.providers.prices import find_price, read_prices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.model_price import ModelPrice
    from assay.model.run import JudgeSettings

VARIABLE = "ASSAY_JUDGE_PRICES"
"""The environment variable of a judge service with its file of prices."""


CAP_VARIABLE = "ASSAY_JUDGE_SPEND_CAP_USD"
"""The environment variable of a judge service with its own spend cap of every run."""


def prices_that_count(
    listed: ModelPrice | None, named: ModelPrice | None, *, is_capped: bool
) -> tuple[ModelPrice, ...]:
    """Return the prices of a model of which a call costs the highest; empty where none is known.

    Args:
        listed: What the judge service's table says; None where it has none.
        named: What the spec or the request says; None where it says nothing.
        is_capped: Whether the judge service caps runs by itself: what requests say must not lift its cap.
    """
    if listed is None and is_capped:
        return ()
    return tuple(price for price in (listed, named) if price is not None)


def no_price(model: str, base_url: str, *, is_capped: bool = False) -> str:
    """Return what is wrong with a spend cap for a model that has no price, and what to do.

    Args:
        model: The model's id.
        base_url: Where its service is; empty for the provider's own.
        is_capped: Whether the judge service caps runs by itself.
    """
    where = f" at {base_url} (the prices that come with Assay are for the providers' own services)" if base_url else ""
    file = f"--prices FILE (prices: [{{model: {model}, input: …, output: …}}], US dollars per million tokens)"
    what = (
        f"the judge service has a spend cap of its own, for which only its own prices count: give it {file}"
        if is_capped
        else "write its prices beside it in the spec, prices: {input: …, output: …} in US dollars per million tokens, "
        f"or give {file}, or remove the cap"
    )
    return f"{model} has no price{where}, so that a spend cap cannot hold: {what}"


def price_problems(judge: JudgeSettings, environ: Mapping[str, str]) -> list[Problem]:
    """Return which judges of a run have no price though there is a spend cap, or what is wrong with the prices.

    Args:
        judge: Who judges; without problems of its own.
        environ: The environment of the judge service.
    """
    own, is_capped = environ.get(VARIABLE), bool(environ.get(CAP_VARIABLE))
    if not own and judge.spend_cap_usd is None:
        return []
    try:
        entries = read_prices(Path(own) if own else None)
    except InvalidInputError as error:
        return error.problems
    if judge.spend_cap_usd is None:
        return []
    return [
        Problem(
            no_price(one.model, one.base_url, is_capped=is_capped),
            f"judge.jury[{place}].model" if judge.others else "judge.model",
        )
        for place, one in enumerate(judge.judges)
        if one.provider in OWN_URLS
        and not prices_that_count(find_price(entries, one, is_own_file=bool(own)), one.prices, is_capped=is_capped)
    ]
