"""Verdicts that are kept: what is written, and how much of it is believed when it is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.scope import LOCAL
from assay_judge.calls.usage import CallUsage
from assay_judge.judges import JudgeChoice
from assay_judge.model import Tokens
from assay_judge.state.store import JudgeStore
from assay_judge.verdicts.cache import VerdictCache, outcome_from_record
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import JudgeVerdict
from assay_judge.verdicts.rubric_registry import BUILT_IN

if TYPE_CHECKING:
    from pathlib import Path

RUBRIC = BUILT_IN["quality"]
JUDGE = JudgeChoice("openai", "judge-1")
SAID = {"reasoning": "It is right.", "score": 4}
OUTCOME = Outcome(
    Status.VALID,
    JudgeVerdict("It is right.", {"score": 4.0}),
    usage=CallUsage(3, [Tokens(100, 20), Tokens(50, 7)], 1_234),
    temperature=0.1,
    model="judge-1-2026",
)


async def test_a_verdict_comes_back_as_it_was_with_what_it_saves(tmp_path: Path) -> None:
    """A cached verdict keeps all that a report shows, and costs its reader nothing."""
    store = await JudgeStore.open(None)
    kept = VerdictCache(store, is_enabled=True, record_to=tmp_path / "record.jsonl")
    await kept.keep("local", "k", RUBRIC, JUDGE, OUTCOME)
    cached = await kept.find(LOCAL, "k", RUBRIC)
    assert cached is not None
    assert (cached.status, cached.verdict) == (Status.VALID, OUTCOME.verdict)
    assert (cached.temperature, cached.model) == (0.1, "judge-1-2026")
    assert (cached.usage, cached.saved) == (CallUsage(), CallUsage(3, [Tokens(150, 27)], 1_234))
    record = json.loads((tmp_path / "record.jsonl").read_text())
    assert record.pop("time") > 0
    assert record == {
        "key": "k", "judge": "openai:judge-1", "rubric": "quality", "verdict": SAID, "temperature": 0.1,
        "model": "judge-1-2026", "input_tokens": 150, "output_tokens": 27, "calls": 3, "cost_nano": 1_234,
    }  # fmt: skip
    await store.aclose()


async def test_a_comparison_comes_back_with_its_winner() -> None:
    """A verdict on two answers has no scores."""
    store = await JudgeStore.open(None)
    kept = VerdictCache(store, is_enabled=True, record_to=None)
    verdict = JudgeVerdict("The second one is right.", winner="second")
    await kept.keep("local", "k", BUILT_IN["pairwise"], JUDGE, Outcome(Status.VALID, verdict))
    cached = await kept.find(LOCAL, "k", BUILT_IN["pairwise"])
    assert cached is not None
    assert cached.verdict == verdict
    await store.aclose()


async def test_without_a_cache_nothing_is_kept_or_found(tmp_path: Path) -> None:
    """Without a cache no verdict is stored or found; a recording for a replay is still written."""
    store = await JudgeStore.open(None)
    cached = VerdictCache(store, is_enabled=True, record_to=None)
    await cached.keep("local", "none", RUBRIC, JUDGE, Outcome(Status.INVALID, reason="no_verdict"))
    assert store.verdict_count == 0
    record = tmp_path / "record.jsonl"
    uncached = VerdictCache(store, is_enabled=False, record_to=record)
    await uncached.keep("local", "k", RUBRIC, JUDGE, OUTCOME)
    assert store.verdict_count == 0
    assert json.loads(record.read_text())["key"] == "k"
    await cached.keep("local", "k", RUBRIC, JUDGE, OUTCOME)
    assert await uncached.find(LOCAL, "k", RUBRIC) is None
    assert await cached.find(LOCAL, "k", RUBRIC) is not None
    await store.aclose()


@pytest.mark.parametrize("verdict", [None, "4", [4], {"score": 4}, {"reasoning": "r", "score": 9}])
def test_a_record_without_a_valid_verdict_is_none(verdict: Any) -> None:
    """A file may have been changed."""
    assert outcome_from_record({"verdict": verdict}, RUBRIC) is None


@pytest.mark.parametrize(
    ("message", "usage"),
    [
        ({}, CallUsage()),
        ({"calls": 2, "input_tokens": 9, "output_tokens": 0, "cost_nano": 0}, CallUsage(2, [Tokens(9, 0)], 0)),
        ({"calls": 1, "input_tokens": 0, "output_tokens": 0}, CallUsage(1)),
        ({"input_tokens": 9}, CallUsage()),
        ({"output_tokens": 9}, CallUsage()),
        ({"calls": "2", "input_tokens": "9", "output_tokens": 1, "cost_nano": 1.5}, CallUsage()),
        ({"calls": True, "input_tokens": True, "output_tokens": 1, "cost_nano": False}, CallUsage()),
        ({"calls": -1, "input_tokens": -9, "output_tokens": 1, "cost_nano": -1}, CallUsage()),
        ({"calls": 2**40, "input_tokens": 2**40, "output_tokens": 1, "cost_nano": 2**40}, CallUsage()),
        (
            {"calls": 2**40 - 1, "input_tokens": 2**40 - 1, "output_tokens": 1, "cost_nano": 2**40 - 1},
            CallUsage(2**40 - 1, [Tokens(2**40 - 1, 1)], 2**40 - 1),
        ),
    ],
)
def test_what_a_verdict_took_is_believed_where_it_is_a_count(message: dict[str, Any], usage: CallUsage) -> None:
    """Only counts that a sum can hold are read; a service that counts no tokens gives 0."""
    outcome = outcome_from_record({"verdict": SAID, **message}, RUBRIC)
    assert outcome is not None
    assert outcome.saved == usage


@pytest.mark.parametrize(
    ("message", "temperature", "model"),
    [
        ({}, None, ""), ({"temperature": 1, "model": "m"}, 1, "m"), ({"temperature": 0.5, "model": 5}, 0.5, ""),
        ({"temperature": "hot", "model": None}, None, ""),
    ],
)  # fmt: skip
def test_temperature_and_model_are_what_they_should_be_or_absent(
    message: dict[str, Any], temperature: float | None, model: str
) -> None:
    """A record may lack them, or have something else there."""
    outcome = outcome_from_record({"verdict": SAID, **message}, RUBRIC)
    assert outcome is not None
    assert (outcome.temperature, outcome.model) == (temperature, model)
