"""Scorer processes that hang, crash, are killed, run out of memory or lose their parent; and jobs given up."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.support.processes.child_process import child_process
from tests.support.processes.waiting import wait_until

from assay.metrics import complete_parameters
from assay.model.run import MetricSpec
from assay_orchestrator.scorers.jobs import MapReply, ScoreRow
from assay_orchestrator.scorers.pool import ScoringFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.metrics.core.score import Row
    from assay_orchestrator.scorers.pool import ScorerPool

ENDLESS = "all(True for _ in iter(int, 1))"
"""Takes processor time for ever, and no memory."""


def job(row: Row) -> ScoreRow:
    """Return the job of scoring a row by exact match."""
    settings = MetricSpec("exact_match", complete_parameters("exact_match", {}, where="m"))
    return ScoreRow(pickle.dumps((settings,)), row)


def asleep(mark: Path) -> str:
    """Return an expression that writes the scorer's process id to a file and sleeps; where there is one, nothing."""
    write = f"open({str(mark)!r}, 'x').write(str(__import__('os').getpid()))"
    return f"__import__('os').path.exists({str(mark)!r}) or ({write}, __import__('time').sleep(3600))"


async def pid_in(mark: Path) -> int:
    """Return the process id that a scorer has written to a file, once it has."""
    return await asyncio.to_thread(_pid_in, mark)


def _pid_in(mark: Path) -> int:
    return int(wait_until(lambda: mark.read_text() if mark.exists() else ""))


async def test_a_job_over_its_time_is_ended_and_the_next_is_done(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any]
) -> None:
    """An endless job costs itself; the next one is done by a new scorer."""
    pool = make_pool(timeout_s=0.2)
    with pytest.raises(ScoringFailedError, match="scoring_timeout"):
        await pool.do("run", effect(ENDLESS))
    (score,) = await pool.do("run", job(row_of("a", "a")))
    assert score["value"] == 1.0


async def test_time_that_a_job_does_not_use_is_not_its_own(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any]
) -> None:
    """The limit is of processor time: a job that a busy machine lets wait is not ended for it."""
    pool = make_pool(timeout_s=0.2)
    (score,) = await pool.do("run", effect("__import__('time').sleep(1)", job(row_of("a", "a"))))
    assert score["value"] == 1.0


@pytest.mark.parametrize("crash", ["__import__('os').abort()", "__import__('ctypes').string_at(0)"])
async def test_a_job_that_crashes_its_scorer_is_tried_twice(
    crash: str,
    make_pool: Callable[..., ScorerPool],
    row_of: Callable[..., Row],
    effect: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A scorer that aborts or makes a segmentation fault costs its job alone."""
    pool = make_pool()
    with pytest.raises(ScoringFailedError, match="scoring_crashed"):
        await pool.do("run", effect(crash))
    assert "retrying scoring job on a new scorer: reason=scoring_crashed run=run" in caplog.text
    assert await pool.do("run", job(row_of("a", "a")))


async def test_a_job_out_of_memory_has_a_scorer_of_its_own_to_lose(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any], tmp_path: Path
) -> None:
    """More memory than a scorer may have is the job's failure, and the scorer is replaced."""
    pool = make_pool(memory_mib=64)
    pids = []
    for name in ("before", "after"):
        mark = tmp_path / name
        write = f"open({str(mark)!r}, 'w').write(str(__import__('os').getpid()))"
        assert await pool.do("run", effect(write, job(row_of("a", "a"))))
        pids.append(int(mark.read_text()))
        with pytest.raises(ScoringFailedError, match="scoring_memory"):
            await pool.do("run", effect("bytearray(2 ** 40)"))
    assert pids[0] != pids[1]


async def test_a_scorer_killed_from_outside_costs_no_row(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any], tmp_path: Path
) -> None:
    """The job of a scorer that is killed in the middle is done by the next one."""
    pool = make_pool()
    working = asyncio.create_task(pool.do("run", effect(asleep(tmp_path / "pid"), job(row_of("a", "a")))))
    os.kill(await pid_in(tmp_path / "pid"), signal.SIGKILL)
    (score,) = await working
    assert score["value"] == 1.0


async def test_closing_ends_scorers_at_work_and_what_waits(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any], tmp_path: Path
) -> None:
    """A closed pool leaves no process behind; rows under way get no score, not a wrong one."""
    pool = make_pool()
    working = asyncio.create_task(pool.do("run", effect(asleep(tmp_path / "pid"))))
    pid = await pid_in(tmp_path / "pid")
    queued = asyncio.create_task(pool.do("run", job(row_of("a", "a"))))
    await asyncio.sleep(0)

    await pool.aclose()
    await pool.aclose()

    assert not psutil.pid_exists(pid)
    found = await asyncio.gather(working, queued, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError] * 2
    with pytest.raises(asyncio.CancelledError):
        await pool.do("run", job(row_of("a", "a")))


async def test_a_job_given_up_gives_its_result_to_no_other(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any], tmp_path: Path
) -> None:
    """Who stops waiting for a job, running or queued, disturbs no other's."""
    pool = make_pool()
    slow = f"open({str(tmp_path / 'pid')!r}, 'w').write('1'), __import__('time').sleep(0.5)"
    running = asyncio.create_task(pool.do("run", effect(slow, job(row_of("a", "b")))))
    await pid_in(tmp_path / "pid")
    queued = asyncio.create_task(pool.do("run", effect("__import__('os').abort()")))
    kept = asyncio.create_task(pool.do("run", job(row_of("a", "a"))))
    await asyncio.sleep(0)
    running.cancel()
    queued.cancel()
    (score,) = await kept
    assert score["value"] == 1.0


async def test_a_scorer_knows_no_secret(
    make_pool: Callable[..., ScorerPool],
    row_of: Callable[..., Row],
    effect: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What reads hostile texts has neither the keys nor the database's address of the orchestrator's environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ASSAY_DATABASE_URL", "postgresql://user:secret@host/db")
    pool = make_pool()
    dump = f"open({str(tmp_path / 'env')!r}, 'w').write(str(dict(__import__('os').environ)))"
    await pool.do("run", effect(dump, job(row_of("a", "a"))))
    assert "secret" not in (tmp_path / "env").read_text()


async def test_what_a_scorer_prints_is_no_reply(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any]
) -> None:
    """Standard output of a library that prints goes elsewhere than the connection."""
    pool = make_pool()
    shout = "print('x' * 10000, flush=True), __import__('os').write(1, b'y' * 100)"
    (score,) = await pool.do("run", effect(shout, job(row_of("a", "a"))))
    assert score["value"] == 1.0


async def test_scorers_give_way_to_the_event_loop(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any], tmp_path: Path
) -> None:
    """Scorers are niced below the orchestrator."""
    pool = make_pool()
    mark = tmp_path / "nice"
    expression = f"open({str(mark)!r}, 'w').write(str(__import__('os').nice(0)))"
    await pool.do("run", effect(expression, job(row_of("a", "a"))))
    assert int(mark.read_text()) == min(19, os.nice(0) + 10)


async def test_runs_share_scorers_by_the_time_that_they_use(
    make_pool: Callable[..., ScorerPool], row_of: Callable[..., Row], effect: Callable[..., Any]
) -> None:
    """A run of endless jobs does not keep the rows of another waiting until all of them are over."""
    pool = make_pool(timeout_s=0.2)
    hostile = [asyncio.create_task(pool.do("hostile", effect(ENDLESS))) for _ in range(20)]
    await asyncio.sleep(0)
    scores = await asyncio.gather(*(pool.do("other", job(row_of("a", "a"))) for _ in range(20)))
    assert [score["value"] for (score,) in scores] == [1.0] * 20
    assert not all(task.done() for task in hostile)
    for task in hostile:
        task.cancel()


async def test_replies_are_read_as_in_the_orchestrator(make_pool: Callable[..., ScorerPool]) -> None:
    """A scorer reads an HTTP agent's reply, and says in the same words what is wrong with it."""
    pool = make_pool()
    expressions = (("text", "a"), ("tool_calls", "calls"))
    good = await pool.do("run", MapReply(expressions, b'{"a": "hi", "calls": [{"name": "f"}]}'))
    bad = await pool.do("run", MapReply(expressions, b"<html>"))
    assert good == {"answer": {"status": "success", "text": "hi", "tool_calls": [{"name": "f"}]}}
    assert bad == {"malformed": "the reply is not JSON: <html>"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends a process with its parent")
def test_scorers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """kill -9 of the orchestrator leaves no scorer at work."""
    mark = tmp_path / "pid"
    script = f"""
        import asyncio
        from assay_orchestrator.settings import ScoringLimits
        from assay_orchestrator.scorers.pool import ScorerPool

        class Sleep:
            def __reduce__(self):
                return eval, ({asleep(mark)!r},)

        asyncio.run(ScorerPool(ScoringLimits()).do("run", Sleep()))
    """
    with child_process([sys.executable, "-c", textwrap.dedent(script)]) as parent:
        pid = _pid_in(mark)
        scorer = psutil.Process(pid)
        parent.kill()
    psutil.wait_procs([scorer])
    assert not scorer.is_running()


def test_scorers_import_neither_grpc_nor_the_store() -> None:
    """A scorer is light: it has what arithmetic needs and nothing that talks to anybody."""
    script = """
        import json, sys
        from assay_orchestrator.scorers import worker
        worker._import_all()
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=True)
    assert not {"grpc", "sqlalchemy", "google", "httpx2", "openai", "torch"} & set(json.loads(found.stdout))
