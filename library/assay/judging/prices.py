"""The possible cost of a run's verdicts, and the judges without a price."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.identity.quotas import NANO
from assay.metrics import METRICS
from assay.providers.own_services import OWN_URLS
from assay.providers.prices import find_price, read_prices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.model_price import ModelPrice
    from assay.model.run import JudgeModel, JudgeSpec, RunSpec

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


def cap_text(spec: RunSpec, environ: Mapping[str, str] | None) -> str:
    """Return a sentence on how many verdicts a spend cap allows at least; empty without a cap or a known price.

    Before each call the most that it can cost is reserved: a token for each byte of the request, and `max_tokens`. A
    verdict usually costs far less, so that more are asked for.

    Args:
        spec: The settings of the run; without problems of their own.
        environ: The environment of the judge service; None where it is another machine's, with a table of its own.
    """
    if environ is None or spec.spend_cap_nano_usd is None:
        return ""
    rubrics = {
        (judge.name, metric.rubric): metric.rubric_yaml
        for metric in spec.metrics
        if (judge := spec.judge_of(metric)) is not None and METRICS[metric.kind].info.needs_judge
    }
    judges = {judge.name: judge for judge in spec.judges}
    most = Fraction()
    for (name, _), rubric_yaml in rubrics.items():
        judge = judges[name]
        costs = [
            _most_usd(judge, member, prices, rubric_yaml)
            for member, prices in zip(judge.members, _counting(judge, environ), strict=True)
        ]
        if not all(costs):  # replays cost nothing
            return ""
        most = max(most, sum(costs, Fraction()))
    if not most:
        return ""
    count = math.floor(Fraction(spec.spend_cap_nano_usd, NANO) / most)
    is_jury = any(judges[name].is_jury for name, _ in rubrics)
    what = "by all of the jury" if is_jury else "like that"
    allowed = f"at least {count:,} {what}" if count else "it may allow none"
    return f"a verdict on {_TEXT_BYTES // 1000} KB of text may cost up to ${float(most):.4f}, {allowed}"


def _counting(judge: JudgeSpec, environ: Mapping[str, str]) -> list[tuple[ModelPrice, ...]]:
    """Return the highest prices per call of each member of a judge.

    Raises:
        InvalidInputError: All that is wrong with the judge service's table.
    """
    own = environ.get(VARIABLE)
    entries = read_prices(Path(own) if own else None)
    return [
        prices_that_count(
            find_price(entries, member, is_own_file=bool(own)), member.prices, is_capped=bool(environ.get(CAP_VARIABLE))
        )
        for member in judge.members
    ]


def _most_usd(judge: JudgeSpec, member: JudgeModel, prices: Sequence[ModelPrice], rubric_yaml: str) -> Fraction:
    read = _PROMPT_BYTES + len(rubric_yaml.encode()) + _TEXT_BYTES + _FRAME_TOKENS
    costs = (price.most_dollars(read, member.max_tokens, batched=judge.batch) for price in prices)
    return max(costs, default=Fraction())


def price_problems(
    judge: JudgeSpec, members_at: Sequence[str], environ: Mapping[str, str], *, is_capped: bool
) -> list[Problem]:
    """Return the members of a judge without a price under a spend cap, or the problems of the prices.

    Args:
        judge: Settings without problems of their own.
        members_at: The path of each member in the spec.
        environ: The environment of the judge service.
        is_capped: Whether the run has a spend cap.
    """
    own, is_service_capped = environ.get(VARIABLE), bool(environ.get(CAP_VARIABLE))
    if not own and not is_capped:
        return []
    try:
        counting = _counting(judge, environ)
    except InvalidInputError as error:
        return error.problems
    if not is_capped:
        return []
    return [
        Problem(no_price(member.model, member.base_url, is_capped=is_service_capped), f"{where}.model")
        for member, where, prices in zip(judge.members, members_at, counting, strict=True)
        if member.provider in OWN_URLS and not prices
    ]
