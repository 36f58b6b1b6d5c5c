"""What judging came to: counted over rows, in any order, and told in a line."""

from __future__ import annotations

import random
from typing import Any

import pytest

from assay.model.answers.agent_response import AgentStatus
from assay.model.judging_summary import JudgingSummary
from assay.model.run import CaseResult, JudgeSettings, Score, ScoreStatus
from assay.reports.words.judging_text import judge_line, judging_line
from assay.wire.judging import JUDGING
from assay_orchestrator.summary.judging import JudgingFold


def verdict(key: str, **changes: Any) -> dict[str, Any]:
    """Return what a score's detail holds of a verdict that was asked for."""
    return {
        "status": "valid", "fingerprint": "f1", "key": key, "cached": False, "by_rule": False, "attempts": 1,
        "input_tokens": 1000, "output_tokens": 100, "cost_usd": 0.1, **changes,
    }  # fmt: skip


def cached(key: str, saved: float | None) -> dict[str, Any]:
    """Return that of one from the cache."""
    nothing = {"input_tokens": None, "output_tokens": None, "cost_usd": None, "attempts": 0}
    return verdict(key, cached=True, saved_usd=saved, **nothing)


def row(*verdicts: dict[str, Any]) -> CaseResult:
    """Return a row whose metrics rest on these verdicts."""
    scores = tuple(
        Score(f"m{index}", ScoreStatus.SCORED, value=1.0, detail={"verdict": found})
        for index, found in enumerate(verdicts)
    )
    return CaseResult("c", 0, 0, "", AgentStatus.SUCCESS, True, scores, None, "")


ROWS = [
    row(verdict("a"), verdict("b", fingerprint="f0", cost_usd=0.2)),
    row(verdict("a"), verdict("a")),
    row(cached("c", 0.3), cached("d", None)),
    row(
        verdict(
            "e",
            status="invalid",
            attempts=2,
            cost_usd=0.4,
            flags=["addresses_judge"],
            refused_parameters=["temperature", "schema"],
        )
    ),
    row(verdict("f", by_rule=True, attempts=0, input_tokens=None, output_tokens=None, cost_usd=None)),
    row(verdict("g", cost_usd=None, flags=["punctuation_only", "addresses_judge"], refused_parameters=["temperature"])),
    row(),
]
FOUND = JudgingSummary(
    verdicts=8, asked=5, cached=2, by_rule=1, failed=1, input_tokens=5000, output_tokens=500, cost_usd=0.8,
    saved_usd=0.3, unpriced=1, fingerprints=("f0", "f1"), flags={"addresses_judge": 2, "punctuation_only": 1},
    refused_parameters={"schema": 1, "temperature": 2},
)  # fmt: skip


def folded(rows: list[CaseResult]) -> JudgingSummary | None:
    """Return what judging came to over rows."""
    fold = JudgingFold()
    for each in rows:
        fold.add(each)
    return fold.result()


def test_verdicts_are_counted_and_added_up() -> None:
    """One that several metrics of a row rest on counts once; what a cached one had cost is no cost."""
    assert folded(ROWS) == FOUND
    assert FOUND.hit_rate == pytest.approx(2 / 7)


def test_verdicts_of_checks_are_counted() -> None:
    """Each judged check of a case rests on one of its own; those of a jury count for their judges."""
    jury = [{"value": 1.0, "verdict": verdict("c", judge="a")}, {"value": 0.0, "verdict": verdict("d", judge="b")}]
    checks = [{"passed": True, "verdict": verdict("a")}, {"passed": None}, {"verdict": verdict("b")}, {"jury": jury}]
    score = Score("assertions", ScoreStatus.SCORED, value=1.0, detail={"checks": checks})
    other = Score("odd", ScoreStatus.SCORED, value=1.0, detail={"checks": {"select": True}})
    found = folded([CaseResult("c", 0, 0, "", AgentStatus.SUCCESS, True, (score, other), None, "")])
    assert found is not None
    assert found.verdicts == 4
    assert found.cost_usd == pytest.approx(0.4)
    assert [(juror.judge, juror.verdicts) for juror in found.jurors] == [("a", 1), ("b", 1)]


def test_the_order_of_rows_does_not_matter() -> None:
    """To the last bit, as for everything in a summary."""
    rng = random.Random(1)
    rows = [row(verdict(str(n), cost_usd=rng.random())) for n in range(200)]
    first = folded(rows)
    rng.shuffle(rows)
    assert folded(rows) == first


def test_the_summary_crosses_the_wire_as_it_is() -> None:
    """Flags with their counts too."""
    assert JUDGING.from_wire(JUDGING.to_wire(FOUND)) == FOUND


def test_without_verdicts_there_is_nothing() -> None:
    """None, not zeros; the detail of a score may hold anything."""
    odd = Score("m", ScoreStatus.SCORED, value=1.0, detail={"verdict": "yes"})
    other = CaseResult("c", 0, 0, "", AgentStatus.SUCCESS, True, (odd,), None, "")
    assert folded([row(), other]) is None
    assert JudgingSummary().hit_rate is None


def test_a_line_for_people() -> None:
    """What was asked, what the cache gave, what it cost and saved; nothing is said of what there is none of."""
    assert judging_line(FOUND) == (
        "verdicts  8: 5 asked, 2 from the cache (28.6%), 1 by rule, 1 not valid  5,500 tokens  $0.8000  "
        "1 without a price  the cache saved $0.3000  flagged: 2 addresses_judge, 1 punctuation_only  "
        "asked without what the model refuses: schema (1), temperature (2)"
    )
    assert (
        judging_line(JudgingSummary(verdicts=1, cached=1))
        == "verdicts  1: 0 asked, 1 from the cache (100.0%)  0 tokens"
    )
    lost = JudgingSummary(verdicts=1, asked=1, cost_usd=0.0056, account_usd=0.0141, unknown_usd=0.0085)
    assert judging_line(lost) == (
        "verdicts  1: 1 asked  0 tokens  $0.0056  account $0.0141, of which $0.0085 are set aside for calls whose "
        "outcome is unknown (the bill may have less)"
    )
    assert judge_line(JudgeSettings("openai", "m", rubric="tone", spend_cap_usd=2.5)) == (
        "judge  openai:m, rubric tone, spend cap $2.5"
    )
    assert judge_line(JudgeSettings("replay")) == "judge  replay"
