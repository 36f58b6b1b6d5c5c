"""`assay serve judge`: a process of its own, killed and started again."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.rpc.channel import open_channel, wait_for_ready
from assay.testing.judges import says
from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.conftest import Cli

KEY = "sk-planted-0123456789-abcdefghij"


def started(cli: Cli, name: str, provider: ScriptedProvider) -> tuple[subprocess.Popen[str], str]:
    """Serve a judge; return the process and its address."""
    cli.env["MY_KEY"] = KEY
    address = f"unix:{cli.folder}/{name}.sock"
    cli.write("prices.yaml", "prices: [{model: '*', input: 1, output: 5}]")
    process = cli.start("serve", "judge", "--listen", address, "--provider", "openai", "--model", "judge-1",
                        "--base-url", provider.openai_url, "--key-variable", "MY_KEY", "--prices", "prices.yaml",
                        "--spend-cap-usd", "0.02")  # fmt: skip
    return process, address


async def graded(address: str, *answers: str) -> list[pb.GradeResponse]:
    """Return the responses of a judge that may still be starting."""
    async with open_channel(address) as channel:
        await wait_for_ready(channel, "assay.judge.v1.JudgeService", 60)
        stub: Any = judge_pb2_grpc.JudgeServiceStub(channel)
        asked = [pb.GradeRequest(rubric="quality", question="q", answer=each, run_id="r") for each in answers]
        return [await stub.Grade(request, timeout=180) for request in asked]


def ended(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Send a signal and return what the process has said."""
    process.send_signal(number)
    return "".join(process.communicate(timeout=180))


def test_verdicts_and_spending_survive_a_kill(cli: Cli) -> None:
    """After `kill -9` a verdict is not paid for again and the run's bill is as it was; SIGTERM ends with 0."""
    with ScriptedProvider(says({"reasoning": "Right.", "score": 4})) as provider:
        process, address = started(cli, "first", provider)
        (first,) = asyncio.run(graded(address, "Paris"))
        assert dict(first.verdict.scores) == {"score": 4.0}
        said = ended(process, signal.SIGKILL)
        process, address = started(cli, "second", provider)
        again, new = asyncio.run(graded(address, "Paris", "Lyon"))
        said += ended(process, signal.SIGTERM)
    assert process.returncode == 0, said
    assert again.verdict.cached
    assert again.spending.spent_nano_usd == first.spending.spent_nano_usd > 0
    assert new.spending.spent_nano_usd == 2 * first.spending.spent_nano_usd
    assert len(provider.requests) == 2
    assert KEY not in said


def test_what_was_set_aside_when_it_was_killed_is_spent(cli: Cli) -> None:
    """A call that was under way may have been billed: the next process does not give its money out again."""
    with ScriptedProvider(Reply("{}", delay_s=60), says({"reasoning": "Right.", "score": 4})) as provider:
        process, address = started(cli, "first", provider)

        async def killed_under_way() -> None:
            asking = asyncio.ensure_future(graded(address, "Paris"))
            await until(lambda: provider.requests)
            process.kill()
            await asyncio.wait([asking])
            assert asking.exception() is not None

        asyncio.run(killed_under_way())
        process.communicate(timeout=180)
        process, address = started(cli, "second", provider)
        (after,) = asyncio.run(graded(address, ""))
        ended(process, signal.SIGTERM)
    assert after.spending.spent_nano_usd / 1e9 > 0.01
    assert after.spending.reserved_nano_usd == 0


def test_a_verdict_under_way_is_finished_when_the_process_is_told_to_stop(cli: Cli) -> None:
    """SIGTERM lets it come, answers it, and only then ends the process, with 0."""
    with ScriptedProvider(says({"reasoning": "Right.", "score": 4}, delay_s=1.0)) as provider:
        process, address = started(cli, "first", provider)

        async def stopped_under_way() -> pb.GradeResponse:
            asking = asyncio.ensure_future(graded(address, "Paris"))
            await until(lambda: provider.requests)
            process.send_signal(signal.SIGTERM)
            return (await asking)[0]

        response = asyncio.run(stopped_under_way())
        process.communicate(timeout=180)
    assert dict(response.verdict.scores) == {"score": 4.0}
    assert process.returncode == 0


def test_it_says_what_it_needs(cli: Cli) -> None:
    """Its flags, and what is wrong with them."""
    assert "--allow-judges" in cli.run("serve", "judge", "--help").stdout
    done = cli.run("serve", "judge", "--provider", "opnai", status=2)
    assert "did you mean 'openai'" in done.stderr
