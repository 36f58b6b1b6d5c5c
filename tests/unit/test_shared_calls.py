"""Values that many rows ask for in shared calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from assay.errors import UnavailableError
from assay_orchestrator.evidence.shared_calls import CallLimits, SharedCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = CallLimits(keys=8, call_bytes=1_000, in_flight=1, cache_bytes=1_000)


@pytest.mark.parametrize("problem", [UnavailableError("away"), RuntimeError("a defect"), None])
async def test_a_call_that_fails_ends_every_wait(problem: Exception | None) -> None:
    """Whatever goes wrong, also an answer with too few values, no row waits for ever; the next call asks again."""
    fails = True

    async def call(keys: Sequence[str]) -> Sequence[str]:
        if fails and problem is not None:
            raise problem
        return [] if fails else [key.upper() for key in keys]

    calls = SharedCalls(call, len, value_bytes=1, limits=LIMITS)
    outcomes = await asyncio.wait_for(asyncio.gather(*map(calls.get, "ab"), return_exceptions=True), 30)
    assert [type(each) for each in outcomes] == [type(problem) if problem is not None else ValueError] * 2
    fails = False
    assert await asyncio.gather(*map(calls.get, "abc")) == ["A", "B", "C"]
    await calls.aclose()
