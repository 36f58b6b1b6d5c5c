"""Tracing a LangChain runnable through callbacks: model calls, tool runs and retrieved documents."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import GraphInterrupt, ParentCommand

from assay.agent_host.frameworks.answers import json_of, plain
from assay.agent_host.frameworks.langchain_documents import blocks_of, documents_in, sources_of
from assay.model.answers.agent_response import AgentResponse, ToolCall, Usage
from assay.model.answers.usage_names import read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from langchain_core.documents import Document

_STRUCTURED = "ls_structured_output_format"
"""An option of a model call that requests an object: the reply's tool call is that object."""


@dataclass(slots=True)
class _Reply:
    """A model call's reply.

    Args:
        message: The message; None for a model that returns plain text.
        usage: The tokens, in LangChain's form.
        details: The message's metadata.
        stage: The number of resumes before it.
        place: The graph task that requested it; empty outside graphs.
        is_object: Whether a tool call in it is a requested object.
    """

    message: AIMessage | None
    usage: Mapping[str, Any] | None
    details: Mapping[str, Any]
    stage: int
    place: str
    is_object: bool


@dataclass(slots=True)
class ToolRun:
    """A tool run.

    Args:
        name: The tool.
        arguments: The arguments of the run.
        call_id: The id of the model's call; empty if unknown.
        start: The start time, in seconds of a process clock.
        stage: The number of resumes before it.
        place: The graph task that ran it; empty outside graphs.
        duration_ms: The duration; None until it ended.
        result: The return value.
        is_error: Whether it failed.
    """

    name: str
    arguments: Any
    call_id: str
    start: float
    stage: int
    place: str
    duration_ms: float | None = None
    result: Any = None
    is_error: bool = False


class TraceCallbacks(BaseCallbackHandler):  # type: ignore[misc]  # LangChain is not installed where types are checked
    """Observes a run of a runnable, including subgraphs, tools and failures.

    Attributes:
        stage: The number of resumes so far.
        stopped: The tool run in which a graph was interrupted, by the interrupt's id.
    """

    run_inline = True  # in the order of events

    def __init__(self) -> None:
        self.stage = 0
        self.stopped: dict[str, ToolRun] = {}
        self._calls: dict[UUID, tuple[str, bool]] = {}
        self._replies: dict[UUID, _Reply] = {}
        self._tool_runs: dict[UUID, ToolRun] = {}
        self._documents: list[Document] = []
        self._written: list[BaseMessage] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **details: Any) -> None:
        """Record where a model is called, and for what."""
        self.on_llm_start(serialized, [], run_id=run_id, **details)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **details: Any) -> None:
        """Record where a model is called, and for what."""
        self._calls[run_id] = _place(details), _STRUCTURED in (details.get("options") or ())

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """Record a model's reply and its usage."""
        place, is_object = self._calls.get(run_id, ("", False))
        for generation in response.generations[0][:1]:
            message = getattr(generation, "message", None)
            usage = getattr(message, "usage_metadata", None)
            self._replies[run_id] = _Reply(
                message if isinstance(message, AIMessage) else None,
                # Older models report a total usage for all of their generations.
                usage or (response.llm_output or {}).get("token_usage"),
                {**(generation.generation_info or {}), **getattr(message, "response_metadata", {})},
                self.stage,
                place,
                is_object,
            )

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **details: Any) -> None:
        """Record a tool call."""
        arguments = details.get("inputs")
        name = details.get("name") or (serialized or {}).get("name") or "tool"
        call_id = details.get("tool_call_id") or ""
        self._tool_runs[run_id] = ToolRun(
            name,
            input_str if arguments is None else arguments,
            call_id,
            time.perf_counter(),
            self.stage,
            _place(details),
        )

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Record a tool's result."""
        run = self._end(run_id)
        message = _tool_message(output, run.call_id)
        run.result = message or output
        if message is not None:
            run.is_error = message.status == "error"
            run.call_id = run.call_id or message.tool_call_id

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Record a tool's exception; an interrupt, a jump to another graph or a timeout is not a failure."""
        if not isinstance(error, Exception):
            return
        run = self._end(run_id)
        if isinstance(error, GraphInterrupt):
            del self._tool_runs[run_id]  # the graph runs it again when it is resumed
            for interrupt in error.args[0] if error.args else ():
                self.stopped.setdefault(interrupt.id, run)
        elif isinstance(error, ParentCommand):
            run.result = _tool_message(error.args[0], run.call_id)
        else:
            run.result, run.is_error = f"{type(error).__name__}: {error}", True

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **_: Any) -> None:
        """Record a retriever's documents."""
        self._documents += documents

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """Record the messages that a node wrote: a run that does not finish has no state."""
        update = outputs if isinstance(outputs, dict) else getattr(outputs, "update", None)
        for value in update.values() if isinstance(update, dict) else ():
            for message in value if isinstance(value, list | tuple) else (value,):
                if isinstance(message, BaseMessage):
                    self._written.append(message)

    def trace(
        self,
        messages: Iterable[BaseMessage] | None = None,
        documents: Sequence[Document] = (),
        *,
        earlier: Iterable[BaseMessage] = (),
        outputs: Sequence[object] = (),
    ) -> AgentResponse:
        """Return the trace so far, without the text.

        Args:
            messages: The messages that the runnable added to its state, which reveal models and tools outside
                LangChain; None if it has not ended: its nodes' messages are used.
            documents: Documents of its result. If there are any, they are the sources: a graph may have sorted or
                dropped its retrievers' documents.
            earlier: The messages before the run.
            outputs: Typed results; the call that delivered one is not a tool call.
        """
        old = list(earlier)
        if messages is None:
            known = {message.id for message in old}
            messages = [message for message in self._written if message.id not in known]
        state = _unique(messages)
        results = {added.tool_call_id: added for added in state if isinstance(added, ToolMessage)}
        replies = [added for added in state if isinstance(added, AIMessage)]
        seen = list(self._replies.values()) or [
            _Reply(added, added.usage_metadata, added.response_metadata, 0, "", is_object=False)
            for added in replies
            if added.usage_metadata or _model_name(added.response_metadata)
        ]
        last = seen[-1].details if seen else {}
        return AgentResponse(
            tool_calls=tuple(self._tool_calls(replies, results, _call_keys(old), outputs)),
            sources=sources_of(
                documents or [*self._documents, *self._artifacts(results)],
                [added.message for added in list(self._replies.values()) if added.message is not None] or replies,
            ),
            usage=_usage([reply.usage for reply in seen]),
            model=_model_name(last),
            finish_reason=str(last.get("finish_reason") or last.get("stop_reason") or last.get("done_reason") or ""),
        )

    def _end(self, run_id: UUID) -> ToolRun:
        run = self._tool_runs[run_id]
        run.duration_ms = (time.perf_counter() - run.start) * 1000
        return run

    def _tool_calls(
        self, messages: list[AIMessage], results: Mapping[str, ToolMessage], old: set[str], outputs: Sequence[object]
    ) -> Iterable[ToolCall]:
        """Yield the calls that models requested, in order, then runs without a request."""
        runs = _without_repeated(list(self._tool_runs.values()))
        names = {type(value).__name__ for value in outputs}
        objects = [plain(value) for value in outputs]
        seen: set[tuple[str, str, str]] = set()
        for call, is_certain in self._asked(messages, old):
            if isinstance(call, ToolCall):
                yield call
                continue
            call_id, name, arguments = call["id"] or "", call["name"] or "", call["args"]
            run = next((run for run in runs if _is_of(run, call_id, name, arguments)), None)
            if run is not None:
                runs.remove(run)
            elif not is_certain or (call_id, name, json_of(arguments)) in seen:
                continue  # requested again when its node was resumed, or a copy
            elif name in names or (arguments and arguments in objects):
                continue  # a model's way to deliver a typed result
            seen.add((call_id, name, json_of(arguments)))
            yield _tool_call(name, call_id, arguments, run, results.get(call_id))
        for run in runs:
            yield _tool_call(run.name, run.call_id, run.arguments, run, results.get(run.call_id))

    def _asked(self, messages: list[AIMessage], old: set[str]) -> Iterable[tuple[Any, bool]]:
        """Yield each call that a model requested or its provider ran, and whether it counts if it never ran."""
        seen = list(self._replies.values())
        last_stage = {reply.place: reply.stage for reply in seen}
        known = set(old)
        ids = set()
        for reply in seen:
            if reply.message is not None:
                ids.add(reply.message.id)
                is_last = not reply.place or reply.stage == last_stage[reply.place]
                for call in _hosted(reply.message):
                    yield call, True
                for call in _calls_of(reply.message):
                    known.add(_key(call))
                    if not reply.is_object:
                        yield call, is_last
        for message in messages:
            if message.id is None or message.id not in ids:
                for call in (*(() if seen else _hosted(message)), *_calls_of(message)):
                    if isinstance(call, ToolCall) or _key(call) not in known:
                        yield call, True

    def _artifacts(self, results: Mapping[str, ToolMessage]) -> Iterable[Document]:
        outputs = [run.result for run in list(self._tool_runs.values())]
        for message in (*outputs, *results.values()):
            if isinstance(message, ToolMessage):
                yield from documents_in(message.artifact)
            else:
                yield from documents_in(message)


def _place(details: Mapping[str, Any]) -> str:
    return str((details.get("metadata") or {}).get("langgraph_checkpoint_ns") or "")


def _tool_message(output: Any, call_id: str) -> ToolMessage | None:
    """Return a tool's message, also if the tool returned it as an update of a graph's state."""
    if isinstance(output, ToolMessage):
        return output
    update = getattr(output, "update", None)
    messages = update.get("messages") if isinstance(update, dict) else None
    candidates = (
        [message for message in messages if isinstance(message, ToolMessage)]
        if isinstance(messages, list | tuple)
        else []
    )
    return next((message for message in candidates if message.tool_call_id == call_id or not call_id), None)


def _unique(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return messages without repeats; messages without an id are all distinct."""
    unique: dict[Any, BaseMessage] = {}
    for message in messages:
        unique.setdefault(message.id or id(message), message)
    return list(unique.values())


def _calls_of(message: AIMessage) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _hosted(message: AIMessage) -> list[ToolCall]:
    """Return the tool calls that a model's provider ran itself, with their results."""
    blocks = blocks_of(message)
    results = {block.get("tool_call_id"): block for block in blocks if block["type"] == "server_tool_result"}
    calls = []
    for block in blocks:
        if block["type"] == "server_tool_call":
            result = results.get(block.get("id"), {})
            output = result.get("output", (result.get("extras") or {}).get("error"))
            calls.append(
                ToolCall(
                    name=(block.get("extras") or {}).get("tool_name")
                    or block.get("name")
                    or "tool",  # from an MCP server
                    id=block.get("id") or "",
                    arguments_json=json_of(block.get("args")),
                    result_json=json_of(output) if output is not None else "",
                    is_error=result.get("status") == "error",
                )
            )
    return calls


def _key(call: Any) -> str:
    """Return a key that a call shares with its copies."""
    return call["id"] or f"{call['name']} {json_of(call['args'])}"


def _call_keys(messages: Iterable[BaseMessage]) -> set[str]:
    return {_key(call) for message in messages if isinstance(message, AIMessage) for call in _calls_of(message)}


def _without_repeated(runs: list[ToolRun]) -> list[ToolRun]:
    """Return tool runs without repeats for the same call, or by a resumed graph task."""
    keys = [(run.place, run.call_id, run.name, json_of(run.arguments)) for run in runs]
    last = dict(zip(keys, runs, strict=True))
    return [
        run
        for run, key in zip(runs, keys, strict=True)
        if not run.place or last[key] is run or (not run.call_id and last[key].stage == run.stage)
    ]


def _is_of(run: ToolRun, call_id: str, name: str, arguments: Any) -> bool:
    """Return whether a tool run belongs to a call; a graph that runs a tool itself may not pass the call's id."""
    return run.call_id == call_id if run.call_id else (run.name, run.arguments) == (name, arguments)


def _tool_call(name: str, call_id: str, arguments: Any, run: ToolRun | None, message: ToolMessage | None) -> ToolCall:
    """Return a call with the arguments of the tool run: a person may have edited the model's."""
    result = run.result if run is not None else None
    is_error = run is not None and run.is_error
    has_ended = (
        run is None or run.duration_ms is not None
    )  # otherwise the message is of a nested agent's call with the same id
    if message is not None and has_ended and not isinstance(result, ToolMessage):
        result = message  # the text the model saw, also when the tool raised
        is_error = is_error or message.status == "error"
    if isinstance(result, ToolMessage):
        result = result.content
    if run is not None and isinstance(run.arguments, dict):
        arguments = run.arguments
    return ToolCall(
        name=(run.name if run is not None and run.call_id else name) or "tool",
        id=call_id,
        arguments_json=json_of(arguments),
        result_json=json_of(result) if result is not None else "",
        is_error=is_error,
        duration_ms=run.duration_ms if run is not None else None,
    )


def _model_name(details: Mapping[str, Any]) -> str:
    return str(details.get("model_name") or details.get("model") or "")


def _counts(usage: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Return the tokens of a model call; None if unknown."""
    counts = read_counts(usage or {}, lambda count, _: count if type(count) is int else None)
    if "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    return {"total_tokens": counts["input_tokens"] + counts["output_tokens"], **counts}


def _usage(usages: Sequence[Mapping[str, Any] | None]) -> Usage | None:
    """Return the sum over model calls; without tokens if any call reported none."""
    if not usages:
        return None
    known = [counts for counts in map(_counts, usages) if counts is not None]
    sums = Counter[str]()
    if len(known) == len(usages):
        for counts in known:
            sums.update(counts)
    return Usage(**{**sums, "requests": len(usages)})
