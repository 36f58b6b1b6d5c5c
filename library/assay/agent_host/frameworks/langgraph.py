"""LangGraph graphs and other LangChain runnables."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.channels import LastValue
from pydantic import PydanticUserError

from assay.agent_host.argument import TEXT_PARAMETERS
from assay.agent_host.frameworks.answers import answer_with, interrupted, refused, traced
from assay.agent_host.frameworks.approvals import run_to_end
from assay.agent_host.frameworks.conversations import Conversations, question_of
from assay.agent_host.frameworks.langchain_documents import documents_in, without_documents
from assay.agent_host.frameworks.langchain_messages import (
    MESSAGES,
    fields_of_schema,
    history_messages,
    holds_messages,
    messages_in,
    new_messages,
    question_message,
    refusal_of,
    state_messages,
    with_ids,
)
from assay.agent_host.frameworks.langchain_trace import TraceCallbacks
from assay.agent_host.frameworks.langgraph_graphs import Graphs, graph_of, is_remote
from assay.agent_host.frameworks.langgraph_run import GraphRun, new_thread
from assay.agent_host.frameworks.langgraph_stops import INTERRUPT
from assay.agent_host.frameworks.targets import wrong_object
from assay.errors import InvalidInputError, Problem
from assay.model.answers.approvals import ScriptedApprovals
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage

    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse

_HISTORY_FIELDS = ("history", "chat_history")
"""Input fields that by LangChain's convention receive the earlier messages."""


def connect(runnable: object, options: Mapping[str, Any]) -> Callable[[AgentRequest], Awaitable[AgentResponse]]:
    """Return a function that asks a graph or another runnable.

    Args:
        runnable: The runnable.
        options: `input` and `output`, the fields of question and answer in its input and result; `store`, a graph's
            store; `recursion_limit`, the maximum number of steps of a graph.

    Raises:
        InvalidInputError: It is not a runnable, or lacks these fields.
    """
    if not isinstance(runnable, Runnable):
        raise wrong_object(runnable, "langgraph")
    # A wrapper that binds arguments to a graph may hide its types.
    inputs, outputs = (
        _fields(runnable, side) or _fields(graph_of(runnable) or runnable, side) for side in ("input", "output")
    )
    problems = [
        Problem(unknown_name(f"field of the {name} of the runnable", options[name], tuple(fields)), f"agent.{name}")
        for name, fields in (("input", inputs), ("output", outputs))
        if name in options and fields and options[name] not in fields
    ]
    if problems:
        raise InvalidInputError(problems)
    return _RunnableAgent(Graphs(runnable, options.get("store")), inputs, options).ask


def _fields(runnable: Runnable[Any, Any], side: Literal["input", "output"]) -> dict[str, Any]:
    """Return the fields of an input or result with their types; empty if it is not a mapping of known fields."""
    kind = runnable.InputType if side == "input" else runnable.OutputType
    try:
        schema = runnable.get_input_schema() if side == "input" else runnable.get_output_schema()
    except PydanticUserError:
        # pydantic refuses types that a graph accepts, such as typing.TypedDict before Python 3.12.
        return fields_of_schema(kind)
    if "root" not in schema.model_fields:
        return fields_of_schema(schema)
    return fields_of_schema(schema.model_fields["root"].annotation)  # a graph's form for its state type


@dataclass(frozen=True, slots=True)
class _Memory:
    """The state from which a conversation continues.

    Args:
        ids: Ids of the conversation if the runnable stores it itself, such as the checkpoint of a thread.
        messages: All messages so far.
        store: The graph's store.
    """

    ids: dict[str, Any] = field(default_factory=dict)
    messages: list[BaseMessage] = field(default_factory=list)
    store: Any = None


_OPENED = "lifespan"
"""The key of a run's configuration that holds the lifespan's resource."""


class _RunnableAgent:
    """Asks a runnable.

    A graph with a checkpointer keeps its own state: each conversation is a separate thread, and a turn continues from
        the checkpoint after the previous turn. A graph with messages but no checkpointer gets its earlier messages
        back, with their tool calls. Any other runnable gets the texts of the history, if its input has a field for
        them.
    """

    def __init__(self, graphs: Graphs, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._graphs = graphs
        self._runnable = graphs.runnable
        self._inputs = inputs
        self._input: str | None = options.get("input") or _text_field(inputs)
        self._output: str | None = options.get("output")
        self._limits = {name: options[name] for name in ("recursion_limit",) if name in options}
        # Ids that the runnable requires, such as the session under which RunnableWithMessageHistory stores messages.
        self._id_names = tuple(
            spec.id for spec in self._runnable.config_specs if spec.id.endswith("_id") and not spec.default
        )
        self._keeps = graphs.has_saver or bool(self._id_names)
        kind = inputs.get(self._input) if self._input is not None else None if inputs else _input_type(self._runnable)
        self._takes_messages = not self._id_names and (self._input == MESSAGES or holds_messages(kind))
        self._conversations: Conversations[_Memory] = Conversations()

    async def ask(self, request: AgentRequest, opened: Any = None) -> AgentResponse:
        turn = _Turn(request, TraceCallbacks(), ScriptedApprovals(request.approvals), opened)
        return await traced(self._answered(turn), turn.trace)

    async def _answered(self, turn: _Turn) -> AgentResponse:
        request, memory = turn.request, self._conversations.find(turn.request)
        self._check_holds(request, memory)
        appends = self._graphs.has_saver and self._appends()
        is_thread = appends and memory is not None
        memory = memory or _Memory(self._new_ids(), history_messages(request))
        store = self._graphs.new_store(memory.store) if self._graphs.graph is not None else None
        # A history field receives its texts; a messages field receives everything that the runnable does not store
        # itself.
        before = history_messages(request) if not self._takes_messages else [] if is_thread else memory.messages
        input_value = self._input_of(request, before)
        turn.earlier = [*(memory.messages if before is not memory.messages else ()), *_input_messages(input_value)]
        config = self._config(turn, memory)
        if self._graphs.graph is None:
            state = result = await self._runnable.ainvoke(input_value, config)
            self._see(turn, state)
            ids = memory.ids
        else:
            run = GraphRun(self._graphs, store, config, self._arguments(turn), turn.callbacks)
            outcome = await run_to_end(
                lambda: run.start(input_value), run.resume, lambda outcome: outcome.interrupts, turn.approvals
            )
            state = outcome.state
            self._see(turn, state)
            if turn.approvals.is_waiting:
                return interrupted(turn.trace(), turn.approvals.interrupts)
            result = await run.end(outcome)
            ids = await run.checkpoint() if self._graphs.has_saver else memory.ids
        answer = self._answer(result, input_value, turn)
        messages = self._state_messages(state) if self._takes_messages or self._graphs.has_saver else []
        if self._takes_messages and not appends:
            # They are given back. For a chain that returns a text, only that is left of the model's message.
            messages = with_ids(messages or [*turn.earlier, AIMessage(answer.text)])
        self._conversations.keep(request, answer.text, _Memory(ids, messages, store))
        return answer

    def _see(self, turn: _Turn, state: Any) -> None:
        """Add a result's content to the callbacks' trace."""
        turn.documents = documents_in(state)
        turn.messages = new_messages(self._state_messages(state), turn.earlier)

    def _new_ids(self) -> dict[str, Any]:
        ids = {} if is_remote(self._runnable) else new_thread()
        return ids | {name: f"assay-{uuid.uuid4().hex}" for name in self._id_names}

    def _appends(self) -> bool:
        """Return whether the graph appends given messages to those of its state."""
        return not isinstance(self._graphs.graph.channels.get(self._input), LastValue)

    def _check_holds(self, request: AgentRequest, memory: _Memory | None) -> None:
        """Check that the runnable receives the earlier conversation.

        Raises:
            TypeError: It cannot receive it.
        """
        has_fields = self._takes_messages or any(name in self._inputs for name in _HISTORY_FIELDS)
        is_function = self._graphs.graph is None and not self._inputs  # it may store the conversation itself
        if not request.history or has_fields or (self._keeps and memory is not None) or is_function:
            return
        fields = f"its input has none of the fields {MESSAGES}, {' and '.join(_HISTORY_FIELDS)}"
        if self._keeps:
            problem = f"it began elsewhere, and {fields}, which would receive its texts"
        elif self._graphs.graph is not None:
            problem = f"{fields}, and it has no checkpointer: add one of them, or compile it with a checkpointer"
        else:
            problem = f"{fields}: add one of them"
        raise TypeError(f"the runnable cannot know the earlier turns of the conversation: {problem}")

    def _config(self, turn: _Turn, memory: _Memory) -> dict[str, Any]:
        # The parameters of a case may name a session, but never a thread of the user's checkpointer.
        request, ids = turn.request, memory.ids
        parameters = dict(request.parameters) | ({} if turn.opened is None else {_OPENED: turn.opened})
        return {
            "callbacks": [turn.callbacks],
            "configurable": parameters | ids if self._graphs.has_saver else ids | parameters,
            "metadata": {"assay_run_id": request.run_id, "assay_case_id": request.case_id},
            **self._limits,
        }

    def _arguments(self, turn: _Turn) -> dict[str, Any]:
        parameters, opened = turn.request.parameters, turn.opened
        context = {**opened, **parameters} if isinstance(opened, Mapping) else parameters if opened is None else opened
        has_context = context and self._graphs.graph.context_schema is not None
        return {"context": context} if has_context else {}

    def _input_of(self, request: AgentRequest, before: list[BaseMessage]) -> Any:
        """Return the runnable's input: a mapping with the case's variables, messages, or the text.

        Args:
            request: The question.
            before: The messages before it.
        """
        if self._input is None and not self._inputs:
            if self._takes_messages:
                return [*before, question_message(question_of(request))]
            return request.variables if request.variables and not request.input else request.input
        fields: dict[str, Any] = dict(request.variables)
        if self._takes_messages and self._input is not None:
            if request.input or self._input not in fields:
                fields[self._input] = [*before, question_message(request.input)]
            return fields
        if self._input is not None and (request.input or self._input not in fields):
            fields[self._input] = request.input
        elif request.input:
            raise TypeError(
                f"the runnable's input has the fields {', '.join(self._inputs)}: name the one that receives the "
                "question with the option `input`"
            )
        return fields | {name: before for name in _HISTORY_FIELDS if name in self._inputs and name not in fields}

    def _answer(self, result: Any, input_value: Any, turn: _Turn) -> AgentResponse:
        """Return the answer in a result: the option's field, the last message, or the result itself."""
        new = new_messages(self._state_messages(result), turn.earlier)
        if not isinstance(result, dict):
            return _said(turn, new, result if not new else None, [])
        if self._output is not None:
            if self._output not in result:
                raise KeyError(f"the result has no {self._output!r}; its fields are {', '.join(map(str, result))}")
            value = result[self._output]
            messages = messages_in(value)
            return answer_with(str(messages[-1].text) if messages else value, turn.trace())
        known = {*(input_value if isinstance(input_value, dict) else ()), self._messages_field(result), INTERRUPT}
        rest = {name: without_documents(value) for name, value in result.items() if name not in known}
        rest = {name: value for name, value in rest.items() if value is not None}
        return _said(turn, new, rest.get("structured_response", rest or None), list(rest.values()))

    def _messages_field(self, result: dict[Any, Any]) -> Any:
        """Return the field of a result that holds its messages; None if there is none."""
        if self._takes_messages and self._input in result:
            return self._input
        if MESSAGES in result:
            return MESSAGES
        return next((name for name, value in result.items() if messages_in(value)), None)

    def _state_messages(self, result: Any) -> list[BaseMessage]:
        if isinstance(result, dict):
            return state_messages(result.get(self._messages_field(result)) or [])
        return messages_in(result)


@dataclass(slots=True)
class _Turn:
    """An attempt at a turn, and its progress.

    Args:
        request: The question.
        callbacks: The callbacks that trace the run.
        approvals: The decisions on its stops.
        opened: The resource that the agent's lifespan opened.
        earlier: The messages before it, and the question's message.
        messages: The messages that the runnable added; None until it has ended.
        documents: The documents of its result.
    """

    request: AgentRequest
    callbacks: TraceCallbacks
    approvals: ScriptedApprovals
    opened: Any = None
    earlier: list[BaseMessage] = field(default_factory=list)
    messages: list[BaseMessage] | None = None
    documents: list[Document] = field(default_factory=list)

    def trace(self, outputs: Sequence[object] = ()) -> AgentResponse:
        """Return the trace so far, without the text.

        Args:
            outputs: The typed values of the result.
        """
        trace = self.callbacks.trace(self.messages, self.documents, earlier=self.earlier, outputs=outputs)
        return dataclasses.replace(trace, interrupts=self.approvals.interrupts)


def _said(turn: _Turn, new: Sequence[BaseMessage], typed: Any, outputs: Sequence[object]) -> AgentResponse:
    """Return the answer in the last new message with any typed output, or the typed output alone."""
    trace = turn.trace(outputs)
    if not new:
        return answer_with(typed, trace)
    last = new[-1]
    text = str(last.text)
    if typed is None:
        refusal = refusal_of(last)
        if refusal is not None:
            return refused(dataclasses.replace(trace, text=refusal))
        return dataclasses.replace(trace, text=text)
    answer = answer_with(typed, trace)
    calls = {call.id for call in trace.tool_calls or ()}
    # A message that only delivers the typed output, as JSON or by a tool call, is not the text.
    is_delivery = isinstance(last, ToolMessage) and last.tool_call_id not in calls
    if not text or is_delivery or _is_json_of(text, answer.output):
        return answer
    return dataclasses.replace(answer, text=text)


def _is_json_of(text: str, value: object) -> bool:
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _input_messages(input_value: Any) -> list[BaseMessage]:
    """Return the messages in an input."""
    if isinstance(input_value, dict):
        return [message for value in input_value.values() for message in messages_in(value)]
    return messages_in(input_value)


def _input_type(runnable: Runnable[Any, Any]) -> Any:
    try:
        return runnable.InputType
    except TypeError:  # it does not tell
        return None


def _text_field(fields: Mapping[str, Any]) -> str | None:
    """Return the input field for the question: by name or type, or the only field."""
    if MESSAGES in fields:
        return MESSAGES
    rest = [name for name in fields if name not in _HISTORY_FIELDS]
    named = [name for name in TEXT_PARAMETERS if name in rest]
    named += [name for name in rest if holds_messages(fields[name])]
    return next(iter(named), rest[0] if len(rest) == 1 else None)
