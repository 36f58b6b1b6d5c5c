"""Agents of pydantic-ai."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pydantic_ai import capture_run_messages
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage, UsageLimits

from assay.agent_host.executor import AgentExecutor
from assay.agent_host.frameworks.answers import answer_with, check_not_class, json_of, made_for, traced, unfinished
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.frameworks.opening import wrong_object
from assay.errors import InvalidInputError, Problem
from assay.model.agent_response import AgentResponse, Source, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from assay.model.agent_request import AgentRequest

_OUTPUT_TOOL = "final_result"
_OUTPUT_RETURNS = ("Final result processed.", "Output tool not used - ")
"""What pydantic-ai answers the calls that deliver the output with: they are no tools of the user's."""
_BAD_OUTCOMES = ("failed", "retried", "denied", "interrupted")


def connect(found: object, options: Mapping[str, Any]) -> Callable[[AgentRequest], Awaitable[AgentResponse]]:
    """Return a function that asks an agent of pydantic-ai.

    Args:
        found: The agent.
        options: `deps`, an object or a function of the request; `request_limit` and `tool_calls_limit` of a run.

    Raises:
        InvalidInputError: It is no agent, or it needs `deps`.
    """
    if not isinstance(found, AbstractAgent):
        raise wrong_object(found, "pydantic_ai")
    deps = options.get("deps")
    check_not_class(deps, "deps")
    if deps is None and found.deps_type not in (type(None), object):
        message = (
            f"is missing: the agent's tools receive a {found.deps_type.__qualname__}; name an object of it, or a "
            "function of the request that returns one, as MODULE:OBJECT"
        )
        raise InvalidInputError([Problem(message, "agent.deps")], reason="AGENT_NOT_FOUND")
    return _PydanticAgent(found, options).ask


class _PydanticAgent:
    asks_with_text = True

    def __init__(self, agent: AbstractAgent[Any, Any], options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._deps = options.get("deps")
        limits = {name: options[name] for name in ("request_limit", "tool_calls_limit") if name in options}
        self._limits = UsageLimits(**limits) if limits else None
        # By itself pydantic-ai runs 40 synchronous tools at once, and waits for one that hangs whatever the time limit.
        self._executor = AgentExecutor()
        self._conversations: Conversations[list[Any]] = Conversations()

    async def ask(self, request: AgentRequest) -> AgentResponse:
        question = question_of(request)
        history = self._conversations.find(request)
        usage = RunUsage()
        arguments: dict[str, Any] = {"deps": await made_for(self._deps, request), "usage_limits": self._limits}
        if history is None:
            history = _messages_of(request)
            # pydantic-ai writes the system prompt into the first message, and takes a history to begin with it.
            arguments["capabilities"] = [ReinjectSystemPrompt()] if history else None
        earlier = {message.run_id for message in history}
        with capture_run_messages() as messages, self._agent.using_thread_executor(self._executor):
            result = await traced(
                self._agent.run(question, message_history=history, usage=usage, **arguments),
                lambda: _trace([one for one in messages if one.run_id and one.run_id not in earlier], usage),
            )
        trace = _trace(result.new_messages(), usage)
        if isinstance(result.output, DeferredToolRequests):
            names = ", ".join(call.tool_name for call in (*result.output.approvals, *result.output.calls))
            return unfinished(trace, f"the agent waits for the approval or the result of tool calls: {names}")
        answer = answer_with(result.output, trace)
        self._conversations.keep(request, answer.text, result.all_messages())
        return answer


def _messages_of(request: AgentRequest) -> list[Any]:
    """Return the history of a request as messages of pydantic-ai."""
    messages: list[Any] = []
    for message in earlier_messages(request):
        match message.role:
            case "assistant":
                messages.append(ModelResponse(parts=[TextPart(message.content)]))
            case "system":
                messages.append(ModelRequest(parts=[SystemPromptPart(message.content)]))
            case _:
                messages.append(ModelRequest(parts=[UserPromptPart(message.content)]))
    return messages


def _trace(messages: Sequence[Any], usage: RunUsage) -> AgentResponse:
    """Return what the messages of a run say, but the text."""
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    last = responses[-1] if responses else None
    return AgentResponse(
        tool_calls=_tool_calls(messages),
        sources=_citations(part for response in responses for part in response.parts),
        usage=_usage(usage),
        model=(last.model_name or "") if last else "",
        finish_reason=(last.finish_reason or "") if last else "",
    )


def _tool_calls(messages: Sequence[Any]) -> tuple[ToolCall, ...]:
    parts = [part for message in messages for part in message.parts]
    returns = {part.tool_call_id: part for part in parts if part.part_kind in ("tool-return", "builtin-tool-return")}
    output_tools = {_OUTPUT_TOOL} | {
        part.tool_name
        for part in returns.values()
        if isinstance(part.content, str) and part.content.startswith(_OUTPUT_RETURNS)
    }
    return tuple(
        _tool_call(part, returns.get(part.tool_call_id))
        for part in parts
        if part.part_kind in ("tool-call", "builtin-tool-call")
        and part.tool_name not in output_tools
        and not part.tool_name.startswith(f"{_OUTPUT_TOOL}_")
    )


def _tool_call(call: Any, returned: Any) -> ToolCall:
    made = ToolCall(name=call.tool_name, id=call.tool_call_id, arguments_json=json_of(call.args or {}))
    if returned is None:
        return made
    return dataclasses.replace(made, result_json=json_of(returned.content), is_error=returned.outcome in _BAD_OUTCOMES)


def _citations(parts: Iterable[Any]) -> tuple[Source, ...]:
    """Return the sources that a provider's model cited, each once, in the order of the text."""
    found: dict[str, Source] = {}
    for part in parts:
        for citation in getattr(part, "citations", None) or ():
            for cited in citation.sources:
                source = Source(
                    id=getattr(cited, "document_id", None) or "",
                    title=cited.title or "",
                    uri=getattr(cited, "url", None) or "",
                    content="\n".join(cited.excerpts),
                )
                found.setdefault(source.uri or source.id or source.title or source.content, source)
    return tuple(found.values())


def _usage(usage: RunUsage) -> Usage:
    """Return the tokens of a run, whose buckets are inclusive as ours; 0 stands for a count that is not known."""
    if usage.unmeasured_requests or not usage.total_tokens:
        return Usage(requests=usage.requests)
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cache_read_tokens=usage.cache_read_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens"),
        requests=usage.requests,
        cost_usd=float(usage.cost) if usage.cost is not None else None,
    )
