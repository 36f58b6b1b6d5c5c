"""The cache of verdicts, and the file that records them for a replay."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from assay.errors import StorageError
from assay_judge.calls.usage import CallUsage
from assay_judge.model import Tokens
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import InvalidVerdictError, verdict_from_data
from assay_judge.verdicts.recording import append_record

if TYPE_CHECKING:
    from pathlib import Path

    from assay.judging.rubric import Rubric
    from assay.model.scope import Scope
    from assay_judge.judges import JudgeChoice
    from assay_judge.verdicts.parser import JudgeVerdict

logger = logging.getLogger("assay_judge")


class VerdictStore(Protocol):
    """A store of verdicts."""

    async def verdict(self, scope: Scope, key: str) -> dict[str, Any] | None:
        """Return the record of a verdict; None if it is missing or unreadable."""

    async def put_verdict(self, team: str, key: str, record: dict[str, Any]) -> None:
        """Store a valid verdict of a team; the first verdict of a key wins."""


class VerdictCache:
    """Caches valid verdicts.

    Args:
        store: The store, of this process or of all replicas.
        is_enabled: Whether verdicts are stored and reused.
        record_to: A file to which new verdicts are appended, for a later replay; None for none.
    """

    def __init__(self, store: VerdictStore, *, is_enabled: bool, record_to: Path | None) -> None:
        self._store = store
        self._is_enabled = is_enabled
        self._record_to = record_to

    async def find(self, scope: Scope, key: str, rubric: Rubric) -> Outcome | None:
        """Return the cached verdict of a scope's team, checked again; None if there is none."""
        if not self._is_enabled:
            return None
        try:
            record = await self._store.verdict(scope, key)
        except StorageError as error:
            logger.warning("cannot read the cache, calling the judge: key=%s: %s", key, error)
            return None
        return None if record is None else outcome_from_record(record, rubric)

    async def keep(self, team: str, key: str, rubric: Rubric, judge: JudgeChoice, outcome: Outcome) -> None:
        """Store a valid verdict for a team; a failure is logged and the caller still gets the verdict."""
        if outcome.verdict is None:
            return
        record = {
            "key": key,
            "judge": judge.identity,
            "rubric": rubric.name,
            "verdict": verdict_record(outcome.verdict),
            "temperature": outcome.temperature,
            "model": outcome.model,
            "input_tokens": sum(tokens.input for tokens in outcome.usage.tokens),
            "output_tokens": sum(tokens.output for tokens in outcome.usage.tokens),
            "calls": outcome.usage.calls,
            "cost_nano": outcome.usage.cost,
            "time": time.time(),
        }
        try:
            if self._is_enabled:
                await self._store.put_verdict(team, key, record)
            if self._record_to is not None:
                await asyncio.to_thread(append_record, self._record_to, record)
        except StorageError as error:
            logger.warning("cannot store a verdict in the cache: key=%s: %s", key, error)


def verdict_record(verdict: JudgeVerdict) -> dict[str, Any]:
    """Return a verdict as the object that `verdict_from_data` reads."""
    result = {"winner": verdict.winner} if verdict.winner else dict(verdict.scores)
    return {"reasoning": verdict.reasoning, **result}


def outcome_from_record(record: dict[str, Any], rubric: Rubric) -> Outcome | None:
    """Return a stored verdict, checked again; None if it is no longer valid."""
    data, temperature, model = record.get("verdict"), record.get("temperature"), record.get("model")
    if not isinstance(data, dict):
        return None
    try:
        verdict = verdict_from_data(data, rubric)
    except InvalidVerdictError:
        return None
    return Outcome(
        Status.VALID,
        verdict,
        temperature=temperature if isinstance(temperature, int | float) else None,
        model=model if isinstance(model, str) else "",
        saved=_recorded_usage(record),
    )


def _recorded_usage(record: dict[str, Any]) -> CallUsage:
    """Return the usage of the verdict's call, as far as the record has it."""

    def count(name: str) -> int | None:
        value = record.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None

    used, written = count("input_tokens"), count("output_tokens")
    # Both are 0 if the service did not count tokens.
    tokens = [Tokens(used, written)] if used and written is not None else []
    return CallUsage(count("calls") or 0, tokens, count("cost_nano"))
