"""What agents need open is opened when the first question needs it, and closed whatever happens."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.docs.guides import ROOT
from tests.support.processes.virtual_time import in_virtual_time

from assay.agent_host import lifespan as lifespans
from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.event_loop import run_event_loop
from assay.agent_host.lifespan import Lifespan, Resource, entered, provided
from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import AgentRequest
from assay.model.answers.agent_response import AgentErrorKind
from assay.model.lifespan_settings import LIFESPAN_KEYS
from assay.model.run import AgentSpec
from assay.specs.agents import check_agent, check_hosted
from assay.specs.loader import load_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from assay.agent_host.protocol import Caller


class Log(list[str]):
    """What was opened and closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.has_opened = asyncio.Event()

    @asynccontextmanager
    async def manager(self, name: str = "it") -> AsyncIterator[str]:
        """Open and close a name, whatever happens in between."""
        self.append(f"open {name}")
        self.has_opened.set()
        try:
            yield name
        finally:
            await asyncio.sleep(0)
            self.append(f"close {name}")


def request(case: str = "a", *, turn: int = 0, turns: int = 1, **fields: Any) -> AgentRequest:
    """Return a question of a case."""
    return AgentRequest(
        f"r/{case}/{turn}", "run", case, f"{case}{turn}", session_id=f"r/{case}", turn_index=turn, turn_count=turns,
        **fields,
    )  # fmt: skip


async def answer(question: AgentRequest, opened: str) -> str:
    """Answer with what is open, or do what the question says."""
    if question.input.startswith("fail"):
        raise ValueError("no")
    if question.input.startswith("hang"):
        await asyncio.Event().wait()
    return opened


def caller_with(log: Log, *, per_case: bool) -> AgentCaller:
    """Return what asks `answer` with a lifespan that writes to a log."""
    made: Callable[..., Any] = (lambda request: log.manager(request.case_id)) if per_case else log.manager
    return AgentCaller(answer, lifespan=Lifespan(made, is_per_case=per_case), hands_over=True)


@in_virtual_time
async def test_a_run_opens_once_and_closes_at_its_end() -> None:
    """Concurrent questions share one opening, which errors and timeouts leave open; a call after closing reopens it."""
    log = Log()
    caller = caller_with(log, per_case=False)
    answers = await asyncio.gather(*(caller.call(request(f"c{index}")) for index in range(5)))
    assert [each.text for each in answers] == ["it"] * 5
    assert (await caller.call(request("fail"))).error is not None
    assert (await caller.call(request("hang", timeout_s=0.01))).error is not None
    assert log == ["open it"]
    await caller.aclose()
    assert log == ["open it", "close it"]
    assert (await caller.call(request())).text == "it"
    await caller.aclose()
    assert log == ["open it", "close it"] * 2


@in_virtual_time
async def test_a_case_opens_its_own_for_all_turns() -> None:
    """A case's resource closes after the last turn, after an error or timeout, and when the agent is closed."""
    log = Log()
    caller = caller_with(log, per_case=True)
    assert (await caller.call(request("a", turn=0, turns=2))).text == "a"
    assert log == ["open a"]
    assert (await caller.call(request("a", turn=1, turns=2))).text == "a"
    await caller.call(request("fail"))
    await caller.call(request("hang", timeout_s=0.01))
    await caller.call(request("b", turn=0, turns=2))
    await caller.aclose()
    assert sorted(log) == sorted(f"{what} {case}" for case in ("a", "fail", "hang", "b") for what in ("open", "close"))
    assert log.index("close a") < log.index("close b")


async def test_a_cancelled_question_closes_what_its_case_had() -> None:
    """A cancelled question closes the resource of its case; the run's resource stays open."""
    log, per_run = Log(), Log()
    for caller, expected in ((caller_with(log, per_case=True), log), (caller_with(per_run, per_case=False), per_run)):
        task = asyncio.create_task(caller.call(request("hang")))
        await expected.has_opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await caller.aclose()
    assert (log, per_run) == (["open hang", "close hang"], ["open it", "close it"])


async def test_opening_that_fails_is_tried_again_with_the_next_question() -> None:
    """A failed opening fails the questions that waited for it; the next question tries again."""
    count = 0

    async def opens() -> AsyncIterator[str]:
        nonlocal count
        count += 1
        if count == 1:
            raise ConnectionError("refused")
        yield "open"

    caller = AgentCaller(answer, lifespan=Lifespan(opens, is_per_case=False), hands_over=True)
    failed = await asyncio.gather(*(caller.call(request(f"c{index}")) for index in range(3)))
    assert {each.error and each.error.message for each in failed} == {"ConnectionError: refused"}
    assert {each.error and each.error.retryable for each in failed} == {True}
    assert (await caller.call(request())).text == "open"
    await caller.aclose()


@in_virtual_time
async def test_opening_that_takes_too_long_says_so_and_counts_as_no_latency() -> None:
    """A slow opening times out its question and continues for later ones; closing cancels it."""
    gate = asyncio.Event()

    async def opens() -> AsyncIterator[str]:
        await gate.wait()
        yield "open"

    caller = AgentCaller(answer, lifespan=Lifespan(opens, is_per_case=False), hands_over=True)
    late = await caller.call(request(timeout_s=0.01))
    assert late.error is not None
    assert (late.error.kind, late.error.message) == (
        AgentErrorKind.TIMEOUT,
        "what the agent needs did not open within 0.01 s",
    )
    task = asyncio.create_task(caller.call(request()))
    await asyncio.sleep(0)
    gate.set()
    assert (await task).text == "open"
    await caller.aclose()
    gate.clear()
    assert (await caller.call(request(timeout_s=0.01))).error is not None
    await caller.aclose()


async def test_one_task_enters_and_leaves_it() -> None:
    """One task enters and leaves the manager, because MCP's cancel scopes must not be left in another task."""
    tasks = []

    @asynccontextmanager
    async def opens() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(None):
            yield
        tasks.append(asyncio.current_task())

    resource = Resource(opens)
    await asyncio.gather(resource.value(), resource.value())
    await asyncio.create_task(resource.aclose())
    assert len(tasks) == 2
    assert tasks[0] is tasks[1] is not asyncio.current_task()


async def test_what_cannot_be_closed_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error or a hang in closing does not affect the row; the log names it without secrets."""
    monkeypatch.setattr(lifespans, "CLOSE_S", 0.01)
    monkeypatch.setenv("SOME_API_KEY", "sk-verysecret")

    async def fails() -> AsyncIterator[str]:
        yield "open"
        raise ValueError("sk-verysecret is no password")

    async def hangs() -> AsyncIterator[str]:
        yield "open"
        await asyncio.Event().wait()

    for opens in (fails, hangs):
        caller = AgentCaller(answer, lifespan=Lifespan(opens, is_per_case=False), hands_over=True)
        assert (await caller.call(request())).text == "open"
        await caller.aclose()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "closing what the agent had open failed: ValueError: [redacted] is no password"
    assert second == "closing what the agent had open failed: TimeoutError"


def test_a_loop_that_ends_closes_it() -> None:
    """A second Ctrl-C skips `aclose`; the end of the loop then cancels the task, which closes its resources."""
    log = Log()

    async def main() -> None:
        await caller_with(log, per_case=False).call(request())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_event_loop(main())
    assert log == ["open it", "close it"]


class Client:
    """A client that may be shared."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def __aenter__(self) -> Client:
        self.log.append("open")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append("close")


async def test_generators_and_their_managers_are_entered_for_each_question() -> None:
    """Generators and context managers are entered, also when a coroutine returns them; other objects are passed on."""
    log = Log()

    def sync(question: AgentRequest) -> Iterator[str]:
        log.append(f"open {question.case_id}")
        yield "value"
        log.append(f"close {question.case_id}")

    async def later(question: AgentRequest) -> Any:
        return log.manager(question.case_id)

    async def generator(question: AgentRequest) -> AsyncIterator[str]:
        async with log.manager(question.case_id):
            yield "value"

    for option in (sync, contextmanager(sync), generator, asynccontextmanager(generator), later):
        async with provided(option, request("x"), "opened") as value:
            assert (value, log) == ("value" if option is not later else "x", ["open x"])
        assert log == ["open x", "close x"]
        log.clear()
    client = Client(log)
    for plain in (client, lambda _: client):
        async with provided(plain, request(), "opened") as value:
            assert value is client
    async with provided(None, request(), "opened") as value:
        assert value == "opened"
    async with provided(lambda question, opened: (question.case_id, opened), request(), "opened") as value:
        assert value == ("a", "opened")
    assert log == []
    async with entered(client, any_manager=True) as value:
        assert value is client
    assert log == ["open", "close"]


@given(st.sampled_from([ValueError("row"), asyncio.CancelledError(), SystemExit(1)]), st.booleans(), st.booleans())
def test_what_is_raised_within_is_raised(problem: BaseException, suppresses: bool, sync: bool) -> None:
    """A manager that suppresses an error leaves no row without an answer, and each manager is closed once."""
    log = Log()

    class Manager:
        def __enter__(self) -> str:
            return "value"

        def __exit__(self, kind: type, *_: object) -> bool:
            log.append(kind.__name__)
            return suppresses

    class AsyncManager:
        async def __aenter__(self) -> str:
            return "value"

        async def __aexit__(self, kind: type, *_: object) -> bool:
            log.append(kind.__name__)
            return suppresses

    async def work() -> None:
        async with entered(Manager() if sync else AsyncManager(), any_manager=True):
            raise problem

    async def check() -> None:
        with pytest.raises(type(problem)) as caught:
            await work()
        assert caught.value is problem

    asyncio.run(check())
    assert log == [type(problem).__name__]


async def test_an_error_of_the_managers_own_is_the_rows() -> None:
    """A manager's own error replaces the agent's, as in Python; a cancellation stays a cancellation."""

    async def turns_into() -> AsyncIterator[str]:
        try:
            yield "value"
        except BaseException as problem:
            raise LookupError("another") from problem

    with pytest.raises(LookupError, match="another"):
        async with entered(turns_into()):
            raise ValueError("row")
    with pytest.raises(asyncio.CancelledError):
        async with entered(turns_into()):
            raise asyncio.CancelledError


AGENT = """
from contextlib import asynccontextmanager, contextmanager

log = []

@asynccontextmanager
async def clients():
    log.append("open")
    yield {"name": "client"}
    log.append("close")

@contextmanager
def of_case(request):
    log.append(request.case_id)
    yield request.case_id

def answer(question):
    return "alone"

def with_opened(question, clients):
    return str(clients)

def with_default(question, count=3):
    return str(count)

class Agent:
    def answer(self, question, clients):
        return str(clients)

def many(a, b): ...
nothing = 3
"""


def opened_with(folder: Path, target: str, **options: Any) -> Caller:
    """Return what asks a function of the module above."""
    (folder / "agent.py").write_text(textwrap.dedent(AGENT), encoding="utf-8")
    caller = open_caller(AgentSpec("python", f"agent.py:{target}", options=options), folder)
    assert caller is not None
    return caller


@pytest.mark.parametrize(
    ("target", "lifespan", "per", "text"),
    [
        ("answer", "clients", "run", "alone"),
        ("with_opened", "clients", "run", "{'name': 'client'}"),
        ("with_opened", "of_case", "case", "a"),
        ("with_default", "clients", "case", "3"),
        ("Agent", "clients", "run", "{'name': 'client'}"),
    ],
)
async def test_a_function_is_called_with_it_where_it_needs_a_second_argument(
    tmp_path: Path, target: str, lifespan: str, per: str, text: str
) -> None:
    """Only a second parameter without a default receives the resource."""
    caller = opened_with(tmp_path, target, lifespan=f"agent.py:{lifespan}", lifespan_per=per)
    assert (await caller.call(request())).text == text
    await caller.aclose()


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("with_opened", {}, "agent.target: 'agent.py:with_opened' is called with one argument, the question, but"),
        ("answer", {"lifespan": "agent.py:nothing"}, "agent.lifespan: 'agent.py:nothing' is a int: name a function"),
        ("answer", {"lifespan": "agent.py:of_case"}, "a request is there with `lifespan_per: case` alone"),
        ("answer", {"lifespan": "agent.py:many", "lifespan_per": "case"}, "takes other arguments than none, or the"),
        ("answer", {"lifespan": "agent.py:many"}, "'agent.py:many' takes other arguments than none"),
        ("answer", {"lifespan": "agent.py:none"}, "agent.lifespan: agent.py has no 'none'"),
    ],
)
def test_a_lifespan_that_does_not_fit_is_refused(
    tmp_path: Path, target: str, options: dict[str, str], message: str
) -> None:
    """A lifespan that does not fit the agent is refused at its field before a question is asked."""
    with pytest.raises(InvalidInputError) as caught:
        opened_with(tmp_path, target, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("adapter", "target", "options", "message"),
    [
        ("python", "a:b", {"lifespan": "clients"}, "agent.lifespan: must be MODULE:FUNCTION or FILE.py:FUNCTION of a"),
        ("python", "a:b", {"lifespan": "a:c", "lifespan_per": "row"}, "must be run or case, not 'row'"),
        ("pydantic_ai", "a:b", {"lifespan_per": "case"}, "agent.lifespan: must be MODULE:FUNCTION"),
        ("adk", "http://a", {"lifespan": "a:c"}, "agent.lifespan: opens what an agent in this process needs"),
        ("command", "./agent", {"lifespan": "a:c"}, "and the command adapter reaches one elsewhere or none: remove it"),
        ("langgraph", "a:b", {"lifespan": "a:c", "lifespan_per": "case"}, ""),
    ],
)
def test_the_options_are_checked_with_the_spec(
    adapter: str, target: str, options: dict[str, str], message: str
) -> None:
    """Options are checked without the user's code; only agents in this process have them."""
    agent = AgentSpec(adapter, target, options=options)
    problems = "\n".join(map(str, check_agent(agent) + check_hosted(agent)))
    assert message in problems
    assert bool(message) == bool(problems)


async def test_the_guide_opens_and_closes_a_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/spec.md: the code, the spec and the cases as they are printed there, and every key is in its table."""
    text = re.search(r"\n## Opening and closing\n(.*?)\n## ", (ROOT / "docs/spec.md").read_text(), re.DOTALL)
    assert text is not None
    code, spec, cases = re.findall(r"```\w+\n(.*?)```", text[1], re.DOTALL)
    for name, content in (("clients.py", code), ("assay.yaml", spec), ("parcels.jsonl", cases)):
        (tmp_path / name).write_text(content, encoding="utf-8")
    caller = open_caller(load_spec(tmp_path / "assay.yaml").settings.agent, tmp_path)
    assert caller is not None
    for case in map(json.loads, cases.splitlines()):
        answered = await caller.call(replace(request(), input=case["question"]))
        assert (answered.error, answered.text) == (None, case["answer"])
    assert capsys.readouterr().out == ""
    await caller.aclose()
    assert capsys.readouterr().out == "closed\n"
    assert set(re.findall(r"^\| `(\w+)` \| `?(?:–|run)", text[1], re.MULTILINE)) == set(LIFESPAN_KEYS)
