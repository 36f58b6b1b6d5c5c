"""Judges that cannot judge now: every answer is collected, the run waits, and nobody is asked twice."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tests.support.processes.waiting import until

from assay.errors import InvalidInputError, SpecError, WrongStateError
from assay.model.run import PauseCause, RunState, SpendCap
from assay.testing.judges import says, user_of
from assay.testing.providers import ProviderRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.client.client import Client
    from assay.model.case import Case
    from assay.model.run import Run, RunSpec

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

GOOD = {"reasoning": "It is right.", "score": 4}


def with_agent(settings: RunSpec, *, concurrency: int) -> RunSpec:
    """Return the settings with another concurrency of the agent."""
    return dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, concurrency=concurrency))


def assert_waits(run: Run, count: int, *words: str) -> None:
    """Assert that a run is paused until its rows can be judged, and says so."""
    assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE), run.state_message
    waiting = run.counts.total_count - run.counts.finished_count
    assert waiting == count
    assert run.state_message.startswith(
        "every answer is stored, " + ("1 row awaits" if count == 1 else f"{count} rows await") + " a verdict: "
    )
    for word in (*words, f"assay runs resume {run.run_id}"):
        assert word in run.state_message


async def resumed(stage: Stage, client: Client, run: Run, spend_cap: SpendCap | None = None) -> Run:
    """Resume a run without anybody who could answer its questions, and follow it."""
    asked = list(stage.agent.asked)
    if spend_cap is not None:
        await client.update_run(run.run_id, spend_cap=spend_cap)
    await client.resume_run(run.run_id)
    found = await stage.until(client, run, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)
    assert stage.agent.asked == asked
    return found


async def test_a_judge_that_cannot_be_reached(set_up: SetUp, case_of: CaseOf) -> None:
    """All cases are answered and stored; once the judge is there, a resume judges them and asks the agent nothing."""
    stage = set_up()
    async with stage.orchestrator(patience_s=6) as client:
        run = await stage.create(client, stage.settings(), [case_of(n) for n in range(40)])
        run = await stage.follow(client, run)
        assert_waits(run, 40, "the judge service cannot be reached")
        assert len(stage.agent.asked) == 40
        assert run.summary is None
        still = await resumed(stage, client, run)
        assert_waits(still, 40, "the judge service cannot be reached")
        async with stage.judge():
            done = await resumed(stage, client, run)
    assert (done.state, done.counts.passed_count, done.state_message) == (RunState.COMPLETED, 40, "")
    assert len(set(stage.agent.asked)) == len(stage.agent.asked) == 40


async def test_a_judge_that_cannot_keep_its_state(
    set_up: SetUp, case_of: CaseOf, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason says so, and not that it cannot be reached; its log has a line of the cause."""
    stage = set_up()
    async with stage.judge(), stage.orchestrator(patience_s=6) as client:
        with contextlib.closing(sqlite3.connect(stage.folder / "judge" / "judge.db")) as state:
            state.execute(
                "CREATE TRIGGER disk BEFORE INSERT ON judge_reservations "
                "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            )
            run = await stage.follow(
                client, await stage.create(client, stage.settings(), [case_of(n) for n in range(4)])
            )
            assert_waits(
                run, 4, "the disk that holds the judge's database is full or broken (database or disk is full)"
            )
            assert "cannot be reached" not in run.state_message
            said = {record.getMessage() for record in caplog.records if record.name == "assay.storage.failures"}
            disk = f"the disk that holds {stage.folder / 'judge' / 'judge.db'} is full or broken"
            assert said == {f"storage failed: {disk} (database or disk is full): free some space"}
            state.execute("DROP TRIGGER disk")
        done = await resumed(stage, client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 4)


async def test_runs_wait_in_postgresql_too(set_up: SetUp, case_of: CaseOf, postgres_url: str) -> None:
    """The same run, the same end, whatever database keeps it."""
    stage = set_up()
    async with stage.orchestrator("--database-url", postgres_url, patience_s=6) as client:
        settings = stage.settings(judge=stage.who(canary_rate=0.0), spend_cap_usd=0.0, adapter="replay")
        cases = [dataclasses.replace(case_of(1, "a1"), case_id=f"c{n}") for n in range(1_200)]
        run = await stage.follow(client, await stage.create(client, settings, cases))
        assert_waits(run, 1_200, "the judge service cannot be reached")
        async with stage.judge():
            assert_waits(await resumed(stage, client, run), 1_200, "the spend cap of 0 dollars is reached")
            done = await resumed(stage, client, run, SpendCap(10**9))
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 1_200)


async def test_many_shards_wait_and_are_judged(set_up: SetUp, case_of: CaseOf) -> None:
    """Shards that await verdicts do not keep the others from being answered."""
    stage = set_up()
    cases = [dataclasses.replace(case_of(1, "a1"), case_id=f"c{n}") for n in range(1_300)]
    async with stage.orchestrator(patience_s=6) as client:
        run = await stage.follow(client, await stage.create(client, stage.settings(adapter="replay"), cases))
        assert_waits(run, 1_300)
        async with stage.judge():
            done = await resumed(stage, client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 1_300)
    assert len(stage.provider.requests) == 1


async def test_a_judge_that_lets_nobody_in(set_up: SetUp, case_of: CaseOf) -> None:
    """A wrong key is nobody's row error; when it has been put right, the run goes on."""
    stage = set_up(Reply("invalid api key", status=401))
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, stage.settings(), [case_of(n) for n in range(9)]))
        assert_waits(run, 9, "needs a key (401 from", "invalid api key")
        assert_waits(await resumed(stage, client, run), 9, "(401 from")
        stage.say(says(GOOD))
        done = await resumed(stage, client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 9)


@pytest.mark.parametrize(("status", "words"), [(500, "upstream broke"), (400, "HTTP 400: upstream broke")])
async def test_a_judge_that_fails_at_everything(set_up: SetUp, case_of: CaseOf, status: int, words: str) -> None:
    """It fails at a plain answer of our own, too: the rows wait, and none of them has an error."""
    stage = set_up(Reply("upstream broke", status=status))
    async with stage.judge(attempts=1), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, stage.settings(), [case_of(n) for n in range(5)]))
        assert_waits(run, 5, words)
        assert await stage.rows(client, run) == []


async def test_a_judge_that_fails_from_some_answer_on(set_up: SetUp, case_of: CaseOf) -> None:
    """Rows that were judged before keep their results; the others wait."""
    stage = set_up(*[says(GOOD)] * 4, *[Reply("gone", status=403)] * 20, says(GOOD))
    settings = with_agent(stage.settings(judge=stage.who(concurrency=1, canary_rate=0.0)), concurrency=1)
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(10)]))
        assert_waits(run, 6, "(403 from", "The service says: gone")
        assert run.summary is not None
        assert (run.summary.partial, run.summary.row_count) == (True, 4)
        stage.say(says(GOOD))
        done = await resumed(stage, client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 10)
    assert len(stage.agent.asked) == 10


async def test_a_judge_that_may_not_be_asked_here(set_up: SetUp, case_of: CaseOf) -> None:
    """What the operator of the judge service does not allow is said in its words: at the door where it can be asked."""
    stage = set_up()
    async with stage.orchestrator() as client:
        run = await stage.create(client, stage.settings(), [case_of(1)])
        async with stage.judge(allow_judges=(), allow_base_urls=(), allow_key_variables=()):
            run = await stage.follow(client, run)
            assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
            assert "the operator can allow it with --allow-judges" in run.state_message
            with pytest.raises(SpecError, match="the operator can allow it with --allow-judges") as caught:
                await stage.create(client, stage.settings(), [case_of(1)])
    assert {problem.field for problem in caught.value.problems} == {
        "judges[0].members[0]", "judges[0].members[0].base_url"
    }  # fmt: skip
    assert not stage.provider.requests


async def test_a_key_that_is_missing_where_the_judge_runs(set_up: SetUp, case_of: CaseOf) -> None:
    """The sentence names the variable, and where it belongs; at the door where the judge can be asked."""
    stage = set_up()
    settings = stage.settings(judge=stage.who(key_variable="NO_SUCH_KEY"))
    async with stage.orchestrator() as client:
        run = await stage.create(client, settings, [case_of(1), case_of(2)])
        async with stage.judge():
            run = await stage.follow(client, run)
            assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
            assert "NO_SUCH_KEY is not set where the judge service runs" in run.state_message
            with pytest.raises(SpecError, match=r"members\[0\]: .*NO_SUCH_KEY is not set where the judge service runs"):
                await stage.create(client, settings, [case_of(1)])


@pytest.mark.parametrize("rubric", ["tone", "pairwise"])
async def test_a_rubric_that_nobody_knows(set_up: SetUp, case_of: CaseOf, rubric: str) -> None:
    """The sentence names those that there are; at the door where the judge can be asked, else once it can."""
    stage = set_up()
    settings = stage.settings("judge_score", judge=stage.who(), rubric=rubric)
    async with stage.orchestrator() as client:
        run = await stage.create(client, settings, [case_of(1)])
        async with stage.judge():
            run = await stage.follow(client, run)
            assert_waits(run, 1, f"no rubric '{rubric}', only answer, quality")
            with pytest.raises(SpecError, match=f"unknown rubric '{rubric}'; known: answer, quality"):
                await stage.create(client, settings, [case_of(1)])
    assert not stage.provider.requests


async def test_a_spend_cap_pauses_and_can_be_raised(set_up: SetUp, case_of: CaseOf) -> None:
    """Not a call is made beyond it, the sentence says how to go on, and the new cap is the run's."""
    stage = set_up()
    cap = 0.05
    async with stage.judge(), stage.orchestrator() as client:
        settings = stage.settings(judge=stage.who(canary_rate=0.0), spend_cap_usd=cap)
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(60)]))
        waiting = run.counts.total_count - run.counts.finished_count
        assert 0 < waiting < 60
        assert_waits(run, waiting, "the spend cap of 0.05 dollars is reached", "--spend-cap USD")
        assert len(stage.agent.asked) == 60
        assert len(stage.provider.requests) * 0.00195 <= cap
        assert_waits(await resumed(stage, client, run), waiting)
        done = await resumed(stage, client, run, SpendCap(10 * 10**9))
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 60)
    assert done.spec.spend_cap_nano_usd == 10 * 10**9
    assert len(stage.provider.requests) == 60
    assert done.summary is not None
    assert done.summary.judging is not None
    assert done.summary.judging.cost_usd == pytest.approx(60 * 0.00195)


async def test_a_cap_without_a_price_can_be_taken_off(set_up: SetUp, case_of: CaseOf) -> None:
    """A judge without a price cannot be capped: a run that was created while it was away waits, and ends uncapped."""
    stage = set_up()
    async with stage.orchestrator() as client:
        settings = stage.settings(judge=stage.who(canary_rate=0.0), spend_cap_usd=1.0)
        created = await stage.create(client, settings, [case_of(1), case_of(2)])
        async with stage.hosting(client, created):
            await until(lambda: len(stage.agent.asked) == 2)  # otherwise the preflight check may find the judge
        async with stage.judge(prices=None):
            run = await stage.follow(client, created)
            assert_waits(run, 2, "has no price", "--spend-cap none")
            done = await resumed(stage, client, run, SpendCap(None))
    assert done.state is RunState.COMPLETED
    assert done.summary is not None
    assert done.summary.judging is not None
    assert (done.summary.judging.cost_usd, done.summary.judging.unpriced_count) == (None, 2)


async def test_a_cap_that_cannot_be_changed(set_up: SetUp, case_of: CaseOf) -> None:
    """Of a run without a judge, to no amount of money, or while the run goes on."""
    stage = set_up()
    async with stage.judge(), stage.orchestrator() as client:
        unjudged = await stage.create(client, stage.settings("latency", judge=None), [case_of(1)])
        with pytest.raises(InvalidInputError, match="has no judge"):
            await client.update_run(unjudged.run_id, spend_cap=SpendCap(10**9))
        run = await stage.create(client, stage.settings(), [case_of(1)])
        with pytest.raises(InvalidInputError, match="must be at most"):
            await client.update_run(run.run_id, spend_cap=SpendCap(10**16))
        with pytest.raises(WrongStateError, match="pause it before its spend cap is changed"):
            await client.update_run(run.run_id, spend_cap=SpendCap(10**9))


async def test_judging_holds_no_place_of_the_agent(set_up: SetUp, case_of: CaseOf) -> None:
    """An agent that takes one question at a time answers all of them while the first verdict is awaited."""
    stage = set_up(says(GOOD, delay_s=60))
    settings = with_agent(stage.settings(judge=stage.who(concurrency=2, canary_rate=0.0)), concurrency=1)
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.create(client, settings, [case_of(n) for n in range(30)])
        async with stage.hosting(client, run):
            await until(lambda: len(stage.agent.asked) >= 30 and stage.provider.requests)
        assert len(stage.provider.requests) <= 2


async def test_a_killed_orchestrator_asks_nobody_twice(set_up: SetUp, case_of: CaseOf) -> None:
    """Killed while verdicts are out, it judges the stored answers after its restart: the agent is left alone."""
    stage = set_up(says(GOOD, delay_s=60))
    async with stage.judge():
        async with stage.orchestrator() as client:
            run = await stage.create(client, stage.settings(), [case_of(n) for n in range(30)])
            async with stage.hosting(client, run):
                await until(lambda: len(stage.agent.asked) >= 30 and stage.provider.requests)
            stored = stage.folder / "assay.db"
            assert stored.exists()
            await stage.until(client, run, RunState.RUNNING)
            stage.kill()
        stage.say(says(GOOD))
        async with stage.orchestrator() as client:
            done = await stage.follow(client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 30)
    assert len(stage.agent.asked) == 30


async def test_a_paused_run_asks_for_no_verdict(set_up: SetUp, case_of: CaseOf) -> None:
    """Verdicts that are out come and are stored; those that wait for their turn wait for the resume."""
    # Ten seconds of verdicts: the pause comes before the last of them.
    stage = set_up(says(GOOD, delay_s=1.0))
    settings = stage.settings(judge=stage.who(concurrency=2, canary_rate=0.0))
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.create(client, settings, [case_of(n) for n in range(20)])
        async with stage.hosting(client, run):
            await until(lambda: stage.provider.requests)
            paused = await client.pause_run(run.run_id)
        assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
        assert paused.counts.finished_count == len(stage.provider.requests) < 20
        stage.say(says(GOOD))
        await client.resume_run(run.run_id)
        done = await stage.follow(client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 20)
    assert len(stage.agent.asked) == 20


async def test_a_judge_that_comes_back_in_time(set_up: SetUp, case_of: CaseOf) -> None:
    """Within the orchestrator's patience a judge that is restarted costs the run nothing."""
    stage = set_up()
    async with stage.orchestrator() as client:
        run = await stage.create(client, stage.settings(), [case_of(n) for n in range(5)])
        async with stage.hosting(client, run):
            await until(lambda: len(stage.agent.asked) >= 5)
            async with stage.judge():
                done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED)
    assert done.state is RunState.COMPLETED


async def test_an_error_is_judged_again_on_request(set_up: SetUp, case_of: CaseOf) -> None:
    """A row without a valid verdict is judged anew with retry_errors, from its stored answer; others are not."""

    def script(request: ProviderRequest) -> Reply:
        return Reply("no verdict") if "q1" in user_of(request) else says(GOOD)(request)

    stage = set_up(script)
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, stage.settings(), [case_of(n) for n in range(3)]))
        assert run.counts.passed_count == 2
        stage.say(says(GOOD))
        before = len(stage.provider.requests)
        await client.retry_run(run.run_id)
        done = await stage.until(client, run, RunState.COMPLETED)
    assert (done.counts.passed_count, len(stage.agent.asked)) == (3, 3)
    assert len(stage.provider.requests) == before + 1


async def test_shards_that_wait_go_on_when_the_judge_judges_again(set_up: SetUp, case_of: CaseOf) -> None:
    """The first shard finds the judge shut and is set aside; the second is judged, and so is the first, unasked."""
    stage = set_up(Reply("no such key", status=401))
    settings = with_agent(stage.settings(adapter="replay"), concurrency=1)
    cases = [dataclasses.replace(case_of(1, "a1"), case_id=f"c{n}") for n in range(1_020)]
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.create(client, settings, cases)
        await until(lambda: stage.provider.requests)
        stage.say(says(GOOD))
        done = await stage.until(client, run, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 1_020), done.state_message


@pytest.mark.parametrize("batch", [False, True])
async def test_a_missing_price_refuses_the_run_before_the_agent_is_asked(
    set_up: SetUp, case_of: CaseOf, batch: bool
) -> None:
    """The preflight check says so to a client of a server; without a cap the run is taken."""
    stage = set_up()
    (stage.folder / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    settings = stage.settings(judge=stage.who(canary_rate=0.0, batch=batch), spend_cap_usd=1.0)
    own = {"prices": stage.folder / "none.yaml", "batch_base_urls": ("*",), "batch_wait_s": 0.1, "batch_poll_s": 0.05}
    async with stage.judge(**own), stage.orchestrator() as client:
        with pytest.raises(SpecError, match=r"judge-1 has no price at http://127.* own services\), .* --prices FILE"):
            await stage.create(client, settings, [case_of(1)])
        assert not stage.agent.asked
        assert not stage.provider.requests
        uncapped = stage.settings(judge=stage.who(canary_rate=0.0, batch=batch))
        run = await stage.follow(client, await stage.create(client, uncapped, [case_of(1)]))
    assert run.state is RunState.COMPLETED, run.state_message
