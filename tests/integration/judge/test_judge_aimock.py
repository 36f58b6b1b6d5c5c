"""The judge against @copilotkit/aimock, an independent server of its protocols (tests/support/services/aimock.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.aimock import serving

from assay.judge.v1 import judge_pb2 as pb
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., Any]

pytestmark = pytest.mark.aimock
both_protocols = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of the other server; its process ends when its input does."""
    with serving(Path(__file__).with_name("aimock_judge.mjs")) as url:
        yield url


def judge_at(url: str, protocol: str) -> JudgeChoice:
    return JudgeChoice(protocol, "judge-1", f"{url}/v1" if protocol == "openai" else url, "JUDGE_KEY")


@both_protocols
async def test_a_verdict_is_read_as_from_our_own_server(start: Start, server: str, protocol: str) -> None:
    """Request, reply, stop reason and usage of both protocols, as somebody else understands them."""
    judge = await start(judge=judge_at(server, protocol))
    verdict = (await judge.grade("please be valid")).verdict
    assert dict(verdict.scores) == {"score": 4.0}
    assert (verdict.usage.input_tokens, verdict.usage.output_tokens) == (1_200, 150)
    assert verdict.usage.cost_usd == pytest.approx(0.00195, abs=1e-12)


@both_protocols
@pytest.mark.parametrize(
    ("wish", "reason", "attempts"),
    [
        ("words", "invalid_verdict", 2), ("cut", "truncated", 1), ("denied", "judge_denied", 1),
        ("unknown", "judge_denied", 1), ("broken", "judge_unavailable", 2),
    ],
)  # fmt: skip
async def test_failures_have_the_same_reasons(
    start: Start, server: str, protocol: str, wish: str, reason: str, attempts: int
) -> None:
    """Errors and odd replies of the other server come to the same outcomes."""
    judge = await start(judge=judge_at(server, protocol), attempts=2, pause_s=0.01)
    verdict = (await judge.grade(f"please be {wish}")).verdict
    assert (verdict.reason, verdict.call_count) == (reason, attempts)
    assert not verdict.scores


@both_protocols
async def test_its_429_is_waited_out(start: Start, server: str, protocol: str) -> None:
    """With its retry-after of a second."""
    judge = await start(judge=judge_at(server, protocol), attempts=1)
    verdict = (await judge.grade(f"please be throttled, {protocol}")).verdict
    assert (verdict.status, verdict.call_count) == (pb.VERDICT_STATUS_VALID, 2)


async def test_its_batches_are_submitted_looked_at_and_read(start: Start, server: str) -> None:
    """It answers every request of a batch with the same words: two turns, two batches, and no verdict.

    It counts one token of input and of output for each, which is implausible: the judge counts what it reserved.
    """
    judge = await start(judge=judge_at(server, "openai"), batch_base_urls=("*",), batch_wait_s=0.2, batch_poll_s=0.05)
    asked = [{"rubric": "quality", "question": "q", "answer": f"a{index}", "batch": True} for index in range(5)]
    for verdict in await judge.grade_all(asked):
        assert (verdict.reason, verdict.call_count, verdict.batched) == ("invalid_verdict", 2, True)
        assert verdict.usage.input_tokens > 1000
        assert verdict.usage.output_tokens == 2 * 2048
