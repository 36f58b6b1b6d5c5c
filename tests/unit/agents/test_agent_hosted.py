"""The broker between a run's questions and the clients that answer them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.processes.virtual_time import in_virtual_time

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse
from assay_orchestrator.agents.hosted import Attachment, Cancelled, Detached, HostedAgent, Questions, Reconciled, Stored
from assay_orchestrator.agents.protocol import NotAskedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.case import Case

    Question = Callable[..., AgentRequest]


class Client:
    """A client as the service sees it: reads what is sent, and answers when told to."""

    def __init__(self, agent: HostedAgent, concurrency: int) -> None:
        self.attachment: Attachment = agent.attach(concurrency)
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopping = asyncio.Event()
        self._messages = self.attachment.outgoing(self._left, self.stopping)

    async def read(self) -> Questions | Cancelled | Stored | Reconciled | Detached:
        """Return the next message."""
        return await anext(self._messages)

    async def ids(self) -> list[str]:
        """Return the ids of the next questions."""
        message = await self.read()
        assert isinstance(message, Questions)
        return [request.request_id for request in message.requests]

    def answer(self, *request_ids: str) -> None:
        """Answer some questions with their own ids."""
        self.attachment.deliver((request_id, AgentResponse(text=request_id)) for request_id in request_ids)

    async def leave(self) -> None:
        """Break off."""
        self._left.set_result(None)
        await self._messages.aclose()  # type: ignore[attr-defined]  # it is a generator
        self.attachment.close()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def ask(agent: HostedAgent, case: Case, *requests: AgentRequest) -> list[asyncio.Task[AgentResponse]]:
    """Ask some questions at once."""
    tasks = [asyncio.create_task(agent.answer(request, case)) for request in requests]
    await settle()
    return tasks


@in_virtual_time
async def test_questions_wait_for_a_client_and_travel_together(case: Case, question: Question) -> None:
    """Without a client, questions wait and no time limit runs; a client gets as many as its concurrency allows."""
    agent = HostedAgent()
    asked = await ask(agent, case, *(question(i, timeout_s=0.001) for i in range(3)))
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in asked)
    client = Client(agent, 2)
    assert await client.ids() == ["k0#0", "k1#0"]
    client.answer("k0#0", "k1#0")
    assert await client.ids() == ["k2#0"]
    client.answer("k2#0")
    assert [(await task).text for task in asked] == ["k0#0", "k1#0", "k2#0"]
    await client.leave()


async def test_questions_of_consecutive_rounds_travel_together(case: Case, question: Question) -> None:
    """Questions of consecutive rounds of the event loop share a message, up to 64 per message."""
    agent = HostedAgent()
    client = Client(agent, 200)
    reading = asyncio.create_task(client.ids())
    asked = []
    for first in range(0, 96, 4):
        asked += [asyncio.create_task(agent.answer(question(first + i), case)) for i in range(4)]
        await asyncio.sleep(0)
    assert await reading == [f"k{i}#0" for i in range(64)]
    assert await client.ids() == [f"k{i}#0" for i in range(64, 96)]
    client.answer(*(f"k{i}#0" for i in range(96)))
    assert [(await task).text for task in asked] == [f"k{i}#0" for i in range(96)]
    await client.leave()


async def test_a_lone_question_waits_for_no_other(case: Case, question: Question) -> None:
    """A lone question is sent within three rounds of the event loop, without a timer."""
    agent = HostedAgent()
    client = Client(agent, 8)
    reading = asyncio.create_task(client.ids())
    await settle()
    asked = asyncio.create_task(agent.answer(question(0), case))
    for _ in range(4):  # one in which it is asked, three in which it is sent
        await asyncio.sleep(0)
    assert reading.done()
    client.answer("k0#0")
    assert (await asked).text == "k0#0"
    await client.leave()


async def test_a_question_cancelled_while_others_gather_is_not_sent(case: Case, question: Question) -> None:
    """A question cancelled before it is sent causes no message; the others are sent."""
    agent = HostedAgent()
    client = Client(agent, 8)
    reading = asyncio.create_task(client.ids())
    await settle()
    asked = [asyncio.create_task(agent.answer(question(i), case)) for i in range(2)]
    await asyncio.sleep(0)
    asked[0].cancel()
    assert await reading == ["k1#0"]
    client.answer("k1#0")
    assert (await asked[1]).text == "k1#0"
    await client.leave()


async def test_questions_are_spread_over_clients(case: Case, question: Question) -> None:
    """The client with the most free places gets the next question."""
    agent = HostedAgent()
    small, large = Client(agent, 1), Client(agent, 3)
    await ask(agent, case, *(question(i) for i in range(4)))
    assert len(await small.ids()) == 1
    assert len(await large.ids()) == 3
    await small.leave()
    await large.leave()


async def test_a_client_that_leaves_has_its_questions_asked_elsewhere_first(case: Case, question: Question) -> None:
    """The unanswered questions of a lost client go first to the next client, in order and with the same request."""
    agent = HostedAgent()
    first = Client(agent, 3)
    asked = await ask(agent, case, *(question(i) for i in range(5)))
    await first.ids()
    first.answer("k1#0")
    await settle()
    await first.leave()
    second = Client(agent, 9)
    assert await second.ids() == ["k0#0", "k2#0", "k3#0", "k4#0"]
    first.answer("k0#0")  # too late: it has left
    await settle()
    assert [task.done() for task in asked] == [False, True, False, False, False]
    second.answer("k0#0", "k2#0", "k3#0", "k4#0")
    assert [(await task).text for task in asked] == [f"k{i}#0" for i in range(5)]
    await second.leave()


@in_virtual_time
async def test_an_attempt_times_out_once_a_client_has_it(case: Case, question: Question) -> None:
    """A client that exceeds the time limit gets a cancellation, and its late answer is ignored."""
    agent = HostedAgent(grace_s=0.0)
    client = Client(agent, 1)
    (late,) = await ask(agent, case, question(0, timeout_s=0.02))
    assert await client.ids() == ["k0#0"]
    response = await late
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TIMEOUT, True)
    assert response.latency_ms == 20
    assert await client.read() == Cancelled(["k0#0"])
    client.answer("k0#0")
    (next_one,) = await ask(agent, case, question(1))
    assert await client.ids() == ["k1#0"]
    client.answer("k1#0")
    assert (await next_one).text == "k1#0"
    await client.leave()


@in_virtual_time
async def test_the_clock_stops_while_a_question_is_with_no_client(case: Case, question: Question) -> None:
    """Each attempt has its own time limit, which starts when a client gets the question."""
    agent = HostedAgent(grace_s=0.0)
    first = Client(agent, 1)
    (asked,) = await ask(agent, case, question(0, timeout_s=0.05))
    await first.leave()
    await asyncio.sleep(0.1)
    assert not asked.done()
    second = Client(agent, 1)
    await second.ids()
    second.answer("k0#0")
    assert (await asked).text == "k0#0"
    await second.leave()


async def test_a_question_that_is_no_longer_wanted_is_cancelled(case: Case, question: Question) -> None:
    """Cancelling `answer` cancels the question at the client and frees its slot; a waiting question is dropped."""
    agent = HostedAgent()
    client = Client(agent, 1)
    sent, waiting = await ask(agent, case, question(0), question(1))
    await client.ids()
    for task in (waiting, sent):
        task.cancel()
    await asyncio.gather(sent, waiting, return_exceptions=True)
    assert sent.cancelled()
    assert waiting.cancelled()
    assert await client.read() == Cancelled(["k0#0"])
    await ask(agent, case, question(2))
    assert await client.ids() == ["k2#0"]
    await client.leave()


async def test_a_question_that_was_not_sent_yet_is_never_sent(case: Case, question: Question) -> None:
    """A question cancelled before it is sent never reaches the agent."""
    agent = HostedAgent()
    client = Client(agent, 2)
    first, _ = await ask(agent, case, question(0), question(1))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await client.ids() == ["k1#0"]
    await client.leave()


async def test_answers_of_another_client_or_to_nothing_are_ignored(case: Case, question: Question) -> None:
    """A client's answer counts only for a question it was asked, and only once."""
    agent = HostedAgent()
    owner = Client(agent, 1)
    (asked,) = await ask(agent, case, question(0))
    stranger = Client(agent, 1)
    stranger.answer("k0#0", "nonsense", "")
    await settle()
    assert not asked.done()
    owner.answer("k0#0", "k0#0")
    assert (await asked).text == "k0#0"
    await owner.leave()
    await stranger.leave()


async def test_clients_are_told_when_the_run_asks_no_more(case: Case, question: Question) -> None:
    """Detaching ends the streams of present and later clients."""
    agent = HostedAgent()
    client = Client(agent, 1)
    agent.detach_all("the run has completed")
    for one in (client, Client(agent, 1)):
        assert await one.read() == Detached("the run has completed")
        with pytest.raises(StopAsyncIteration):
            await one.read()


async def test_a_process_that_stops_waits_for_what_was_asked(case: Case, question: Question) -> None:
    """A stopping process waits for the answers in flight until its grace period ends."""
    agent = HostedAgent()
    client = Client(agent, 2)
    answered, given_up, never_asked = await ask(agent, case, question(0), question(1), question(2))
    first, _ = await client.ids()
    ended = asyncio.create_task(client.read())
    client.stopping.set()
    agent.hold()
    await settle()
    assert not ended.done()
    with pytest.raises(NotAskedError):
        await never_asked
    client.answer(first)
    assert (await answered).text == first
    await settle()
    assert not ended.done()
    given_up.cancel()
    with pytest.raises(StopAsyncIteration):  # without a word about it: the next process asks it again
        await ended


async def test_a_process_that_stops_lets_an_idle_client_go() -> None:
    """A stopping process does not wait for an idle client."""
    client = Client(HostedAgent(), 2)
    ended = asyncio.create_task(client.read())
    await settle()
    client.stopping.set()
    with pytest.raises(StopAsyncIteration):
        await ended


async def test_what_is_kept_is_bounded_by_what_is_asked(case: Case, question: Question) -> None:
    """Once every question is answered, neither the broker nor the client stores anything."""
    agent = HostedAgent()
    client = Client(agent, 100)
    asked = await ask(agent, case, *(question(i) for i in range(100)))
    read: list[str] = []
    while len(read) < 100:
        read += await client.ids()
    client.answer(*read)
    await asyncio.gather(*asked)
    assert not agent._waiting
    assert not client.attachment._asked
    assert not client.attachment._outgoing
    await client.leave()
    assert not agent._attachments
