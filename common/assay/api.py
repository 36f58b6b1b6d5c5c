"""The Python API: `assay.evaluate`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.client import Client
from assay.dataset_warnings import warn_of_dataset
from assay.datasets import Dataset, open_dataset, records_dataset
from assay.errors import AssayError, SpecError
from assay.evaluation import check_inputs, drive_run, start_run, wait_for_stack
from assay.hosting.calling import AgentCaller
from assay.hosting.loading import load_agent
from assay.local.home import Home
from assay.local.stack import LocalStack, environment_for
from assay.results import CaseResult, CaseSelection, Run, RunSummary, StateChange
from assay.run_references import failed_cases, find_run_id
from assay.run_verdict import VerdictStatus, run_verdict
from assay.spec.loading import load_spec, spec_from_mapping
from assay.spec.model import Spec

__all__ = ["Evaluation", "evaluate", "evaluate_async"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation came to.

    Args:
        run: The run, finished.
        rows: One per case and repeat, in dataset order, with their answers.
    """

    run: Run
    rows: tuple[CaseResult, ...]

    @property
    def summary(self) -> RunSummary:
        """The run's summary."""
        assert self.run.summary is not None, "evaluate returns finished runs only"
        return self.run.summary

    @property
    def verdict(self) -> VerdictStatus:
        """The verdict in one word: "PASS", "FAIL", "INCOMPLETE", "NO_CRITERIA" or "NO_DATA"."""
        return run_verdict(self.summary).status

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is what it is, as sentences."""
        return run_verdict(self.summary).reasons

    @property
    def passed(self) -> bool:
        """Whether a gate or a threshold was computed, and all of them hold."""
        return self.verdict is VerdictStatus.PASS

    @property
    def exit_status(self) -> int:
        """The exit status of `assay run` with this verdict: 0, 1 or 3."""
        return self.verdict.exit_status

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame, one column per metric; needs pandas."""
        import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an optional package

        return pd.DataFrame(
            {
                "case_id": row.case_id,
                "repeat": row.repeat_index,
                "category": row.category,
                "status": row.status.value,
                "passed": row.passed,
                "reason": row.reason,
                "question": row.input,
                "answer": row.response.text if row.response is not None else None,
                "latency_ms": row.latency_ms,
                **{score.metric: score.value for score in row.scores},
            }
            for row in self.rows
        )


def evaluate(
    spec: str | Path | Mapping[str, Any],
    agent: Callable[..., Any] | None = None,
    *,
    dataset: str | Path | Iterable[Mapping[str, Any]] | None = None,
    select: CaseSelection | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChange | CaseResult], None] | None = None,
) -> Evaluation:
    """Run an evaluation and return its summary and rows.

    Args:
        spec: The file of a spec, or a mapping in the shape of one.
        agent: A function of one request, or of its text, called in this process in place of the spec's agent.
        dataset: A file, or cases as mappings, in place of the spec's dataset.
        select: Which cases of the dataset to run; None for all of them.
        server: An orchestrator's address; None for the local stack.
        on_event: Called with every snapshot and event as it comes.

    Raises:
        InvalidInputError: The spec, the dataset or the agent is wrong; holds every problem.
        AssayError: The run did not finish; the message says how it stands.

    Warns:
        DatasetWarning: Something about the dataset is odd.

    Example:
        >>> result = evaluate({"metrics": ["exact_match"]}, agent=str, dataset=cases)  # doctest: +SKIP
        >>> result.summary.pass_rate  # doctest: +SKIP
    """
    return asyncio.run(evaluate_async(spec, agent, dataset=dataset, select=select, server=server, on_event=on_event))


async def evaluate_async(
    spec: str | Path | Mapping[str, Any],
    agent: Callable[..., Any] | None = None,
    *,
    dataset: str | Path | Iterable[Mapping[str, Any]] | None = None,
    select: CaseSelection | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChange | CaseResult], None] | None = None,
) -> Evaluation:
    """Do what `evaluate` does, inside a running event loop."""
    checked = _spec(spec, agent, dataset, (environment_for(server), environment_for(server, "judge")))
    selection, failed = select or CaseSelection(), frozenset[str]()
    if selection.failed_of:
        async with _connected(server) as (client, _):
            run_id = await find_run_id(client, selection.failed_of)
            selection, failed = replace(selection, failed_of=run_id), await failed_cases(client, run_id)
    cases = _dataset(checked, dataset, selection, failed)
    info = check_inputs(checked, cases)
    warn_of_dataset(info)
    caller = _caller(checked, agent)
    judge_keys = checked.judge_keys if checked.needs_judge else None
    async with _connected(server, checked.embedding_models(info.checks), judge_keys) as (client, stack):
        run = await start_run(client, checked, cases, info)
        run = await drive_run(client, run, caller, on_event or _ignore, stack)
        if run.summary is None:
            raise AssayError(f"run {run.run_id} {run.state.value}: {run.state_reason}", reason="RUN_UNFINISHED")
        return Evaluation(run, tuple([row async for row in client.list_results(run.run_id)]))


@asynccontextmanager
async def _connected(
    server: str | None, models: Sequence[str] = (), judge_keys: Sequence[str] | None = None
) -> AsyncIterator[tuple[Client, LocalStack | None]]:
    """Connect to a server, or to a local stack with what is needed, which is stopped after."""
    stack = None if server is not None else LocalStack(Home.open())
    if stack is not None:
        stack.start(models=models, judge=judge_keys is not None, judge_keys=judge_keys or ())
    try:
        async with Client(server or (stack.address if stack is not None else "")) as client:
            await wait_for_stack(client, stack)
            yield client, stack
    finally:
        if stack is not None:
            await asyncio.shield(stack.wait_until_stopped())


def _spec(
    spec: str | Path | Mapping[str, Any],
    agent: object,
    dataset: object,
    environs: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
) -> Spec:
    environ, judge_environ = environs
    file = Path(dataset) if isinstance(dataset, str | Path) else None
    if isinstance(spec, str | Path):
        overrides = ["agent={adapter: python, target: 'caller:agent'}"] if agent is not None else []
        return load_spec(Path(spec), overrides=overrides, dataset=file, environ=environ, judge_environ=judge_environ)
    data = dict(spec)
    if agent is not None:
        data["agent"] = {**data.get("agent", {}), "adapter": "python", "target": "caller:agent"}
    return spec_from_mapping(
        data, dataset=file, needs_dataset=dataset is None, environ=environ, judge_environ=judge_environ
    )


def _dataset(
    spec: Spec,
    dataset: str | Path | Iterable[Mapping[str, Any]] | None,
    selection: CaseSelection,
    failed: Collection[str],
) -> Dataset:
    if dataset is not None and not isinstance(dataset, str | Path):
        return records_dataset(
            dataset,
            selection=selection,
            failed_cases=failed,
            on_bad_case=spec.on_bad_case,
            format=spec.dataset_format,
        )
    if spec.dataset is None:
        raise SpecError("name a dataset in the spec, or pass one")
    return open_dataset(
        spec.dataset,
        field_map=spec.dataset_map,
        encoding=spec.dataset_encoding,
        selection=selection,
        failed_cases=failed,
        on_bad_case=spec.on_bad_case,
        format=spec.dataset_format,
    )


def _caller(spec: Spec, agent: Callable[..., Any] | None) -> AgentCaller | None:
    if agent is not None:
        return AgentCaller(agent)
    settings = spec.settings.agent
    return AgentCaller(load_agent(settings.target, spec.base_dir)) if settings.adapter == "python" else None


def _ignore(event: Run | StateChange | CaseResult) -> None:
    """Take an event and do nothing."""
