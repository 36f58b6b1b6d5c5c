"""The possible cost of a run's verdicts, and the judges without a price."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.providers.own_services import OWN_URLS
from assay.providers.prices import find_price, read_prices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.model_price import ModelPrice
    from assay.model.run import JudgeSpec

_PROMPT_BYTES = 4_000
"""More than what the judge is sent around the material, by a rubric that comes with Assay."""
_TEXT_BYTES = 2_000
"""Question, answer, reference and contexts for which the least number of verdicts is said."""
_FRAME_TOKENS = 2_000
"""What the judge service allows for the protocol's own part of a request."""

VARIABLE = "ASSAY_JUDGE_PRICES"
"""The environment variable of a judge service with its file of prices."""


CAP_VARIABLE = "ASSAY_JUDGE_SPEND_CAP_USD"
"""The environment variable of a judge service with its own spend cap of every run."""


def prices_that_count(
    listed: ModelPrice | None, named: ModelPrice | None, *, is_capped: bool
) -> tuple[ModelPrice, ...]:
    """Return the highest of a model's prices per call; empty if none is known.

    Args:
        listed: The price in the judge service's table, if any.
        named: What the spec or the request says; None where it says nothing.
        is_capped: Whether the judge service caps runs by itself: what requests say must not lift its cap.
    """
    if listed is None and is_capped:
        return ()
    return tuple(price for price in (listed, named) if price is not None)


def no_price(model: str, base_url: str, *, is_capped: bool = False) -> str:
    """Return the problem of a spend cap for a model without a price, and its remedy.

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


def cap_text(judge: JudgeSpec, environ: Mapping[str, str] | None) -> str:
    """Return a sentence on how many verdicts a spend cap allows at least; empty without a cap or a known price.

    Before each call the most that it can cost is reserved: a token for each byte of the request, and `max_tokens`. A
    verdict usually costs far less, so that more are asked for.

    Args:
        judge: Who judges; without problems of its own.
        environ: The environment of the judge service; None where it is another machine's, with a table of its own.
    """
    if environ is None or judge.spend_cap_usd is None:
        return ""
    highest = [
        _most_usd(member, prices) for member, prices in zip(judge.judges, _counting(judge, environ), strict=True)
    ]
    if not all(highest):  # replays cost nothing
        return ""
    most = sum(highest)
    count = math.floor(Fraction(repr(judge.spend_cap_usd)) / most)
    what = "by all of the jury" if judge.others else "like that"
    allowed = f"at least {count:,} {what}" if count else "it may allow none"
    return f"a verdict on {_TEXT_BYTES // 1000} KB of text may cost up to ${float(most):.4f}, {allowed}"


def _counting(judge: JudgeSpec, environ: Mapping[str, str]) -> list[tuple[ModelPrice, ...]]:
    """Return the highest prices per call of each judge of a run.

    Raises:
        InvalidInputError: All that is wrong with the judge service's table.
    """
    own = environ.get(VARIABLE)
    entries = read_prices(Path(own) if own else None)
    return [
        prices_that_count(
            find_price(entries, member, is_own_file=bool(own)), member.prices, is_capped=bool(environ.get(CAP_VARIABLE))
        )
        for member in judge.judges
    ]


def _most_usd(judge: JudgeSpec, prices: Sequence[ModelPrice]) -> Fraction:
    read = _PROMPT_BYTES + len(judge.rubric_yaml.encode()) + _TEXT_BYTES + _FRAME_TOKENS
    costs = (price.most_dollars(read, judge.max_tokens, batched=judge.batch) for price in prices)
    return max(costs, default=Fraction())


def price_problems(judge: JudgeSpec, environ: Mapping[str, str]) -> list[Problem]:
    """Return the judges without a price under a spend cap, or the problems of the prices.

    Args:
        judge: Who judges; without problems of its own.
        environ: The environment of the judge service.
    """
    own, is_capped = environ.get(VARIABLE), bool(environ.get(CAP_VARIABLE))
    if not own and judge.spend_cap_usd is None:
        return []
    try:
        counting = _counting(judge, environ)
    except InvalidInputError as error:
        return error.problems
    if judge.spend_cap_usd is None:
        return []
    return [
        Problem(
            no_price(member.model, member.base_url, is_capped=is_capped),
            f"judge.jury[{place}].model" if judge.others else "judge.model",
        )
        for place, (member, prices) in enumerate(zip(judge.judges, counting, strict=True))
        if member.provider in OWN_URLS and not prices
    ]
