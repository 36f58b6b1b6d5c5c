"""One run from upload to summary, by clients that try again, while processes are disturbed."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tests.chaos.histories import History, Verdict, check
from tests.chaos.outer_services import MODEL, CountingAgent, serve_embedder
from tests.chaos.topologies import open_engine

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.errors import UnavailableError
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, Run, RunState
from assay.specs.loader import spec_from_mapping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.chaos.topologies import Cluster, OneOrchestrator

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec

T = TypeVar("T")

PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Args:
        case_count: Cases.
        repeats: How often each is asked.
        turn_count: Questions of each.
        error_every: Every so many cases the agent fails; 0 for never.
        embeds: Whether a metric needs vectors, so that answers are stored before results.
        concurrency: Most questions in flight.
        timeout_s: How long an answer may take.
    """

    case_count: int = 60
    repeats: int = 2
    turn_count: int = 1
    error_every: int = 0
    embeds: bool = True
    concurrency: int = 8
    timeout_s: float = 20.0

    def cases(self) -> list[Case]:
        """Return the dataset."""
        return [
            Case(
                f"c{index}",
                tuple(self._turn(index, turn_index) for turn_index in range(self.turn_count)),
                category=f"k{index % 3}",
            )
            for index in range(self.case_count)
        ]

    def mapping(self, agent: dict[str, Any]) -> dict[str, Any]:
        """Return the spec, for an agent."""
        metrics: list[Any] = ["exact_match", "rouge"]
        if self.embeds:
            metrics.append({"semantic_similarity": {"model": MODEL, "threshold": 0.5}})
            metrics.append({"consistency": {"model": MODEL}})
        return {
            "name": "chaos",
            "agent": {"concurrency": self.concurrency, "retries": 0, "timeout": f"{self.timeout_s:g}s", **agent},
            "metrics": metrics,
            "gates": ["pass_rate >= 0.1"],
            "repeats": self.repeats,
        }

    def settings(self, agent: dict[str, Any]) -> RunSpec:
        """Return the spec as the orchestrator takes it."""
        return spec_from_mapping(self.mapping(agent), needs_dataset=False).settings

    def _turn(self, index: int, turn_index: int) -> Turn:
        fails = self.error_every and index % self.error_every == 0
        number = f"{index}.{turn_index}"
        return Turn(f"{'err' if fails else 'q'}{number}", references=(f"a{number}",))


@dataclass(slots=True)
class Drill:
    """A plan that is carried out.

    Args:
        plan: What is run.
        topology: Where.
        agent: Who is asked.
        folder: For files of clients.
        asked_through: How many questions reached each client that hosts the agent, by the address it knows.
    """

    plan: Plan
    topology: OneOrchestrator | Cluster
    agent: CountingAgent
    folder: Path
    histories: list[History] = field(default_factory=list)
    asked_through: Counter[str] = field(default_factory=Counter)

    async def submit(self, *, hosted: bool = False) -> History:
        """Hand the run in, as often as it takes, always as the same request."""
        http = {"adapter": "http", "target": self.agent.url}
        settings = self.plan.settings({"adapter": "python", "target": "agent:answer"} if hosted else http)
        request_id = str(uuid.uuid4())

        async def once(client: Client) -> Run:
            dataset = await client.upload_dataset(self.plan.cases(), name="chaos")
            return await client.create_run(settings, dataset.dataset_id, request_id=request_id)

        run = await self.insist(once)
        again = await self.insist(
            lambda client: client.create_run(settings, run.dataset.dataset_id, request_id=request_id)
        )
        history = self.follow(run.run_id)
        if again.run_id != run.run_id:
            history.problems.append(f"one request made two runs, {run.run_id} and {again.run_id}")
        return history

    def follow(self, run_id: str) -> History:
        """Return the history of a run, to be filled by watching."""
        history = History(run_id, self.plan.case_count * self.plan.repeats, self.plan.turn_count)
        self.histories.append(history)
        return history

    async def watch_to_the_end(self, history: History) -> Run:
        """Watch a run until it has ended; one whose rows cannot be stored resumes by itself."""
        async with asyncio.timeout(250):
            while True:
                async with self.client() as client:
                    try:
                        await history.watch(client)
                        run = await client.get_run(history.run_id, partial=False)
                    except UnavailableError as problem:
                        if problem.reason == "STORAGE_UNAVAILABLE":
                            self.topology.disturbed("store")
                        await asyncio.sleep(0.1)
                        continue
                if run.finished and run.last_sequence in history.seen:
                    return run  # else it ended after a watch that a pause had ended
                if run.state is RunState.PAUSED and run.pause_cause is PauseCause.STORAGE:
                    await asyncio.sleep(0.1)
                elif run.state is RunState.PAUSED and run.pause_cause is not PauseCause.OWNER:
                    self.topology.disturbed("pause")
                    await self.insist(lambda client: client.resume_run(history.run_id))

    async def insist(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Return what a call returns, made again for as long as the orchestrator is away."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with self.client() as client:
                        return await call(client)
                except UnavailableError:
                    await asyncio.sleep(0.05)

    async def host(self, history: History, address: str) -> None:
        """Answer a run's questions in this process, through whoever is at an address."""

        async def answer(request: AgentRequest) -> str:
            self.asked_through[address] += 1
            return await self.agent.answer(request)

        async with Client(address, patience_s=PATIENCE_S) as client:
            await client.host_agent(history.run_id, AgentCaller(answer), concurrency=self.plan.concurrency)

    def client(self) -> Client:
        """Return a client that is patient with watches."""
        return Client(self.topology.address, patience_s=PATIENCE_S)

    async def conclude(self) -> list[Verdict]:
        """Stop everything and return what is wrong, run by run; what all share is told with the first."""
        problems = await self.topology.stop()
        engine = open_engine(self.topology)
        try:
            verdicts = [check(engine, history, self.agent.calls, self.topology.endings) for history in self.histories]
        finally:
            engine.dispose()
        verdicts[0].problems += problems
        return verdicts


@asynccontextmanager
async def drilling(
    plan: Plan, folder: Path, make: Callable[..., OneOrchestrator | Cluster], *arguments: Any, **more: Any
) -> AsyncIterator[Drill]:
    """Yield a drill whose processes are not started yet; afterwards none is left.

    Args:
        plan: What is run.
        folder: An empty one, with a short name: sockets lie in it.
        make: OneOrchestrator or Cluster.
        arguments: Its arguments after folder and embedder.
        more: Likewise.
    """
    (folder / "outer").mkdir()
    embedder = f"unix:{folder}/outer/e.sock"
    server = await serve_embedder(embedder)
    try:
        async with CountingAgent() as agent, make(folder, embedder, *arguments, **more) as topology:
            yield Drill(plan, topology, agent, folder)
    finally:
        await server.stop(0)
