"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from agents import Agent, RunConfig, RunHooks, Runner
from agents.models import get_default_model

from assay.agent_host.frameworks.answers import (
    answer_with,
    check_not_class,
    json_of,
    traced,
    unfinished,
)
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.frameworks.opening import wrong_object
from assay.agent_host.lifespan import provided
from assay.model.agent_response import AgentResponse, Source, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from assay.model.agent_request import AgentRequest

_TOOL_FAILED = "An error occurred while running the tool"
"""How the SDK's answer to the model begins where a tool raised and has no `failure_error_function` of its own."""
_NO_ARGUMENTS = ("id", "type", "status", "output", "outputs", "results", "result", "error", "name", "call_id")


def connect(found: object, options: Mapping[str, Any]) -> Callable[[AgentRequest], Awaitable[AgentResponse]]:
    """Return a function that asks an agent of the OpenAI Agents SDK.

    Args:
        found: The agent.
        options: `context`, an object or a function of the request; `max_turns` of a run; `tracing`, false by default.

    Raises:
        InvalidInputError: It is no agent.
    """
    if not isinstance(found, Agent):
        raise wrong_object(found, "openai_agents")
    check_not_class(options.get("context"), "context")
    return _SdkAgent(found, options).ask


@dataclasses.dataclass(frozen=True, slots=True)
class _Memory:
    """What a conversation continues from: an agent that took over keeps answering."""

    agent: Agent[Any]
    items: list[Any]


class _SdkAgent:
    asks_with_text = True

    def __init__(self, agent: Agent[Any], options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._context = options.get("context")
        # The SDK sends its traces to OpenAI unless it is switched off.
        self._config = RunConfig(tracing_disabled=not options.get("tracing", False))
        self._limits = {"max_turns": options["max_turns"]} if "max_turns" in options else {}
        self._conversations: Conversations[_Memory] = Conversations()

    async def ask(self, request: AgentRequest, opened: Any = None) -> AgentResponse:
        async with provided(self._context, request, opened) as context:
            return await self._ask(request, context)

    async def _ask(self, request: AgentRequest, context: Any) -> AgentResponse:
        question = question_of(request)
        memory = self._conversations.find(request)
        if memory is None:
            said = [{"role": message.role, "content": message.content} for message in earlier_messages(request)]
            memory = _Memory(self._agent, said)
        observer = _Observer()
        run = Runner.run(
            memory.agent,
            [*memory.items, {"role": "user", "content": question}],
            context=context,
            hooks=observer,
            run_config=self._config,
            **self._limits,
        )
        result = await traced(run, observer.trace)
        trace = observer.trace(result.new_items)
        if result.interruptions:
            names = ", ".join(item.tool_name or "a tool" for item in result.interruptions)
            return unfinished(trace, f"the agent waits for the approval of tool calls: {names}")
        answer = answer_with(result.final_output, trace)
        self._conversations.keep(request, answer.text, _Memory(result.last_agent, result.to_input_list()))
        return answer


@dataclasses.dataclass(slots=True)
class _Executed:
    """A call of a tool that the SDK ran."""

    start: float
    duration_ms: float | None = None
    result: Any = None


class _Observer(RunHooks[Any]):  # type: ignore[misc]  # the SDK is not installed where types are checked
    """Sees the replies of the model and the results of tools of one run, one that fails too."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._executed: dict[str, _Executed] = {}
        self._usage: Any = None
        self._model = ""

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._usage = context.usage
        model = agent.model or get_default_model()
        self._model = model if isinstance(model, str) else str(getattr(model, "model", ""))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._items += response.output

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        # Tools that drive a computer or a shell come without the id of their call.
        if (call_id := getattr(context, "tool_call_id", None)) is not None:
            self._executed[call_id] = _Executed(time.perf_counter())

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        if (executed := self._executed.get(getattr(context, "tool_call_id", ""))) is not None:
            executed.duration_ms = (time.perf_counter() - executed.start) * 1000
            executed.result = result

    def trace(self, items: Iterable[Any] = ()) -> AgentResponse:
        """Return what was seen until now, but the text.

        Args:
            items: What a run that ended has made, with the results of all tools.
        """
        return AgentResponse(
            tool_calls=tuple(self._tool_calls(_outputs(items))),
            sources=_sources(self._items),
            usage=_usage(self._usage),
            model=self._model,
        )

    def _tool_calls(self, outputs: Mapping[str, Any]) -> Iterable[ToolCall]:
        for item in self._items:
            if item.type == "function_call":
                yield self._function_call(item, outputs)
            elif item.type.endswith("_call"):
                yield _other_call(item, outputs)

    def _function_call(self, item: Any, outputs: Mapping[str, Any]) -> ToolCall:
        call = ToolCall(name=item.name, id=item.call_id, arguments_json=item.arguments)
        executed = self._executed.get(item.call_id)
        if executed is None or executed.duration_ms is None:
            return _with_result(call, outputs[call.id]) if call.id in outputs else call
        return dataclasses.replace(_with_result(call, executed.result), duration_ms=executed.duration_ms)


def _with_result(call: ToolCall, result: Any) -> ToolCall:
    failed = isinstance(result, str) and result.startswith(_TOOL_FAILED)
    return dataclasses.replace(call, result_json=json_of(result), is_error=failed)


def _outputs(items: Iterable[Any]) -> dict[str, Any]:
    """Return the results of tools and handoffs by the ids of their calls."""
    found: dict[str, Any] = {}
    for item in items:
        if item.type in ("tool_call_output_item", "handoff_output_item"):
            raw = item.raw_item if isinstance(item.raw_item, dict) else item.raw_item.model_dump(mode="json")
            found[str(raw.get("call_id"))] = getattr(item, "output", raw.get("output"))
    return found


def _other_call(item: Any, outputs: Mapping[str, Any]) -> ToolCall:
    """Return the call of a tool that is no function, most of which OpenAI runs: file_search, web_search, mcp, shell.

    An image that was made stays out: as text it would be larger than an answer may be.
    """
    data = item.model_dump(mode="json", exclude_none=True)
    arguments = data.get("arguments") or {name: value for name, value in data.items() if name not in _NO_ARGUMENTS}
    call_id = data.get("call_id") or data.get("id") or ""
    result = next((data[name] for name in ("output", "outputs", "results") if name in data), outputs.get(call_id))
    error = data.get("error")
    return ToolCall(
        name=data.get("name") or item.type.removesuffix("_call"),
        id=call_id,
        arguments_json=json_of(arguments),
        result_json=json_of(error or result) if error or result is not None else "",
        is_error=bool(error) or data.get("status") == "failed",
    )


def _sources(items: Iterable[Any]) -> tuple[Source, ...]:
    """Return what file searches found, then what the texts cite, each once."""
    found: dict[str, Source] = {}
    items = list(items)
    for result in (result for item in items if item.type == "file_search_call" for result in item.results or ()):
        source = Source(
            id=result.file_id or "", title=result.filename or "", content=result.text or "", score=result.score
        )
        found.setdefault(f"{source.id} {source.content}", source)
    files = {source.id for source in found.values()}
    for annotation in (
        annotation
        for item in items
        if item.type == "message"
        for part in item.content
        for annotation in getattr(part, "annotations", None) or ()
    ):
        if annotation.type == "url_citation":
            found.setdefault(annotation.url, Source(title=annotation.title or "", uri=annotation.url))
        elif annotation.type in ("file_citation", "container_file_citation") and annotation.file_id not in files:
            found.setdefault(annotation.file_id, Source(id=annotation.file_id, title=annotation.filename or ""))
    return tuple(found.values())


def _usage(usage: Any) -> Usage | None:
    """Return the tokens of a run, whose buckets are inclusive as ours; the SDK has 0 for a count that is not known."""
    if usage is None:
        return None
    if not usage.total_tokens:
        return Usage(requests=usage.requests)
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cache_read_tokens=usage.input_tokens_details.cached_tokens or None,
        cache_write_tokens=usage.input_tokens_details.cache_write_tokens or None,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens or None,
        requests=usage.requests,
    )
