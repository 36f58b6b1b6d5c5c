"""Graphs of LangGraph, and other runnables of LangChain."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable
from pydantic import PydanticUserError

from assay.agent_host.argument import TEXT_PARAMETERS
from assay.agent_host.frameworks.answers import answer_with, traced, unfinished
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.frameworks.langchain_trace import TraceCallbacks, documents_in
from assay.agent_host.frameworks.opening import wrong_object
from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from assay.model.agent_request import AgentRequest
    from assay.model.agent_response import AgentResponse

_MESSAGES = "messages"
_HISTORY_FIELDS = ("history", "chat_history")
"""Fields of an input that by LangChain's custom receive the earlier messages."""
_INTERRUPT = "__interrupt__"


def connect(found: object, options: Mapping[str, Any]) -> Callable[[AgentRequest], Awaitable[AgentResponse]]:
    """Return a function that asks a graph or another runnable.

    Args:
        found: The runnable.
        options: `input` and `output`, the fields of its input and result that have question and answer;
            `recursion_limit`, the most steps of a graph.

    Raises:
        InvalidInputError: It is no runnable, or has no such fields.
    """
    if not isinstance(found, Runnable):
        raise wrong_object(found, "langgraph")
    inputs, outputs = _fields(found, "input"), _fields(found, "output")
    problems = [
        Problem(unknown_name(f"field of the {name} of the runnable", options[name], fields), f"agent.{name}")
        for name, fields in (("input", inputs), ("output", outputs))
        if name in options and fields and options[name] not in fields
    ]
    if problems:
        raise InvalidInputError(problems)
    return _RunnableAgent(found, inputs, options).ask


def _fields(runnable: Runnable[Any, Any], side: Literal["input", "output"]) -> tuple[str, ...]:
    """Return the fields of an input or a result; none where it is no mapping, or one of which no fields are known."""
    try:
        schema = runnable.get_input_schema() if side == "input" else runnable.get_output_schema()
    except PydanticUserError:
        # pydantic refuses types that a graph takes, such as typing.TypedDict before Python 3.12.
        kind = runnable.InputType if side == "input" else runnable.OutputType
    else:
        if "root" not in schema.model_fields:
            return tuple(schema.model_fields)
        kind = schema.model_fields["root"].annotation  # how a graph shows the type of its state
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    if hasattr(kind, "__required_keys__"):  # a TypedDict, also one of typing_extensions
        return tuple(kind.__annotations__)
    return tuple(getattr(kind, "model_fields", ()))


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a conversation continues from.

    Args:
        messages: All of it so far.
        checkpoint: Where it stands in the thread of a checkpointer; empty without one.
    """

    messages: list[Any] = field(default_factory=list)
    checkpoint: dict[str, Any] = field(default_factory=dict)


class _RunnableAgent:
    """Asks a runnable.

    A graph with a checkpointer keeps its state itself: each conversation is a thread of its own, and a turn continues
    from the checkpoint after the turn before. A graph with messages and no checkpointer is given its earlier messages
    back, with their tool calls. Any other is given the texts of the history, where its input has a field for them.
    """

    def __init__(self, runnable: Runnable[Any, Any], inputs: tuple[str, ...], options: Mapping[str, Any]) -> None:
        self._runnable = runnable
        self._inputs = inputs
        self._input = options.get("input") or _text_field(inputs)
        self._output: str | None = options.get("output")
        self._limits = {name: options[name] for name in ("recursion_limit",) if name in options}
        # A checkpointer of True is that of a graph around this one.
        self._has_threads = getattr(runnable, "checkpointer", None) not in (None, True, False)
        self._is_sync: bool | None = None if self._has_threads else False
        self._conversations: Conversations[_Memory] = Conversations()

    async def ask(self, request: AgentRequest) -> AgentResponse:
        memory = self._conversations.find(request)
        continued = memory or _Memory(_messages_of(request))
        callbacks = TraceCallbacks()
        config: dict[str, Any] = {
            "callbacks": [callbacks],
            "configurable": dict(request.parameters),
            "metadata": {"assay_run_id": request.run_id, "assay_case_id": request.case_id},
            **self._limits,
        }
        if self._has_threads:
            config["configurable"] |= continued.checkpoint or {"thread_id": f"assay-{uuid.uuid4().hex}"}
        arguments = {}
        if request.parameters and getattr(self._runnable, "context_schema", None) is not None:
            arguments["context"] = request.parameters
        given = self._input_of(request, [] if continued.checkpoint else continued.messages)
        result = await traced(self._invoke(given, config, arguments), callbacks.trace)
        answer = self._answer(result, given, continued.messages, callbacks)
        messages = result.get(_MESSAGES) if isinstance(result, dict) and self._input == _MESSAGES else None
        checkpoint = await self._checkpoint(config) if self._has_threads else {}
        if messages or checkpoint:
            self._conversations.keep(request, answer.text, _Memory(messages or [], checkpoint))
        return answer

    def _input_of(self, request: AgentRequest, earlier: list[Any]) -> Any:
        """Return what the runnable is called with: a mapping with the case's variables, messages, or the text."""
        if self._input is None and not self._inputs:
            if isinstance(self._runnable, BaseLanguageModel):
                return [*earlier, HumanMessage(question_of(request))]
            return request.variables if request.variables and not request.input else request.input
        given: dict[str, Any] = dict(request.variables)
        if self._input == _MESSAGES:
            return given | {_MESSAGES: [*earlier, HumanMessage(request.input)]}
        if self._input is not None and (request.input or self._input not in given):
            given[self._input] = request.input
        elif request.input:
            raise TypeError(
                f"the runnable's input has the fields {', '.join(self._inputs)}: name the one that receives the "
                "question with the option `input`"
            )
        return given | {name: earlier for name in _HISTORY_FIELDS if name in self._inputs and name not in given}

    async def _invoke(self, given: Any, config: dict[str, Any], arguments: dict[str, Any]) -> Any:
        if self._is_sync is None:
            # SqliteSaver and the like have no asynchronous methods, and then neither has the graph.
            try:
                await self._runnable.aget_state(config)
            except NotImplementedError:
                self._is_sync = True
            else:
                self._is_sync = False
        if self._is_sync:
            return await asyncio.to_thread(self._runnable.invoke, given, config, **arguments)
        return await self._runnable.ainvoke(given, config, **arguments)

    async def _checkpoint(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the newest checkpoint of a thread."""
        thread = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
        if self._is_sync:
            state = await asyncio.to_thread(self._runnable.get_state, thread)
        else:
            state = await self._runnable.aget_state(thread)
        return dict(state.config["configurable"])

    def _answer(self, result: Any, given: Any, earlier: list[Any], callbacks: TraceCallbacks) -> AgentResponse:
        """Return the answer of a result: the field that the option names, the last message, or the result itself."""
        if not isinstance(result, dict):
            return answer_with(_content(result), callbacks.trace(_messages_in(result), documents_in(result)))
        new = _new_messages(result.get(_MESSAGES) or (), earlier)
        trace = callbacks.trace(new, documents_in(result))
        if interrupts := result.get(_INTERRUPT):
            asked = "; ".join(str(interrupt.value) for interrupt in interrupts)
            return unfinished(trace, f"the graph stopped at an interrupt and waits for input: {asked}")
        if self._output is not None:
            if self._output not in result:
                raise KeyError(f"the result has no {self._output!r}; its fields are {', '.join(map(str, result))}")
            return answer_with(_content(result[self._output]), trace)
        known = given if isinstance(given, dict) else {}
        rest = {
            name: value
            for name, value in result.items()
            if name != _MESSAGES and value is not None and name not in known and not _are_documents(value)
        }
        replies = [message for message in new if isinstance(message, AIMessage)]
        if not replies:
            return answer_with(rest or None, trace)
        # The answer is what the last message says; typed output stands beside it.
        typed = rest.get("structured_response", rest or None)
        answer = answer_with(typed, trace) if typed is not None else trace
        return dataclasses.replace(answer, text=str(replies[-1].text) or answer.text)


def _text_field(fields: tuple[str, ...]) -> str | None:
    """Return the field of an input that receives the question: by its name, or because it is the only one."""
    if _MESSAGES in fields:
        return _MESSAGES
    rest = [name for name in fields if name not in _HISTORY_FIELDS]
    return next((name for name in TEXT_PARAMETERS if name in rest), rest[0] if len(rest) == 1 else None)


def _messages_of(request: AgentRequest) -> list[Any]:
    """Return the history of a request as messages of LangChain, with ids by which they are known again."""
    kinds = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
    return [kinds[one.role](one.content, id=f"assay-{uuid.uuid4().hex}") for one in earlier_messages(request)]


def _new_messages(messages: Iterable[Any], earlier: Sequence[Any]) -> list[BaseMessage]:
    """Return the messages of a result that were not there before; those without an id by their position."""
    known = {message.id for message in earlier}
    return [
        message
        for position, message in enumerate(messages)
        if isinstance(message, BaseMessage)
        and (message.id not in known if message.id is not None else position >= len(earlier))
    ]


def _messages_in(value: object) -> list[BaseMessage]:
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, BaseMessage)]
    return [value] if isinstance(value, BaseMessage) else []


def _are_documents(value: object) -> bool:
    return not isinstance(value, dict) and bool(documents_in(value))


def _content(value: object) -> Any:
    """Return the text of a message, or of the last of several; any other value as it is."""
    messages = _messages_in(value)
    return str(messages[-1].text) if messages else value
