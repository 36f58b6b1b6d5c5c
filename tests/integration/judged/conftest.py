"""A real orchestrator process, the real judge service, and a provider on a port that plays the judge."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.judge_specs import judge_of
from tests.support.processes.fork_server import ForkServer, Process

# Imported by the first call otherwise, of whose deadline that takes seconds on a busy machine.
import assay.providers.anthropic
import assay.providers.openai  # noqa: F401
import assay_judge.providers.anthropic_batches
import assay_judge.providers.openai_batches  # noqa: F401
from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.identity.quotas import nano_from_usd
from assay.judge.v1 import judge_pb2_grpc
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, JudgeSpec, MetricSpec, Run, RunSpec, RunState, StateChanged
from assay.rpc.server import RpcServer
from assay.testing.judges import says
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider
from assay_judge.resources import open_service
from assay_judge.service import SERVICE_NAME
from assay_judge.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RowResult

GOOD = {"reasoning": "It is right.", "score": 4}
ALL = {
    **dict.fromkeys(("allow_judges", "allow_base_urls", "allow_key_variables"), ("*",)),
    "egress_networks": None,
}
PRICES = "prices: [{model: '*', input: 1, output: 5}]"


@dataclass
class CountingAgent:
    """Answers every question with "a" and its number, and records the questions."""

    asked: list[str] = field(default_factory=list)

    def __call__(self, request: AgentRequest) -> str:
        """Answer."""
        self.asked.append(f"{request.case_id}/{request.repeat}/{request.turn_index}")
        return "a" + request.input[1:]


@dataclass
class Stage:
    """Everything that a judged run needs.

    Args:
        folder: Where all of it keeps its state.
        provider: The judge's model.
        replies: What it says, one after the other, the last again and again.
        forks: Starts orchestrators.
        agent: Under test.
    """

    folder: Path
    provider: ScriptedProvider
    replies: list[Any]
    forks: ForkServer
    agent: CountingAgent = field(default_factory=CountingAgent)
    process: Process | None = None

    def say(self, *replies: Any) -> None:
        """Change the replies of the provider from now on."""
        self.replies[:] = replies

    @asynccontextmanager
    async def judge(self, environment: Mapping[str, str] | None = None, /, **settings: Any) -> AsyncIterator[None]:
        """Serve the judge, always at the same address and with the same store."""
        (self.folder / "prices.yaml").write_text(PRICES)
        folders = {"prices": self.folder / "prices.yaml", "state_dir": self.folder / "judge"}
        own = {**folders, **ALL, "attempts": 2, "pause_s": 0.01}
        server = RpcServer()
        async with open_service(Settings(**{**own, **settings}), environment or {}, server.stopping) as service:
            server.add(SERVICE_NAME, lambda to: judge_pb2_grpc.add_JudgeServiceServicer_to_server(service, to))
            await server.start(f"unix:{self.folder}/j.sock")
            server.set_serving(True)
            try:
                yield
            finally:
                await server.stop(0)

    @asynccontextmanager
    async def orchestrator(self, *flags: str, judge: bool = True, patience_s: float = 60.0) -> AsyncIterator[Client]:
        """Run an orchestrator over the same database each time, and kill it at the end with `kill -9`.

        Args:
            flags: Further ones.
            judge: Whether it knows where the judge is.
            patience_s: How long it waits for a judge. One that is there shares its process with the test, and may take
                seconds to answer on a busy machine; a run whose judge is gone pauses after so long.
        """
        address = f"unix:{self.folder}/o.sock"
        own = ["--listen", address, "--judge-patience-s", str(patience_s)]
        own += [] if "--database-url" in flags else ["--database", str(self.folder / "assay.db")]
        own += ["--judge", f"unix:{self.folder}/j.sock"] if judge else []
        with (self.folder / "o.log").open("ab") as log:
            streams = (0, log.fileno(), log.fileno())
            self.process = self.forks.start([*own, *flags], folder=self.folder, streams=streams)
        try:
            async with Client(address, patience_s=60.0) as client:
                await client.wait_for_ready(60)
                yield client
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the orchestrator, whatever it is doing."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def who(self, others: Sequence[JudgeSpec] = (), **changes: Any) -> JudgeSpec:
        """Return the judge that the provider plays, in a jury with the models of others."""
        fields = {"model": "judge-1", "base_url": self.provider.openai_url, "timeout_s": 20.0, **changes}
        judge = judge_of(**{"provider": "openai", **fields})
        return replace(judge, members=(*judge.members, *(member for other in others for member in other.members)))

    def settings(
        self,
        *metrics: str | MetricSpec,
        judge: Any = ...,
        adapter: str = "python",
        rubric: str = "",
        rubric_yaml: str = "",
        spend_cap_usd: float | None = None,
        **changes: Any,
    ) -> RunSpec:
        """Return the settings of a run; the rubric is that of its metrics of the kind judge_score."""
        chosen = [MetricSpec(metric) if isinstance(metric, str) else metric for metric in metrics or ("quality",)]
        completed = [
            replace(metric, parameters=complete_parameters(metric.kind, metric.parameters, where=metric.name))
            for metric in chosen
        ]
        if rubric:
            completed = [
                replace(metric, rubric=rubric, rubric_yaml=rubric_yaml) if metric.kind == "judge_score" else metric
                for metric in completed
            ]
        judges = (self.who(canary_rate=0.0),) if judge is ... else () if judge is None else (judge,)
        return RunSpec(
            name="judged",
            agent=AgentSpec(adapter, "m:f" if adapter == "python" else ""),
            metrics=tuple(completed),
            **{
                "judges": judges,
                "spend_cap_nano_usd": None if spend_cap_usd is None else nano_from_usd(spend_cap_usd),
                **changes,
            },
        )

    async def create(self, client: Client, settings: RunSpec, cases: list[Case]) -> Run:
        """Start a run."""
        dataset = await client.upload_dataset(cases, name="d")
        return await client.create_run(settings, dataset.dataset_id)

    async def follow(self, client: Client, run: Run) -> Run:
        """Host the agent until the run ends or pauses; return the run."""
        async with AsyncExitStack() as stack:
            if run.spec.agent.adapter == "python":
                await stack.enter_async_context(self.hosting(client, run))
            return await self.until(client, run, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)

    @asynccontextmanager
    async def hosting(self, client: Client, run: Run) -> AsyncIterator[None]:
        """Host the agent inside the block."""
        concurrency = run.spec.agent.concurrency
        task = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(self.agent), concurrency=concurrency))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, client: Client, run: Run, *states: RunState) -> Run:
        """Wait until a run is in one of some states."""
        async for event in client.watch_run(run.run_id):
            if isinstance(event, Run | StateChanged) and event.state in states:
                found = await client.get_run(run.run_id)
                if found.state in states:
                    return found
        return await client.get_run(run.run_id)

    async def rows(self, client: Client, run: Run) -> list[RowResult]:
        """Return the rows of a run in dataset order."""
        return [row async for row in client.list_rows(run.run_id)]

    async def done(self, settings: RunSpec, cases: list[Case]) -> tuple[Run, list[RowResult]]:
        """Run to the end with a new judge and a new orchestrator."""
        async with self.judge(), self.orchestrator() as client:
            run = await self.follow(client, await self.create(client, settings, cases))
            return run, await self.rows(client, run)


def case(number: int, text: str | None = None, **fields: Any) -> Case:
    """Return a case; a text becomes its recorded answer."""
    recordings = ((AgentResponse(text=text),),) if text is not None else ()
    return Case(f"c{number}", (Turn(f"q{number}", references=(f"a{number}",)),), recordings=recordings, **fields)


@pytest.fixture
def case_of() -> Callable[..., Case]:
    """Return the function that makes cases."""
    return case


@pytest.fixture(scope="session")
def orchestrators() -> Iterator[ForkServer]:
    """Return the server that forks orchestrators."""
    server = ForkServer("assay_orchestrator")
    yield server
    server.close()


@pytest.fixture
def set_up(tmp_path: Path, orchestrators: ForkServer) -> Iterator[Callable[..., Stage]]:
    """Return a function that sets up everything with a provider that sends the given replies."""
    running: list[ScriptedProvider] = []

    def start(*replies: Any) -> Stage:
        waiting, turn = list(replies or [says(GOOD)]), threading.Lock()

        def speak(request: ProviderRequest) -> Reply:
            with turn:
                reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            return reply if isinstance(reply, Reply) else reply(request)

        provider = ScriptedProvider(speak)
        provider.__enter__()
        running.append(provider)
        return Stage(tmp_path, provider, waiting, orchestrators)

    yield start
    for provider in running:
        provider.__exit__(None, None, None)
