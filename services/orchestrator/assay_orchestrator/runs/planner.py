"""Builds the context of a stored run from its settings: the agent, the metrics, and the clients for their evidence."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from assay.errors import InvalidInputError, Problem, SpecError, WrongStateError
from assay.metrics import build_metric
from assay.model.run_spec import HOSTED
from assay.model.scope import LOCAL
from assay.parsing.secret_references import SCHEME, parse_path
from assay.specs.grpc_options import target_host
from assay.specs.judging import JudgePlace
from assay.specs.model import asks_judge, checks_of, needed_embeddings, wants_verdicts
from assay_orchestrator.agents import agent_problems, build_agent
from assay_orchestrator.agents.destinations import judge_address
from assay_orchestrator.agents.hosted import HostedAgent
from assay_orchestrator.agents.http_hosts import check_host
from assay_orchestrator.agents.secrets import binding_problems
from assay_orchestrator.instruments import ObservedRun
from assay_orchestrator.pipeline.function_metrics import function_metrics
from assay_orchestrator.pipeline.run_context import RunContext
from assay_orchestrator.pipeline.turns import Turns
from assay_orchestrator.scorers.pool import ScorerPool
from assay_orchestrator.scorers.row_scorer import RowScorer
from assay_orchestrator.store.rows.stops import StopLook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.embedder.v1.embedder_pb2_grpc import EmbedderServiceAsyncStub
    from assay.errors import Problem
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.score import Metric
    from assay.model.run import AgentSpec, JudgeModel, JudgeSpec, Run, RunSpec, RunSummary
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.budgets.run_budget import RunBudget
    from assay_orchestrator.evidence.embedding_client import EmbeddingClient
    from assay_orchestrator.evidence.run_judges import RunJudges
    from assay_orchestrator.settings import Settings

_KEY_PLACE = "of the judge service, or a variable with --secret-variables"


def agent_key(agent: AgentSpec, limits: Mapping[str, int]) -> str:
    """Return the key under which an agent has a limit, its whole target or its host; empty without a limit."""
    host = urlsplit(agent.target).hostname or "" if "://" in agent.target else ""
    if agent.adapter == "grpc":
        host = target_host(agent.target)
    return next((key for key in (agent.target, host) if key and key in limits), "")


class Planner:
    """Builds what runs need; owns the scorers, and the brokers of hosted agents.

    Args:
        settings: How long to retry embedder and judge.
        embedder: The embedder; None without one.
        judge: The judge service; None without one.
    """

    def __init__(
        self,
        settings: Settings,
        embedder: EmbedderServiceAsyncStub | None,
        judge: JudgeServiceAsyncStub | None = None,
    ) -> None:
        self._settings = settings
        self._embedder = embedder
        self._judge = judge
        self._hosted: dict[str, HostedAgent] = {}
        self._scorers = ScorerPool(settings.scoring)
        self._turns = Turns()
        self._group_embedders: WeakValueDictionary[tuple[str, str, EmbeddingSettings], EmbeddingClient] = (
            WeakValueDictionary()
        )

    def context_of(
        self, run: Run, access: AgentAccess, budget: RunBudget, *, scope: str = "", pause_count: int = 0
    ) -> RunContext:
        """Return the context of a run's shards.

        Args:
            run: The run.
            access: What its agent may reach and be sent.
            budget: The run's share of its team's money and tokens.
            scope: The name by which the embedder and the judge know the team; empty without identities.
            pause_count: How many times the run was paused before.

        Raises:
            InvalidInputError: The agent may not be called, or not be sent the secrets in its settings.
            WrongStateError: The run needs an embedder or a judge, and this orchestrator has none.
        """
        settings = run.spec
        self.check_access(settings, access)
        pausing = asyncio.Event()
        budget.pausing = pausing
        budget.is_metered = settings.agent.fills_prompt
        host = self.hosted_agent(run.run_id) if settings.needs_host else None
        metrics = [build_metric(metric) for metric in settings.metrics]
        embeddings = {metric.embedding for metric in metrics if metric.embedding is not None}
        # Only the cases reveal whether their checks need a model; without an embedder such a check is skipped.
        for_all = [metric for metric in metrics if metric.embedding and not hasattr(metric, "compared_texts")]
        if for_all and self._embedder is None:
            raise WrongStateError(
                "the run's metrics need an embedder and this orchestrator has none: start it with --embedder ADDRESS",
                reason="NO_EMBEDDER",
            )
        return RunContext(
            run_id=run.run_id,
            case_count=run.dataset.case_count,
            repeats=settings.repeats,
            concurrency=settings.agent.concurrency,
            timeout_s=settings.agent.timeout_s,
            agent=build_agent(
                settings.agent,
                access,
                hosted=host if settings.agent.is_hosted else None,
                pausing=pausing,
                scorers=self._scorers,
                has_answers=run.counts.finished_count > run.counts.agent_error_count - run.counts.interrupted_count,
                budget=budget,
            ),
            pausing=pausing,
            max_attempts=self._settings.row_try_limit,
            turns=self._turns,
            turn_score=settings.turns,
            is_replay=settings.agent.adapter == "replay",
            source_run_id=settings.source_run_id,
            metrics=metrics,
            scorer=RowScorer(self._scorers, run.run_id, settings.metrics, metrics),
            embedders=self._embedders(settings, embeddings, scope),
            judge=self._run_judges(run, metrics, access.team, pausing, scope, pause_count, budget),
            optional=frozenset(metric.name for metric in settings.metrics if metric.is_optional),
            functions=function_metrics(host, metrics) if host is not None else None,
            host=host,
            stop_look=StopLook(run.run_id, settings) if settings.stopping is not None else None,
            team=settings.team or LOCAL.team,
            observed=ObservedRun(
                settings.team or LOCAL.team, HOSTED if settings.agent.is_hosted else settings.agent.adapter
            ),
            budget=budget,
            approvals=settings.approvals,
        )

    async def aclose(self) -> None:
        """End the scorers."""
        await self._scorers.aclose()

    def check_access(self, settings: RunSpec, access: AgentAccess) -> None:
        """Raise unless the agent and the judges of a run may be called and be sent their secrets.

        Raises:
            SpecError: A call or a secret is not allowed; contains every problem.
        """
        problems = check_host(settings.agent, access) + binding_problems(settings.agent, access)
        problems += judge_key_problems(settings.judges, access)
        if problems:
            raise SpecError(problems)

    async def agent_problems(self, settings: RunSpec, access: AgentAccess) -> Sequence[Problem]:
        """Return why a run's agent cannot be called; if workers call it, as far as this process knows."""
        if self._settings.role == "api":
            return binding_problems(settings.agent, access)
        try:
            return await agent_problems(settings.agent, access)
        except InvalidInputError as refusal:
            return refusal.problems

    async def embedder_problems(self, settings: RunSpec, scope: str) -> Sequence[Problem]:
        """Return why the embedder will not serve a run's models, as far as it can be asked in a team's name."""
        embeddings = needed_embeddings(settings.metrics, checks_of(settings) or ())
        if self._embedder is None or not embeddings:
            return ()
        from assay_orchestrator.runs.embedder_preflight import (
            embedder_problems,
        )  # imported here: most runs need no embedder

        return await embedder_problems(self._embedder, embeddings, scope or settings.team or LOCAL.team)

    async def judge_problems(self, settings: RunSpec, access: AgentAccess) -> Sequence[Problem]:
        """Return why the judge service will not judge for a run, as far as it can be asked."""
        if self._judge is None or not asks_judge(settings, checks_of(settings)):
            return ()
        from assay_orchestrator.runs.judge_service import judge_problems  # imported here: most runs are not judged

        problems = judge_key_problems(settings.judges, access)
        return problems or await judge_problems(self._judge, with_team(settings, access.team))

    async def with_judge_account(self, run: Run, summary: RunSummary, *, team: str, scope: str) -> RunSummary:
        """Return the summary of a judged run with its judge's account, as far as the judge can be asked."""
        asked = [judge for judge in with_team(run.spec, team).judges if not judge.recorded_file]
        judging = summary.judging
        if self._judge is None or not asked or judging is None:
            return summary
        from assay_orchestrator.runs.judge_service import with_account  # imported here: most runs are not judged

        member = asked[0].members[0]  # all judges of a run share its account
        judging = await with_account(self._judge, judging, judge=member, run_id=run.run_id, scope=scope)
        return dataclasses.replace(summary, judging=judging)

    def _run_judges(
        self,
        run: Run,
        metrics: Sequence[Metric],
        team: str,
        pausing: asyncio.Event,
        scope: str,
        pause_count: int,
        budget: RunBudget,
    ) -> RunJudges | None:
        spec = run.spec
        if not spec.judges or not wants_verdicts(spec.metrics, checks_of(spec)):
            return None
        if self._judge is None and asks_judge(spec, checks_of(spec)):
            raise WrongStateError(
                "the run's metrics need a judge and this orchestrator has none: start it with --judge ADDRESS",
                reason="NO_JUDGE",
            )
        from assay_orchestrator.evidence.judge_client import RunAccount  # as above
        from assay_orchestrator.evidence.run_judges import RunJudges
        from assay_orchestrator.evidence.verdict_wire import MetricRubric

        patience_s = self._settings.judge_patience_s
        account = RunAccount(
            run.run_id, scope, budget, spec.spend_cap_nano_usd,
            needs_spec=bool(spec.functions), is_hosted=spec.needs_host,
        )  # fmt: skip
        rubrics = {
            name: MetricRubric.of(metric_spec, default)
            for metric, metric_spec in zip(metrics, spec.metrics, strict=True)
            if (name := getattr(metric, "rubric", "")) and (default := getattr(metric, "default_rubric", ""))
        }
        judges = with_team(spec, team).judges
        return RunJudges(
            self._judge, judges, rubrics, account, ask_round=pause_count, patience_s=patience_s, pausing=pausing
        )

    def _embedders(
        self, settings: RunSpec, embeddings: Iterable[EmbeddingSettings], scope: str
    ) -> dict[EmbeddingSettings, EmbeddingClient]:
        if self._embedder is None:
            return {}
        own = scope or settings.team or LOCAL.team
        return {
            embedding: self._embedder_of(self._embedder, own, settings.group_id, embedding) for embedding in embeddings
        }

    def _embedder_of(
        self, stub: EmbedderServiceAsyncStub, scope: str, group_id: str, embedding: EmbeddingSettings
    ) -> EmbeddingClient:
        """Return a run's client for a model, shared within its group, whose runs have many texts in common."""
        # Imported here: most runs need no embedder.
        from assay_orchestrator.evidence.embedding_client import EmbeddingClient

        key = (scope, group_id, embedding)
        shared = self._group_embedders.get(key) if group_id else None
        if shared is not None and shared.join():
            return shared
        client = EmbeddingClient(stub, embedding, patience_s=self._settings.embedder_patience_s, scope=scope)
        if group_id:
            self._group_embedders[key] = client
        return client

    def hosted_agent(self, run_id: str) -> HostedAgent:
        """Return the broker between a run and the clients that answer its questions."""
        return self._hosted.setdefault(run_id, HostedAgent())

    @property
    def hosted(self) -> list[str]:
        """The runs that clients are, or were, attached to for answering questions."""
        return list(self._hosted)

    def attended(self) -> list[str]:
        """Return the runs whose questions attached clients answer here."""
        return [run_id for run_id, agent in self._hosted.items() if agent.is_attended]

    def is_unattended(self, run_id: str) -> bool:
        """Return whether no client answers a run's questions any more."""
        return run_id in self._hosted and not self._hosted[run_id].is_attended

    def retire(self, run_id: str) -> None:
        """Drop the broker of a run without clients here; a client that attaches later gets a new broker."""
        self._hosted.pop(run_id).hold()

    def hold(self, run_id: str) -> None:
        """Withhold a run's questions from its clients: the run is about to pause."""
        if run_id in self._hosted:
            self._hosted[run_id].hold()

    def release(self, run_id: str) -> None:
        """Give a run's questions to its clients again: the run does not pause after all."""
        if run_id in self._hosted:
            self._hosted[run_id].release()

    def forget(self, run_id: str, message: str) -> None:
        """Detach the clients of a run that asks no more questions."""
        hosted = self._hosted.pop(run_id, None)
        if hosted is not None:
            hosted.detach_all(message)


def judge_key_problems(judges: Sequence[JudgeSpec], access: AgentAccess) -> list[Problem]:
    """Return why the secrets used as judge keys may not be sent to the judges, as far as this process knows."""
    problems = []
    for index, judge in enumerate(judges):
        for member, where in zip(judge.members, JudgePlace.in_request(judge, index).members, strict=True):
            reference = parse_path(member.key_variable.removeprefix(SCHEME)) if _is_secret(member) else None
            if reference is not None and (
                problem := access.secret_problem(reference, judge_address(member), _KEY_PLACE)
            ):
                problems.append(Problem(problem, f"{where}.key_variable"))
    return problems


def with_team(spec: RunSpec, team: str) -> RunSpec:
    """Return a run's settings for requests to its judges, whose secrets then name the team."""
    judges = [
        dataclasses.replace(judge, members=tuple(_with_team(member, team) for member in judge.members))
        for judge in spec.judges
    ]
    return dataclasses.replace(spec, judges=tuple(judges))


def _with_team(member: JudgeModel, team: str) -> JudgeModel:
    reference = parse_path(member.key_variable.removeprefix(SCHEME)) if _is_secret(member) else None
    return member if reference is None else dataclasses.replace(member, key_variable=str(reference.of(team)))


def _is_secret(judge: JudgeModel) -> bool:
    return judge.key_variable.startswith(SCHEME)
