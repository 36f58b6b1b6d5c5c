"""Agents of pydantic-ai."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage, UsageLimits

from assay.agent_host.concurrency.executor import AgentExecutor
from assay.agent_host.frameworks.answers import answer_with, check_provided, interrupted, refused, traced
from assay.agent_host.frameworks.approvals import run_to_end
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.frameworks.pydantic_ai_runs import (
    WaitsForPersonError,
    Watch,
    interrupts_of,
    results_of,
    watch_nested_runs,
)
from assay.agent_host.frameworks.targets import wrong_object
from assay.agent_host.lifespan import Resource, provided
from assay.errors import InvalidInputError, Problem
from assay.model.answers.approvals import ScriptedApprovals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.answers.approvals import Decision
    from assay.model.answers.interrupts import Interrupt


def connect(agent: object, options: Mapping[str, Any]) -> PydanticAgent:
    """Return a function that asks an agent of pydantic-ai.

    Args:
        agent: The agent.
        options: `deps`, an object or a function of the request, which `lifespan` may replace; `request_limit` and
            `tool_calls_limit` of a run.

    Raises:
        InvalidInputError: It is not an agent, it has no model, or it needs `deps`.
    """
    if not isinstance(agent, AbstractAgent):
        raise wrong_object(agent, "pydantic_ai")
    if agent.model is None and agent.root_capability.get_model() is None and "lifespan" not in options:
        message = "names an agent without a model: give it one, as Agent('anthropic:…')"
        raise InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")
    deps = options.get("deps")
    check_provided(options, "deps")
    if deps is None and "lifespan" not in options and agent.deps_type not in (type(None), object):
        message = (
            f"is missing: the agent's tools receive a {agent.deps_type.__qualname__}; name an object of it, or a "
            "function of the request that returns one, as MODULE:OBJECT"
        )
        raise InvalidInputError([Problem(message, "agent.deps")], reason="AGENT_NOT_FOUND")
    watch_nested_runs()
    return PydanticAgent(agent, options)


class PydanticAgent:
    """Asks a pydantic-ai agent, whose toolsets stay open from the first question on.

    Args:
        agent: The agent.
        options: The adapter's options.
    """

    asks_with_text = True

    def __init__(self, agent: AbstractAgent[Any, Any], options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._deps = options.get("deps")
        limits = {name: options[name] for name in ("request_limit", "tool_calls_limit") if name in options}
        self._limits = UsageLimits(**limits) if limits else None
        # By default pydantic-ai runs 40 synchronous tools at once, and waits for a hanging one whatever the time limit.
        self._executor = AgentExecutor()
        self._conversations: Conversations[list[Any]] = Conversations()
        # Otherwise each run would open them: MCP servers would start with each question.
        self._toolsets = Resource(lambda: agent)

    async def __call__(self, request: AgentRequest, opened: Any = None) -> AgentResponse:
        """Return the answer to a question."""
        await self._toolsets.value()
        async with provided(self._deps, request, opened) as deps:
            return await self._ask(request, deps)

    async def aclose(self) -> None:
        """Close the agent's toolsets and its model; a later question opens them again."""
        await self._toolsets.aclose()

    async def _ask(self, request: AgentRequest, deps: Any) -> AgentResponse:
        question = question_of(request)
        history = self._conversations.find(request)
        capabilities = None
        if history is None:
            history = _messages_of(request)
            # pydantic-ai puts the system prompt into the first message, and expects a history to begin with it.
            capabilities = [ReinjectSystemPrompt()] if history else None
        options: dict[str, Any] = {
            "deps": deps,
            "usage_limits": self._limits,
            "usage": RunUsage(),
            "capabilities": capabilities,
        }
        approvals = ScriptedApprovals(request.approvals)
        watch = Watch(approvals)

        async def run() -> Any:
            return await self._agent.run(question, message_history=history, **options)

        async def resume(stopped: Any, decisions: Sequence[tuple[Interrupt, Decision]]) -> Any:
            results = results_of(decisions, watch.edited)
            messages = stopped.all_messages()
            return await self._agent.run(message_history=messages, deferred_tool_results=results, **options)

        with watch.watched(), self._agent.using_thread_executor(self._executor):
            try:
                result = await traced(run_to_end(run, resume, _waiting, approvals), watch.trace)
            except WaitsForPersonError as stop:
                for interrupt in stop.interrupts:
                    approvals.decide(interrupt)
        trace = watch.trace()
        if approvals.is_waiting:
            return interrupted(trace, approvals.interrupts)
        answer = answer_with(result.output, trace)
        if answer.output is None and result.response.finish_reason == "content_filter":
            return refused(answer, (result.response.provider_details or {}).get("refusal") or "")
        self._conversations.keep(request, answer.text, result.all_messages())
        return answer


def _waiting(result: Any) -> list[Interrupt]:
    return interrupts_of(result.output) if isinstance(result.output, DeferredToolRequests) else []


def _messages_of(request: AgentRequest) -> list[Any]:
    """Return the history of a request as pydantic-ai messages."""
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
