"""What answers can have used: other numbers are in no sum, so that one answer cannot break or pay for others."""

from __future__ import annotations

import math
from typing import Any

import pytest

import assay
from assay.identity.quotas import MAX_AMOUNT, nano_from_usd
from assay.model.answers.agent_response import AgentResponse, Usage
from assay.model.answers.possible_usage import MAX_COST_USD, counted_tokens
from assay.model.answers.response_limits import MAX_TOKENS
from assay.model.model_price import ModelPrice
from assay.providers.messages import Reply, TokenUsage, token_usage
from assay.reports.comparison.document.compared_run import implied_values
from assay.telemetry.instruments import Instrument
from assay_orchestrator.agents.prompt import cost_of_reply
from assay_orchestrator.instruments import AGENT_COST, AGENT_TOKENS, ANSWER_SECONDS, ObservedRun
from assay_orchestrator.pipeline.flusher import spent_on
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.teams.allotments import Amount
from assay_orchestrator.store.teams.spending import Spent


def spent(*usages: Usage) -> Spent:
    """Return what answers with some usages have taken."""
    answers = [AnswerRecord(index, 1, 0, AgentResponse(text="a", usage=usage)) for index, usage in enumerate(usages)]
    return spent_on(answers, [], counts_answers=True, is_judged=False)


@pytest.mark.parametrize("cost_usd", [-100.0, -1e300, 1e10, 1e300, math.nan, math.inf])
def test_a_cost_that_cannot_be_is_not_spent(cost_usd: float) -> None:
    """It is neither credited nor charged, and the costs of other answers count."""
    assert spent(Usage(cost_usd=cost_usd), Usage(cost_usd=0.25)) == Spent(0, 250_000_000)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(total_tokens=2**62), 0),
        (Usage(total_tokens=2**62, input_tokens=7, output_tokens=2), 9),
        (Usage(input_tokens=2**62, output_tokens=2), 2),
        (Usage(total_tokens=MAX_TOKENS), MAX_TOKENS),
    ],
)
def test_tokens_that_cannot_be_are_not_spent(usage: Usage, tokens: int) -> None:
    """What is possible of the same answer counts, as where the rest was not reported."""
    assert counted_tokens(usage) == tokens
    assert spent(usage, Usage(total_tokens=1)) == Spent(tokens + 1, 0)


def test_a_batch_of_the_largest_usages_fits_a_column() -> None:
    """Hundreds of answers of one transaction are within the integers of 64 bits."""
    total = spent(*[Usage(total_tokens=MAX_TOKENS, cost_usd=MAX_COST_USD)] * 500)
    assert max(total.tokens, total.nano_usd) < 2**62


@pytest.mark.parametrize(
    ("dollars", "nano"),
    [(0.25, 250_000_000), (-1.0, 0), (math.nan, 0), (math.inf, MAX_AMOUNT), (1e300, MAX_AMOUNT), (1e-9, 1)],
)
def test_dollars_in_billionths(dollars: float, nano: int) -> None:
    """They are from 0 to the largest quota, whatever the float is."""
    assert nano_from_usd(dollars) == nano


def test_a_count_of_a_provider_that_cannot_be_is_not_known() -> None:
    """The other counts of its usage are."""
    counts: dict[str, Any] = dict.fromkeys(("total", "cache_read", "cache_write", "reasoning"))
    assert token_usage(input=MAX_TOKENS + 1, output=3, **counts) == TokenUsage(output=3)
    assert token_usage(input=2**62, output=2**62, **counts) is None


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({"input_tokens": 0, "output_tokens": 0}, "usage says 0", "usage says 0"),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 40}, 40, "usage says 0"),
        ({"total_tokens": 40}, 40, "usage has total_tokens alone"),
        ({"tok_in": 10, "tok_out": 5}, "not read (tok_in, tok_out)", "not read (tok_in, tok_out)"),
        ({"input_tokens": 10, "made": 5}, "not read (made)", "not read (made)"),
        ({"input_tokens": 10, "output_tokens": 5, "queue_time": 0.1}, 15, 0.000105),
        ({"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.5}, "usage says 0", 0.5),
        ({}, "", ""),
    ],
)
def test_tokens_that_were_not_counted_are_skipped(usage: dict[str, Any], tokens: Any, cost: Any) -> None:
    """They are never free, and the message says what the usage has instead."""
    costs: dict[str, Any] = {"input_price": 3, "output_price": 15}
    for metric, prices, due in (("tokens", {}, tokens), ("cost", costs, cost)):
        score = assay.score(metric, {"text": "x", "usage": usage}, **prices)
        if isinstance(due, str):
            assert (score.value, score.reason) == (None, "no_tokens")
            assert due in score.message
        else:
            assert score.value == pytest.approx(due)


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ((1000, 10, 6010, 5000), TokenUsage(1000, 5010, 6010, reasoning=5000)),
        ((1000, 10, 6010, None), TokenUsage(1000, 5010, 6010)),
        ((1000, 5010, 6010, 5000), TokenUsage(1000, 5010, 6010, reasoning=5000)),
        ((1000, 10, None, 5000), TokenUsage(1000, 5010, reasoning=5000)),
        ((1000, 10, 1005, None), TokenUsage(1000, 10, 1005)),
        ((0, 0, 40, None), TokenUsage(0, 0, 40)),
        ((1000, 10, None, 10**30), TokenUsage(1000, 10, reasoning=10)),
    ],
)
def test_thoughts_beside_the_output_are_output(
    message: tuple[int, int, int | None, int | None], read: TokenUsage
) -> None:
    """They are paid for as output, whether or not the service counts them as that."""
    count, output, total, reasoning = message
    usage = token_usage(input=count, output=output, total=total, cache_read=None, cache_write=None, reasoning=reasoning)
    assert usage == read


def test_a_reply_costs_an_amount_whatever_the_price() -> None:
    """A price that makes each call cost more than any quota gives the largest amount."""
    reply = Reply("a", tokens=TokenUsage(input=1000, output=1))
    assert cost_of_reply(reply, ModelPrice(1e300, 1e300), Amount(1, 1)) == Amount(MAX_AMOUNT, 1001)


class Series:
    """Adds up what is counted or observed."""

    def __init__(self) -> None:
        self.total = 0.0

    def inc(self, amount: float = 1) -> None:
        """Count."""
        self.total += amount

    observe = inc


def test_comparisons_leave_out_what_cannot_be() -> None:
    """As the metrics do, for which it is an error."""
    usage = {"total_tokens": 2**62, "cost_usd": -100.0}
    row = {"status": "success", "latency_ms": -1.0, "response": {"usage": usage}}
    assert implied_values(row) == {"latency": None, "tokens": None, "cost": None}


def test_counters_leave_out_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer spoils no sum of the service."""
    series: dict[str, Series] = {}
    monkeypatch.setattr(Instrument, "series", lambda self, *labels: series.setdefault(self.name, Series()))
    observed = ObservedRun("team", "python")
    used = Usage(input_tokens=2**62, output_tokens=3, cost_usd=1e300)
    observed.answered(AgentResponse(text="a", usage=used, latency_ms=-1.0))
    counted = [series[each.name].total for each in (AGENT_TOKENS, AGENT_COST, ANSWER_SECONDS)]
    assert counted == [3, 0, 0]
