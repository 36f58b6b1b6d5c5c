"""The model and tool calls of ADK agents during a question, recorded where they happen."""

from __future__ import annotations

import asyncio
import functools
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from pydantic_core import to_json

from assay.model.answers.adk_events import OWN_CALLS, is_failure, sources_of, usage_of
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall, clean_text, json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
    from pydantic import BaseModel

_REJECTED = "This tool call is rejected."


class Trace:
    """The model and tool calls of a question, by any agent and runner.

    ADK's callbacks report what happens, also inside an agent used as a tool, whose events stay in its runner, and if a
    callback replaces a model's response. Events report agents that call no ADK model.

    Args:
        on_run: Called with each runner that runs for the question.
    """

    def __init__(self, on_run: Callable[[Runner], None] = lambda _: None) -> None:
        self.on_run = on_run
        self._calls: list[_Call] = []
        self._by_id: dict[tuple[str, str], _Call] = {}
        self._model_calls: list[_ModelCall] = []
        self._failed: list[object] = []
        self._asking: set[str] = set()
        self._seen: set[str] = set()
        self._edits: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._sources: dict[tuple[str, str, str], Source] = {}
        self._model = ""
        self.typed: set[str] = set()
        """The names of agents whose texts are JSON of their `output_schema`."""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Make all runners called in the block, in its tasks and threads too, report here."""
        _count_in_all_runners()
        token = _TRACE.set(self)
        try:
            yield
        finally:
            _TRACE.reset(token)

    def response(self) -> AgentResponse:
        """Return the calls, usage, sources and model so far as an answer without a text."""
        return AgentResponse(
            tool_calls=tuple(call.as_tool_call() for call in self._calls),
            sources=tuple(self._sources.values()),
            usage=usage_of([_camel_case(call.usage) for call in self._model_calls]),
            model=self._model,
        )

    def edit(self, session_id: str, call_id: str, arguments: Mapping[str, Any]) -> None:
        """Make a call run with other arguments once it is confirmed."""
        self._edits[session_id, call_id] = arguments

    def answer(self, session_id: str, call_id: str, response: Mapping[str, Any]) -> None:
        """Store the result of a long-running call that came from outside."""
        if (call := self._by_id.get((session_id, call_id))) is not None:
            call.result = response

    def asks_model(self, context: CallbackContext) -> None:
        """Record that an agent is about to call a model, or that a callback answers instead."""
        self._asking.add(context.agent_name)
        if getattr(context.get_invocation_context().agent, "output_schema", None) is not None:
            self.typed.add(context.agent_name)

    def model_answered(self, context: CallbackContext, response: LlmResponse) -> None:
        """Count a model's response; a call may have several."""
        if response.partial:
            return
        if response.usage_metadata is None and any(key is context.actions for key in self._failed):
            return  # a callback's response when the model failed
        # Both callbacks of a call and its event share one actions object.
        call = next((call for call in reversed(self._model_calls) if call.key is context.actions), None)
        if call is None:
            call = _ModelCall(context.actions)
            self._model_calls.append(call)
        call.usage = response.usage_metadata or call.usage
        self._read(response)

    def model_failed(self, context: CallbackContext) -> None:
        """Record that a model raised; a callback may answer instead."""
        self._failed.append(context.actions)

    def saw_event(self, session_id: str, event: Event) -> None:
        """Read an event of any runner once; fragments of a streamed event are skipped, since it repeats them."""
        if event.partial or event.id in self._seen:  # an agent may pass on events of an inner runner
            return
        self._seen.add(event.id)
        for index, requested in enumerate(event.get_function_calls()):
            if requested.name not in OWN_CALLS:
                self._add_call(session_id, requested, f"{event.id}/{index}")
        waiting = {**event.actions.requested_tool_confirmations, **event.actions.requested_auth_configs}
        for returned in event.get_function_responses():
            if returned.id not in waiting:  # until a person answers, its value is not a result
                call = self._by_id.get((session_id, returned.id or "")) or self._first_open(returned.name)
                if call is not None:
                    call.result = returned.response or {}
        if event.usage_metadata is not None and event.author not in self._asking:
            self._model_calls.append(_ModelCall(None, event.usage_metadata))
        self._read(event)

    def starts_tool(self, context: ToolContext, name: str, arguments: dict[str, Any]) -> None:
        """Record that a tool starts, with edited arguments if a person changed them."""
        if name in OWN_CALLS:
            return
        key = (context.session.id, context.function_call_id or "")
        call = self._by_id.get(key)
        if call is None and context.tool_confirmation is not None:
            call = self._held(name, written(arguments))
        if call is None or (call.result is not None and context.tool_confirmation is None):
            call = self._new_call(_Call(clean_text(name), clean_text(key[1]), written(arguments)))
        self._by_id[key] = call
        if (edited := self._edits.pop(key, None)) is not None:
            arguments.clear()
            arguments.update(edited)
            call.arguments_json = written(arguments)
        call.started_at = time.perf_counter()

    def ends_tool(self, context: ToolContext, tool: BaseTool, result: object) -> None:
        """Store a tool's result, which its event may replace or never report."""
        confirmation = context.tool_confirmation
        if isinstance(result, dict) and result.get("error") == _REJECTED and confirmation and confirmation.hint:
            result["error"] = f"{_REJECTED} {confirmation.hint}"  # ADK itself gives the model no reason
        key, actions = (context.session.id, context.function_call_id or ""), context.actions
        call = self._by_id.get(key)
        if call is None or key[1] in {**actions.requested_tool_confirmations, **actions.requested_auth_configs}:
            return
        call.stop_clock()
        is_deferred = tool.is_long_running or getattr(tool, "_defers_response", False)
        if result or not is_deferred:
            call.result = result if isinstance(result, dict) else {"result": result}

    def fails_tool(self, context: ToolContext, error: BaseException) -> None:
        """Store a tool's exception; an agent may continue without the result."""
        call = self._by_id.get((context.session.id, context.function_call_id or ""))
        if call is not None:
            call.stop_clock()
            if not isinstance(error, asyncio.CancelledError):
                call.has_raised = True
                call.result = {"error": f"{type(error).__name__}: {error}"}

    def _add_call(self, session_id: str, requested: types.FunctionCall, own_id: str) -> None:
        key = (session_id, requested.id or own_id)
        known = self._by_id.get(key)
        # Some models restart the numbering of calls in each reply.
        if known is None or known.is_seen:
            call = _Call(
                clean_text(requested.name or "?"), clean_text(requested.id or ""), written(requested.args or {})
            )
            known = self._by_id[key] = self._new_call(call)
        known.is_seen = True

    def _new_call(self, call: _Call) -> _Call:
        self._calls.append(call)
        return call

    def _held(self, name: str, arguments_json: str) -> _Call | None:
        """Return a workflow's call that waited for confirmation: it runs under another id than before."""
        for call in self._calls:
            is_open = call.started_at is not None and call.result is None and not call.is_resumed
            if is_open and (call.name, call.arguments_json) == (name, arguments_json):
                call.is_resumed = True
                return call
        return None

    def _first_open(self, name: str | None) -> _Call | None:
        return next((call for call in self._calls if call.name == name and call.result is None and not call.id), None)

    def _read(self, response: LlmResponse) -> None:
        """Read the parts that events and model responses share."""
        self._model = clean_text(response.model_version or "") or self._model
        grounding, citations = response.grounding_metadata, response.citation_metadata
        for source in sources_of(_camel_case(grounding), _camel_case(citations)) if grounding or citations else ():
            self._sources.setdefault((source.id, source.uri, source.title), source)


@dataclass(slots=True)
class _Call:
    name: str
    id: str
    arguments_json: str
    result: Mapping[str, Any] | None = None
    is_seen: bool = False
    is_resumed: bool = False
    has_raised: bool = False
    started_at: float | None = None
    duration_s: float | None = None

    def stop_clock(self) -> None:
        if self.started_at is not None:
            self.duration_s = time.perf_counter() - self.started_at

    def as_tool_call(self) -> ToolCall:
        is_error = self.has_raised or is_failure(self.result)
        result_json = "" if self.result is None else written(self.result)
        duration_ms = None if self.duration_s is None else self.duration_s * 1000
        return ToolCall(self.name, self.id, self.arguments_json, result_json, is_error, duration_ms)


@dataclass(slots=True)
class _ModelCall:
    key: object
    usage: types.GenerateContentResponseUsageMetadata | None = None


_TRACE: ContextVar[Trace | None] = ContextVar("assay_adk_trace", default=None)


class _Reporter(BasePlugin):  # type: ignore[misc]  # no framework is there where types are checked
    """Reports to the trace of the current question, if any: a single object serves all runners."""

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.saw_event(invocation_context.session.id, event)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.asks_model(callback_context)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.model_answered(callback_context, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.model_failed(callback_context)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.starts_tool(tool_context, tool.name, tool_args)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.ends_tool(tool_context, tool, result)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        if (trace := _TRACE.get()) is not None:
            trace.fails_tool(tool_context, error)


@functools.cache
def _count_in_all_runners() -> None:
    """Give every runner of this process the reporting plugin, in first place, when it runs for a question.

    An agent used as a tool passes its plugins on by default, but a tool that creates its own runner does not know them.
    """
    reporter, run = _Reporter("assay"), Runner.run_async

    @functools.wraps(run)
    def run_async(self: Runner, **arguments: Any) -> Any:
        if (trace := _TRACE.get()) is not None:
            trace.on_run(self)
            if reporter not in self.plugin_manager.plugins:
                self.plugin_manager.plugins.insert(0, reporter)
        return run(self, **arguments)

    Runner.run_async = run_async


def _camel_case(metadata: BaseModel | None) -> dict[str, Any]:
    """Return an ADK object as its server writes it."""
    return {} if metadata is None else metadata.model_dump(mode="json", by_alias=True, exclude_none=True)


def written(value: object) -> str:
    """Return a tool's or agent's value in this process as JSON text, or its closest form: it may be any object."""
    try:
        return clean_text(to_json(value, fallback=repr, inf_nan_mode="strings", bytes_mode="base64").decode())
    except ValueError:  # lone surrogates, and objects that contain themselves
        return json_text(repr(value), "tool_calls")
