"""Observing runs of pydantic-ai: the agent's own run and those that its tools start."""

from __future__ import annotations

import dataclasses
import time
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.usage import RunUsage

from assay.agent_host.frameworks.answers import json_of
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall, Usage
from assay.model.answers.approvals import ScriptedApprovals
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from assay.model.answers.approvals import Decision

_CALLS = ("tool-call", "builtin-tool-call")
_RETURNS = ("tool-return", "builtin-tool-return")
_BAD_OUTCOMES = ("failed", "retried", "denied", "interrupted")
_SUMS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "output_reasoning_tokens",
         "requests", "unmeasured_requests")  # fmt: skip


class WaitsForPersonError(Exception):
    """A run stopped at calls without an approval, and its output types cannot express them.

    Args:
        interrupts: The waiting calls.
    """

    def __init__(self, interrupts: Sequence[Interrupt]) -> None:
        super().__init__("the agent waits for a person")
        self.interrupts = interrupts


class Watch:
    """All runs during a question.

    Args:
        approvals: The scripted decisions.
    """

    def __init__(self, approvals: ScriptedApprovals) -> None:
        self.approvals = approvals
        self._runs: list[_Run] = []
        self._usages: dict[int, tuple[RunUsage, RunUsage]] = {}
        self.edited: dict[tuple[str, str], Any] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observe the runs started in the block, in its tasks and threads too."""
        token = _watch.set(self)
        try:
            yield
        finally:
            _watch.reset(token)

    def add(self, run: _Run, usage: RunUsage) -> None:
        """Add a run under the tool call that started it, and its usage object.

        A run that was passed another run's usage counts into it (`usage=context.usage`), so each object is added once.
        Its earlier content is not counted: it may belong to other questions.
        """
        self._usages.setdefault(id(usage), (usage, copy(usage)))
        place = _place.get()
        if place is not None and self.is_nested:
            place[0].children.setdefault(place[1], []).append(run)
        else:
            self._runs.append(run)

    @property
    def is_nested(self) -> bool:
        """Whether the current code was called by a tool of one of these runs."""
        place = _place.get()
        return place is not None and place[0].watch is self

    def trace(self) -> AgentResponse:
        """Return the trace so far, without the text."""
        responses = [message for run in self._runs for message in run.messages() if isinstance(message, ModelResponse)]
        last = responses[-1] if responses else None
        return AgentResponse(
            tool_calls=tuple(_calls(self._runs, self.edited)),
            sources=_citations(part for response in responses for part in response.parts),
            usage=self._usage(),
            model=(last.model_name or "") if last else "",
            finish_reason=(last.finish_reason or "") if last else "",
            interrupts=self.approvals.interrupts,
        )

    def _usage(self) -> Usage | None:
        """Return the tokens of all runs, inclusive like Assay's counts; 0 stands for an unknown count."""
        if not self._usages:
            return None
        pairs = self._usages.values()
        sums = {name: sum(getattr(now, name) - getattr(before, name) for now, before in pairs) for name in _SUMS}
        if sums["unmeasured_requests"] or not sums["input_tokens"] + sums["output_tokens"]:
            return Usage(requests=sums["requests"])
        thoughts = sums["output_reasoning_tokens"] or sum(
            (now.details.get("reasoning_tokens") or 0) - (before.details.get("reasoning_tokens") or 0)
            for now, before in pairs
        )
        costs = [(now.cost, before.cost or 0) for now, before in pairs if now.requests > before.requests]
        known = [float(now - before) for now, before in costs if now is not None]
        return Usage(
            input_tokens=sums["input_tokens"],
            output_tokens=sums["output_tokens"],
            total_tokens=sums["input_tokens"] + sums["output_tokens"],
            cache_read_tokens=sums["cache_read_tokens"] or None,
            cache_write_tokens=sums["cache_write_tokens"] or None,
            reasoning_tokens=thoughts or None,
            requests=sums["requests"],
            cost_usd=sum(known) if known and len(known) == len(costs) else None,
        )


_watch: ContextVar[Watch | None] = ContextVar("assay_pydantic_ai_watch", default=None)
_place: ContextVar[tuple[_Run, str] | None] = ContextVar("assay_pydantic_ai_place", default=None)
"""The run and the tool call that the current code belongs to."""


def watch_nested_runs() -> None:
    """Make every agent's run add itself to the watch of its question.

    A run knows only its own capabilities, and pydantic-ai has no hook for runs started by a tool's code.
    """
    original = Agent.iter
    if getattr(original, "is_watched", False):
        return

    @asynccontextmanager
    async def watched(agent: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        watch = _watch.get()
        run = None
        if watch is not None:
            run = _Run(watch)
            options["capabilities"] = [*(options.get("capabilities") or ()), run]
        async with original(agent, *args, **options) as agent_run:
            if watch is not None and run is not None:
                run.agent_run = agent_run
                watch.add(run, agent_run.ctx.state.usage)
            yield agent_run

    watched.is_watched = True  # type: ignore[attr-defined]
    Agent.iter = watched


@dataclasses.dataclass(slots=True)
class _Execution:
    """A tool execution.

    Args:
        duration_ms: Its duration; None while it runs.
        result_json: Its result, or its exception as a text; empty while it runs.
        is_error: Whether it raised.
    """

    duration_ms: float | None = None
    result_json: str = ""
    is_error: bool = False


class _Run(AbstractCapability[Any]):  # type: ignore[misc]  # pydantic-ai is not installed where types are checked
    """A run of an agent: its messages, its tools, and the runs that these started."""

    _safe_at_runtime = True
    """Like pydantic-ai's own `Instrumentation`, because durable runs accept no other added capability."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.agent_run: Any = None
        self.output_tools: set[str] = set()
        self.children: dict[str, list[_Run]] = {}
        self.executions: dict[str, list[_Execution]] = {}
        self._noted: dict[int, Any] = {}

    def messages(self) -> list[Any]:
        """Return the run's messages, including those that a history processor has since removed."""
        live = self._live()
        kept = set(map(_key, live))
        return [*(message for message in self._noted.values() if _key(message) not in kept), *live]

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        self._noted |= {id(message): message for message in self._live()}
        self.output_tools |= {tool.name for tool in request_context.model_request_parameters.output_tools}
        return await handler(request_context)

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        execution = _Execution()
        executions = self.executions.setdefault(call.tool_call_id, [])
        executions.append(execution)
        token = _place.set((self, call.tool_call_id))
        start = time.perf_counter()
        try:
            result = await handler(args)
        except (ApprovalRequired, CallDeferred, WaitsForPersonError):
            executions.remove(execution)
            raise
        except Exception as problem:
            execution.result_json, execution.is_error = json_of(f"{type(problem).__name__}: {problem}"), True
            raise
        else:
            execution.result_json = json_of(getattr(result, "return_value", result))
            return result
        finally:
            _place.reset(token)
            execution.duration_ms = (time.perf_counter() - start) * 1000

    async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> Any:
        """Decide calls that wait for a person, if the run cannot end with them or was started by a tool."""
        can_end = self.agent_run.ctx.deps.output_schema.allows_deferred_tools
        if can_end and not self.watch.is_nested:
            return None
        interrupts = interrupts_of(requests)
        approvals = self.watch.approvals
        trial = ScriptedApprovals(approvals.remaining())
        if all(trial.decide(interrupt) for interrupt in interrupts):
            decisions = [(interrupt, approvals.decide(interrupt)) for interrupt in interrupts]
            return results_of(decisions, self.watch.edited)
        if can_end:
            return None
        raise WaitsForPersonError(interrupts)

    def _live(self) -> list[Any]:
        run = self.agent_run
        return [] if run is None else [message for message in run.all_messages() if message.run_id == run.run_id]


def interrupts_of(requests: Any) -> list[Interrupt]:
    """Return the waiting calls: approvals first, then external calls."""
    kind_of = getattr(requests, "kind", lambda _: "external")  # 2.61 has no questions
    kinds = [
        *((InterruptKind.APPROVAL, call) for call in requests.approvals),
        *(
            (InterruptKind.INPUT if kind_of(call.tool_call_id) == "question" else InterruptKind.CALL, call)
            for call in requests.calls
        ),
    ]
    return [Interrupt(call.tool_call_id, kind, call.tool_name, json_of(call.args or {})) for kind, call in kinds]


def results_of(
    decisions: Iterable[tuple[Interrupt, Decision | None]], edited: dict[tuple[str, str], Any]
) -> DeferredToolResults:
    """Return decisions in pydantic-ai's form.

    Args:
        decisions: The decision on each waiting call.
        edited: Receives the arguments that replace the model's, by tool and id.
    """
    results = DeferredToolResults()
    for interrupt, decision in decisions:
        if decision is None:
            continue
        if interrupt.kind is not InterruptKind.APPROVAL:
            results.calls[interrupt.id] = decision.answer
        elif decision.kind is DecisionKind.DENY:
            results.approvals[interrupt.id] = ToolDenied(decision.reason) if decision.reason else ToolDenied()
        else:
            if decision.kind is DecisionKind.EDIT:
                edited[interrupt.tool, interrupt.id] = decision.arguments
            results.approvals[interrupt.id] = ToolApproved(override_args=decision.arguments)
    return results


def _key(message: Any) -> tuple[Any, ...]:
    """Return a key that a message shares with copies changed by a processor."""
    return (message.timestamp, *(part.tool_call_id for part in message.parts if hasattr(part, "tool_call_id")))


def _calls(runs: Iterable[_Run], edited: Mapping[tuple[str, str], Any]) -> Iterator[ToolCall]:
    """Yield the calls of each reply, followed by those of the runs that they started.

    Args:
        runs: Sibling runs; one may continue another and then has the results of its calls.
        edited: Arguments that replaced the model's, by tool and id.
    """
    siblings = [_Outcomes(run) for run in runs]
    for outcomes in siblings:
        ordered = [outcomes, *(other for other in siblings if other is not outcomes)]
        for message in outcomes.run.messages():
            calls = [part for part in message.parts if part.part_kind in _CALLS]
            for call in calls:
                if call.tool_name not in outcomes.run.output_tools:
                    arguments = edited.get((call.tool_name, call.tool_call_id), call.args)
                    returned, execution = (
                        next(filter(None, (sibling.take(kind, call, outcomes) for sibling in ordered)), None)
                        for kind in ("returns", "executions")
                    )
                    yield _tool_call(call, arguments, returned, execution)
            for call in calls:
                yield from _calls((run for sibling in ordered for run in sibling.take_children(call, outcomes)), edited)


class _Outcomes:
    """The outcomes of a run's calls: results, executions and nested runs, by call id."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        parts = [part for message in run.messages() for part in message.parts]
        self._own = {part.tool_call_id for part in parts if part.part_kind in _CALLS}
        returns: dict[str, list[Any]] = {}
        for part in parts:
            if part.part_kind in _RETURNS:
                returns.setdefault(part.tool_call_id, []).append(part)
        executions = {call_id: list(started) for call_id, started in run.executions.items()}
        self._waiting: dict[str, dict[str, list[Any]]] = {"returns": returns, "executions": executions}
        self._children = dict(run.children)

    def take(self, kind: str, call: Any, asking: _Outcomes) -> Any:
        """Return a call's next result or execution, each once, because ids may repeat; None if there is none left."""
        waiting = self._waiting[kind].get(call.tool_call_id)
        return waiting.pop(0) if waiting and self._has(call, asking) else None

    def take_children(self, call: Any, asking: _Outcomes) -> list[_Run]:
        """Return the runs that a call started."""
        return self._children.pop(call.tool_call_id, []) if self._has(call, asking) else []

    def _has(self, call: Any, asking: _Outcomes) -> bool:
        # This run has outcomes of calls that only the other run made.
        return self is asking or call.tool_call_id not in self._own


def _tool_call(call: Any, arguments: Any, returned: Any, execution: _Execution | None) -> ToolCall:
    tool_call = ToolCall(name=call.tool_name, id=call.tool_call_id, arguments_json=json_of(arguments or {}))
    if execution is not None:
        tool_call = dataclasses.replace(
            tool_call,
            duration_ms=execution.duration_ms,
            result_json=execution.result_json,
            is_error=execution.is_error,
        )
    if returned is None:
        return tool_call
    return dataclasses.replace(
        tool_call, result_json=json_of(returned.content), is_error=returned.outcome in _BAD_OUTCOMES
    )


def _citations(parts: Iterable[Any]) -> tuple[Source, ...]:
    """Return the sources that a provider's model cited, in text order without repeats."""
    sources: dict[str, Source] = {}
    for part in parts:
        for citation in getattr(part, "citations", None) or ():
            for cited in citation.sources:
                source = Source(
                    id=getattr(cited, "document_id", None) or "",
                    title=cited.title or "",
                    uri=getattr(cited, "url", None) or "",
                    content="\n".join(cited.excerpts),
                )
                sources.setdefault(source.uri or source.id or source.title or source.content, source)
    return tuple(sources.values())
