"""Observing runs of the OpenAI Agents SDK: the agent's own run and those that its tools start."""

from __future__ import annotations

import dataclasses
import inspect
import json
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from agents import Agent, Handoff, RunConfig, RunHooks, RunState
from agents.memory.session import SessionABC
from agents.models import get_default_model
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool import (
    FunctionTool,
    default_tool_error_function,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from assay.agent_host.frameworks.answers import json_of
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall, Usage
from assay.providers.hosted_tools import response_calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

_TOOL_FAILED = "An error occurred while running the tool"
"""The beginning of the SDK's reply to the model when a tool without `failure_error_function` raised."""
_TOOL_LATE = "Tool '{}' timed out after"
"""The same for a tool that exceeded its `timeout_seconds` without a `timeout_error_function`."""
_CALL = "_assay_call"
"""The attribute of a tool's context that has the call, if the SDK passes nothing else."""

_watch: ContextVar[Watch | None] = ContextVar("assay_openai_agents_watch", default=None)


class Watch:
    """All runs during a question.

    Args:
        prepare: Called with each agent before it runs.
        is_tracing: Whether the SDK's tracing may be on.
        sessions: The sessions of agents used as tools in earlier turns, by the ids of their originals.
    """

    def __init__(
        self,
        prepare: Callable[[Agent[Any]], Awaitable[None]],
        *,
        is_tracing: bool,
        sessions: Mapping[int, CopiedSession],
    ) -> None:
        self.prepare = prepare
        self.is_tracing = is_tracing
        self.sessions = {key: session.copied() for key, session in sessions.items()}
        self.edited: dict[str, str] = {}
        self._runs: list[Run] = []
        self._items: list[tuple[Run, Any]] = []
        self._usages: list[Any] = []
        self._model = ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observe the runs started in the block, in its tasks and threads too."""
        token = _watch.set(self)
        try:
            yield
        finally:
            _watch.reset(token)

    def start(self, agent: Agent[Any], state: object, hooks: RunHooks[Any] | None) -> Run:
        """Return a new run, or the continuation of a stopped one.

        Args:
            agent: The run's first agent.
            state: The run's input.
            hooks: The user's hooks; for a continuation, the earlier run's.
        """
        run = hooks if isinstance(hooks, Run) else None
        if run is None and isinstance(state, RunState):
            waits = {call_id_of(item) for item in state.get_interruptions()}
            run = next(
                (stopped for stopped in self._runs if stopped.agent is agent and stopped.stopped_at() == waits),
                None,
            )
        if run is None:
            run = Run(self, agent, hooks)
            self._runs.append(run)
        run.has_ended = False
        return run

    def add(self, run: Run, response: Any) -> None:
        """Add a model's reply with its tool calls and tokens."""
        self._items += [(run, item) for item in response.output]
        self._usages.append(response.usage)

    def choose_model(self, agent: Agent[Any]) -> None:
        """Remember the model of the last call."""
        model = agent.model or get_default_model()
        self._model = model if isinstance(model, str) else str(getattr(model, "model", ""))

    def trace(self) -> AgentResponse:
        """Return the trace so far, without the text."""
        return AgentResponse(
            tool_calls=tuple(call for run, item in self._items for call in run.calls(item)),
            sources=_sources(item for _, item in self._items),
            usage=self._usage(),
            model=self._model,
        )

    def _usage(self) -> Usage | None:
        """Return the tokens of all runs, inclusive like Assay's counts; 0 stands for an unknown count."""
        usages = self._usages
        if not usages:
            return None
        totals = [usage.total_tokens or usage.input_tokens + usage.output_tokens for usage in usages]
        requests = sum(max(usage.requests, 1) for usage in usages)
        if not all(totals):
            return Usage(requests=requests)
        return Usage(
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            total_tokens=sum(totals),
            cache_read_tokens=sum(usage.input_tokens_details.cached_tokens or 0 for usage in usages) or None,
            cache_write_tokens=sum(usage.input_tokens_details.cache_write_tokens or 0 for usage in usages) or None,
            reasoning_tokens=sum(usage.output_tokens_details.reasoning_tokens or 0 for usage in usages) or None,
            requests=requests,
        )


@dataclasses.dataclass(slots=True)
class _Executed:
    """A tool call that the SDK ran; `edited` are the arguments that replaced the model's."""

    start: float
    duration_ms: float | None = None
    result: Any = None
    is_error: bool = False
    edited: str = ""


class Run(RunHooks[Any]):  # type: ignore[misc]  # the SDK is not installed where types are checked
    """A run: its hooks, and the results of its tools.

    Args:
        watch: The watch it belongs to.
        agent: The run's first agent.
        hooks: The user's hooks, called after these.
    """

    def __init__(self, watch: Watch, agent: Agent[Any], hooks: RunHooks[Any] | None) -> None:
        self.agent = agent
        self._watch = watch
        self._hooks: RunHooks[Any] = hooks or RunHooks()
        self._executed: dict[str, _Executed] = {}
        self._handed: dict[str, str] = {}
        self._last: list[Any] = []
        self.result: Any = None
        self.has_ended = False
        self.has_failed = False

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        await self._watch.prepare(agent)
        await self._hooks.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await self._hooks.on_agent_end(context, agent, output)

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._watch.choose_model(agent)
        await self._hooks.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._watch.add(self, response)
        self._last = response.output
        await self._hooks.on_llm_end(context, agent, response)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        # An input filter may remove the call and its result from the run's items.
        names = {_name_of_handoff(handoff) for handoff in from_agent.handoffs}
        call = next((item for item in self._last if item.type == "function_call" and item.name in names), None)
        if call is not None:
            self._handed[call.call_id] = json.dumps({"assistant": to_agent.name}, ensure_ascii=False)
        await self._hooks.on_handoff(context, from_agent, to_agent)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        # Tools that control a computer or shell lack the id of their call.
        if (call_id := getattr(context, "tool_call_id", None)) is not None:
            self._executed[call_id] = _Executed(time.perf_counter())
            setattr(context, _CALL, self._executed[call_id])
            if (edited := self._watch.edited.pop(call_id, None)) is not None:
                context.tool_arguments = context.tool_call.arguments = self._executed[call_id].edited = edited
        if isinstance(tool, FunctionTool):
            _watch_failures(tool)
        await self._hooks.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        if (executed := self._executed.get(getattr(context, "tool_call_id", ""))) is not None:
            executed.duration_ms = (time.perf_counter() - executed.start) * 1000
            executed.result = result
            failed = (_TOOL_FAILED, _TOOL_LATE.format(tool.name))
            executed.is_error |= isinstance(result, str) and result.startswith(failed)
        await self._hooks.on_tool_end(context, agent, tool, result)

    def end(self, result: Any) -> None:
        """Record the result of the run, which ended or stopped."""
        self.result, self.has_ended = result, True

    def fail(self, problem: Exception) -> None:
        """Record the run's exception: the open calls then failed, or ran beside the failed one."""
        self.result, self.has_failed = getattr(problem, "run_data", None), True  # the SDK's own exceptions have it

    def stopped_at(self) -> set[str]:
        """Return the ids of the calls whose approval it waits for; empty if it runs or has ended."""
        waits = getattr(self.result, "interruptions", ()) if self.has_ended else ()
        return {call_id_of(item) for item in waits}

    def calls(self, item: Any) -> Iterator[ToolCall]:
        """Yield the tool call in an item of a model's reply, if there is one."""
        if item.type == "function_call":
            yield self._function_call(item)
        elif item.type.endswith("_call"):
            yield _other_call(item, {call_id: output for call_id, (output, _) in self._outputs().items()})

    def _function_call(self, item: Any) -> ToolCall:
        call = ToolCall(name=item.name, id=item.call_id, arguments_json=item.arguments)
        executed = self._executed.get(item.call_id)
        if executed is None:
            # A call with a result that never ran was denied, refused by a guardrail, or is not a tool of the agent.
            result, is_error = self._handed.get(call.id), False
            if result is None and call.id in (outputs := self._outputs()):
                result, is_error = outputs[call.id]
            return dataclasses.replace(call, result_json="" if result is None else json_of(result), is_error=is_error)
        is_open = executed.duration_ms is None
        return dataclasses.replace(
            call,
            arguments_json=executed.edited or call.arguments_json,
            result_json="" if executed.result is None and is_open else json_of(executed.result),
            is_error=executed.is_error or (is_open and self.has_failed),
            duration_ms=executed.duration_ms,
        )

    def _outputs(self) -> dict[str, tuple[Any, bool]]:
        """Return the results in the SDK's result by call id, and whether each is a tool's."""
        outputs: dict[str, tuple[Any, bool]] = {}
        for item in self.result.new_items if self.result is not None else ():
            if item.type in ("tool_call_output_item", "handoff_output_item"):
                raw = item.raw_item if isinstance(item.raw_item, dict) else item.raw_item.model_dump(mode="json")
                output = getattr(item, "output", raw.get("output"))
                outputs[str(raw.get("call_id"))] = output, item.type == "tool_call_output_item"
        return outputs


class CopiedSession(SessionABC):  # type: ignore[misc]  # as above
    """A conversation's own view of a session; the original keeps its items from before the run.

    Args:
        original: The session.
    """

    def __init__(self, original: Any) -> None:
        self.session_id = original.session_id
        self.session_settings = getattr(original, "session_settings", None)
        self._original = original
        self._items: list[Any] | None = None

    def copied(self) -> CopiedSession:
        """Return a session that continues from this one's current items."""
        copy = CopiedSession(self._original)
        copy._items = None if self._items is None else list(self._items)
        return copy

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = await self._all()
        limit = getattr(self.session_settings, "limit", None) if limit is None else limit
        return list(items) if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Any]) -> None:
        (await self._all()).extend(items)

    async def pop_item(self) -> Any:
        items = await self._all()
        return items.pop() if items else None

    async def clear_session(self) -> None:
        self._items = []

    async def _all(self) -> list[Any]:
        if self._items is None:
            originals = await self._original.get_items()
            self._items = list(originals) if self._items is None else self._items
        return self._items


class _WatchingRunner(AgentRunner):  # type: ignore[misc]  # as above
    """Lets every run that belongs to a question report to its watch; other runs are unaffected.

    The SDK passes a run's hooks to no run that its tools start, and has no other place that sees all runs.

    Args:
        inner: The runner that it delegates to.
    """

    def __init__(self, inner: AgentRunner) -> None:
        self._inner = inner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        run = _watched(starting_agent, input, options)
        try:
            result = await self._inner.run(starting_agent, input, **options)
        except Exception as problem:
            if run is not None:
                run.fail(problem)
            raise
        if run is not None:
            run.end(result)
        return result

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        run = _watched(starting_agent, input, options)
        try:
            result = self._inner.run_sync(starting_agent, input, **options)
        except Exception as problem:
            if run is not None:
                run.fail(problem)
            raise
        if run is not None:
            run.end(result)
        return result

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        run = _watched(starting_agent, input, options)
        result = self._inner.run_streamed(starting_agent, input, **options)
        if run is not None:
            run.end(result)  # its items arrive while it is read
        return result


def watch_runs() -> None:
    """Make the runs of this process report to the watch of their question."""
    runner = get_default_agent_runner()
    if not isinstance(runner, _WatchingRunner):
        set_default_agent_runner(_WatchingRunner(runner))


def call_id_of(interruption: Any) -> str:
    """Return the id of the call that waits for an approval."""
    return _id_of(interruption.raw_item)


def _id_of(item: Any) -> str:
    fields = item if isinstance(item, dict) else {name: getattr(item, name, None) for name in ("call_id", "id")}
    return str(fields.get("call_id") or fields.get("id") or "")


def _watched(agent: Agent[Any], state: object, options: dict[str, Any]) -> Run | None:
    """Return the new run, after adding the reporting hooks and settings to its options."""
    watch = _watch.get()
    if watch is None:
        return None
    run = watch.start(agent, state, options.get("hooks"))
    options["hooks"] = run
    session = options.get("session")
    # For an agent used as a tool, whose single session all conversations would share.
    if session is not None and isinstance(options.get("context"), ToolContext):
        options["session"] = watch.sessions.setdefault(id(session), CopiedSession(session))
    if not watch.is_tracing:
        config = options.get("run_config") or RunConfig()
        config = RunConfig(**config) if isinstance(config, dict) else config
        options["run_config"] = dataclasses.replace(config, tracing_disabled=True)
    return run


def _failed(context: Any, error: BaseException | None = None) -> None:
    """Mark the call of a tool's context as failed; the error is its result if the model receives none."""
    executed = getattr(context, _CALL, None)
    if executed is not None:
        executed.is_error = True
        if error is not None:
            executed.result = f"{type(error).__name__}: {error}"


def _watch_failures(tool: FunctionTool) -> None:
    """Make a tool with its own error and timeout functions, or with None, report failures.

    Their texts alone do not reveal a failure, and with None the SDK hides the tool's exception.
    """
    on_error = resolve_function_tool_failure_error_function(tool)
    if on_error is not default_tool_error_function and not hasattr(on_error, "watched"):
        set_function_tool_failure_error_function(tool, _watching(on_error))
    if tool.timeout_error_function is not None and not hasattr(tool.timeout_error_function, "watched"):
        tool.timeout_error_function = _watching(tool.timeout_error_function)


def _watching(original: Any) -> Any:
    """Return a function of a tool's context and error that marks the call and returns the original's result."""

    async def watching(context: Any, error: Exception) -> Any:
        _failed(context, error)
        text = None if original is None else original(context, error)
        return await text if inspect.isawaitable(text) else text

    watching.watched = original  # type: ignore[attr-defined]
    return watching


def watch_server(server: Any) -> None:
    """Make an MCP server report failed tool calls: the SDK passes only their texts to the model."""
    original = getattr(server, "custom_data_extractor", None)
    if hasattr(original, "watched"):
        return

    def watching(context: Any) -> Any:
        if context.is_error:
            _failed(context.run_context)
        return None if original is None else original(context)

    watching.watched = original  # type: ignore[attr-defined]
    server.custom_data_extractor = watching


def _name_of_handoff(handoff: Any) -> Any:
    return handoff.tool_name if isinstance(handoff, Handoff) else Handoff.default_tool_name(handoff)


def _other_call(item: Any, outputs: Mapping[str, Any]) -> ToolCall:
    """Return the call of a tool that is not a function, mostly run by OpenAI: file_search, web_search, mcp, shell."""
    data = item.model_dump(mode="json", exclude_none=True)
    call_id = data.get("call_id") or data.get("id") or ""
    output = {"type": f"{item.type}_output", "call_id": call_id, "output": outputs.get(call_id)}
    call = next(response_calls([data, output]))
    result = call.get("result")
    return ToolCall(
        name=call["name"],
        id=call_id,
        arguments_json=call.get("arguments_json") or json_of(call["arguments"]),
        result_json="" if result is None else json_of(result),
        is_error=call.get("is_error", False),
    )


def _sources(items: Iterable[Any]) -> tuple[Source, ...]:
    """Return the results of file searches, then the texts' citations, without repeats."""
    sources: dict[str, Source] = {}
    items = list(items)
    for result in (result for item in items if item.type == "file_search_call" for result in item.results or ()):
        source = Source(
            id=result.file_id or "", title=result.filename or "", content=result.text or "", score=result.score
        )
        sources.setdefault(f"{source.id} {source.content}", source)
    files = {source.id for source in sources.values()}
    for annotation in (
        annotation
        for item in items
        if item.type == "message"
        for part in item.content
        for annotation in getattr(part, "annotations", None) or ()
    ):
        if annotation.type == "url_citation":
            sources.setdefault(annotation.url, Source(title=annotation.title or "", uri=annotation.url))
        elif annotation.type in ("file_citation", "container_file_citation") and annotation.file_id not in files:
            sources.setdefault(annotation.file_id, Source(id=annotation.file_id, title=annotation.filename or ""))
    return tuple(sources.values())
