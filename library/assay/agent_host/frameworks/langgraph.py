"""Graphs of LangGraph, and other runnables of LangChain."""

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
"""Fields of an input that by LangChain's custom receive the earlier messages."""


def connect(found: object, options: Mapping[str, Any]) -> Callable[[AgentRequest], Awaitable[AgentResponse]]:
    """Return a function that asks a graph or another runnable.

    Args:
        found: The runnable.
        options: `input` and `output`, the fields of its input and result that have question and answer; `store`, the
            store of a graph; `recursion_limit`, the most steps of a graph.

    Raises:
        InvalidInputError: It is no runnable, or has no such fields.
    """
    if not isinstance(found, Runnable):
        raise wrong_object(found, "langgraph")
    # What binds arguments to a graph may hide its types.
    inputs, outputs = (_fields(found, side) or _fields(graph_of(found) or found, side) for side in ("input", "output"))
    problems = [
        Problem(unknown_name(f"field of the {name} of the runnable", options[name], tuple(fields)), f"agent.{name}")
        for name, fields in (("input", inputs), ("output", outputs))
        if name in options and fields and options[name] not in fields
    ]
    if problems:
        raise InvalidInputError(problems)
    return _RunnableAgent(Graphs(found, options.get("store")), inputs, options).ask


def _fields(runnable: Runnable[Any, Any], side: Literal["input", "output"]) -> dict[str, Any]:
    """Return the fields of an input or a result, with their types; none where it is no mapping of known fields."""
    kind = runnable.InputType if side == "input" else runnable.OutputType
    try:
        schema = runnable.get_input_schema() if side == "input" else runnable.get_output_schema()
    except PydanticUserError:
        # pydantic refuses types that a graph takes, such as typing.TypedDict before Python 3.12.
        return fields_of_schema(kind)
    if "root" not in schema.model_fields:
        return fields_of_schema(schema)
    return fields_of_schema(schema.model_fields["root"].annotation)  # how a graph shows the type of its state


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a conversation continues from.

    Args:
        ids: Those that name it where the runnable keeps what was said, such as the checkpoint of a thread.
        messages: All of it so far.
        store: The store of the graph.
    """

    ids: dict[str, Any] = field(default_factory=dict)
    messages: list[BaseMessage] = field(default_factory=list)
    store: Any = None


_OPENED = "lifespan"
"""Where the configuration of a run has what the agent's lifespan opened."""


class _RunnableAgent:
    """Asks a runnable.

    A graph with a checkpointer keeps its state itself: each conversation is a thread of its own, and a turn continues
    from the checkpoint after the turn before. A graph with messages and no checkpointer is given its earlier messages
    back, with their tool calls. Any other is given the texts of the history, where its input has a field for them.
    """

    def __init__(self, graphs: Graphs, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._graphs = graphs
        self._runnable = graphs.runnable
        self._inputs = inputs
        self._input: str | None = options.get("input") or _text_field(inputs)
        self._output: str | None = options.get("output")
        self._limits = {name: options[name] for name in ("recursion_limit",) if name in options}
        # Ids that the runnable asks for, such as the session in which a RunnableWithMessageHistory keeps what was said.
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
        # A field for the history receives its texts; a field for messages all that the runnable does not keep itself.
        before = history_messages(request) if not self._takes_messages else [] if is_thread else memory.messages
        given = self._input_of(request, before)
        turn.earlier = [*(memory.messages if before is not memory.messages else ()), *_messages_given(given)]
        config = self._config(turn, memory)
        if self._graphs.graph is None:
            state = result = await self._runnable.ainvoke(given, config)
            self._see(turn, state)
            ids = memory.ids
        else:
            run = GraphRun(self._graphs, store, config, self._arguments(turn), turn.callbacks)
            outcome = await run_to_end(
                lambda: run.start(given), run.resume, lambda outcome: outcome.interrupts, turn.approvals
            )
            state = outcome.state
            self._see(turn, state)
            if turn.approvals.is_waiting:
                return interrupted(turn.trace(), turn.approvals.interrupts)
            result = await run.end(outcome)
            ids = await run.checkpoint() if self._graphs.has_saver else memory.ids
        answer = self._answer(result, given, turn)
        said = self._state_messages(state) if self._takes_messages or self._graphs.has_saver else []
        if self._takes_messages and not appends:
            # They are given back. Of a chain that returns a text, that is all that is left of the model's message.
            said = with_ids(said or [*turn.earlier, AIMessage(answer.text)])
        self._conversations.keep(request, answer.text, _Memory(ids, said, store))
        return answer

    def _see(self, turn: _Turn, state: Any) -> None:
        """Note what a result adds to what callbacks saw."""
        turn.documents = documents_in(state)
        turn.messages = new_messages(self._state_messages(state), turn.earlier)

    def _new_ids(self) -> dict[str, Any]:
        ids = {} if is_remote(self._runnable) else new_thread()
        return ids | {name: f"assay-{uuid.uuid4().hex}" for name in self._id_names}

    def _appends(self) -> bool:
        """Return whether the graph adds the messages that it is given to those of its state."""
        return not isinstance(self._graphs.graph.channels.get(self._input), LastValue)

    def _check_holds(self, request: AgentRequest, memory: _Memory | None) -> None:
        """Check that the runnable learns of what was said before.

        Raises:
            TypeError: It cannot.
        """
        has_fields = self._takes_messages or any(name in self._inputs for name in _HISTORY_FIELDS)
        is_function = self._graphs.graph is None and not self._inputs  # it may keep what was said itself
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
        """Return what the runnable is called with: a mapping with the case's variables, messages, or the text.

        Args:
            request: The question.
            before: The messages that stand before it.
        """
        if self._input is None and not self._inputs:
            if self._takes_messages:
                return [*before, question_message(question_of(request))]
            return request.variables if request.variables and not request.input else request.input
        given: dict[str, Any] = dict(request.variables)
        if self._takes_messages and self._input is not None:
            if request.input or self._input not in given:
                given[self._input] = [*before, question_message(request.input)]
            return given
        if self._input is not None and (request.input or self._input not in given):
            given[self._input] = request.input
        elif request.input:
            raise TypeError(
                f"the runnable's input has the fields {', '.join(self._inputs)}: name the one that receives the "
                "question with the option `input`"
            )
        return given | {name: before for name in _HISTORY_FIELDS if name in self._inputs and name not in given}

    def _answer(self, result: Any, given: Any, turn: _Turn) -> AgentResponse:
        """Return the answer of a result: the field that the option names, the last message, or the result itself."""
        new = new_messages(self._state_messages(result), turn.earlier)
        if not isinstance(result, dict):
            return _said(turn, new, result if not new else None, [])
        if self._output is not None:
            if self._output not in result:
                raise KeyError(f"the result has no {self._output!r}; its fields are {', '.join(map(str, result))}")
            value = result[self._output]
            messages = messages_in(value)
            return answer_with(str(messages[-1].text) if messages else value, turn.trace())
        known = {*(given if isinstance(given, dict) else ()), self._messages_field(result), INTERRUPT}
        rest = {name: without_documents(value) for name, value in result.items() if name not in known}
        rest = {name: value for name, value in rest.items() if value is not None}
        return _said(turn, new, rest.get("structured_response", rest or None), list(rest.values()))

    def _messages_field(self, result: dict[Any, Any]) -> Any:
        """Return the field of a result that holds its messages; None where there is none."""
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
    """One attempt at one turn, as far as it has come.

    Args:
        request: The question.
        callbacks: What sees the run.
        approvals: The decisions on what it stops at.
        opened: What the agent's lifespan opened.
        earlier: The messages before it, and that of the question.
        messages: Those that the runnable added; None until it has ended.
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
        """Return what happened until now, but the text.

        Args:
            outputs: The typed values of the result.
        """
        trace = self.callbacks.trace(self.messages, self.documents, earlier=self.earlier, outputs=outputs)
        return dataclasses.replace(trace, interrupts=self.approvals.interrupts)


def _said(turn: _Turn, new: Sequence[BaseMessage], typed: Any, outputs: Sequence[object]) -> AgentResponse:
    """Return the answer that the last new message is, with typed output beside it, or the typed output itself."""
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
    # A message that only delivers the typed output, as its JSON or by the call of a tool, is not the text.
    is_delivery = isinstance(last, ToolMessage) and last.tool_call_id not in calls
    if not text or is_delivery or _is_json_of(text, answer.output):
        return answer
    return dataclasses.replace(answer, text=text)


def _is_json_of(text: str, value: object) -> bool:
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _messages_given(given: Any) -> list[BaseMessage]:
    """Return the messages that an input holds."""
    if isinstance(given, dict):
        return [message for value in given.values() for message in messages_in(value)]
    return messages_in(given)


def _input_type(runnable: Runnable[Any, Any]) -> Any:
    try:
        return runnable.InputType
    except TypeError:  # it does not say
        return None


def _text_field(fields: Mapping[str, Any]) -> str | None:
    """Return the field of an input that receives the question: by its name or type, or because it is the only one."""
    if MESSAGES in fields:
        return MESSAGES
    rest = [name for name in fields if name not in _HISTORY_FIELDS]
    found = [name for name in TEXT_PARAMETERS if name in rest]
    found += [name for name in rest if holds_messages(fields[name])]
    return next(iter(found), rest[0] if len(rest) == 1 else None)
