"""What happened in a runnable of LangChain: models called, tools run, documents found, seen through its callbacks."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage

from assay.agent_host.frameworks.answers import json_of, plain
from assay.model.agent_response import AgentResponse, Source, ToolCall, Usage
from assay.model.response_names import source_parts
from assay.model.usage_names import read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID


@dataclass(slots=True)
class _ToolRun:
    name: str
    arguments: Any
    call_id: str
    start: float
    duration_ms: float | None = None
    result: Any = None
    is_error: bool = False


class TraceCallbacks(BaseCallbackHandler):  # type: ignore[misc]  # LangChain is not installed where types are checked
    """Sees one run of a runnable, in subgraphs and tools too, and one that fails."""

    run_inline = True  # in the order of events

    def __init__(self) -> None:
        self._replies: list[AIMessage] = []
        self._usages: list[Mapping[str, Any] | None] = []
        self._tool_runs: dict[UUID, _ToolRun] = {}
        self._documents: list[Document] = []

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """Note the reply of a model, and its usage."""
        for generation in response.generations[0][:1]:
            message = getattr(generation, "message", None)
            usage = getattr(message, "usage_metadata", None)
            if isinstance(message, AIMessage):
                self._replies.append(message)
            # Older models report their usage for all of their generations together.
            self._usages.append(usage or (response.llm_output or {}).get("token_usage"))

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **details: Any) -> None:
        """Note the call of a tool."""
        arguments = details.get("inputs")
        name = details.get("name") or (serialized or {}).get("name") or "tool"
        call_id = details.get("tool_call_id") or ""
        self._tool_runs[run_id] = _ToolRun(
            name, input_str if arguments is None else arguments, call_id, time.perf_counter()
        )

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Note the result of a tool."""
        run = self._end(run_id)
        run.result = output
        if isinstance(output, ToolMessage):
            run.is_error = output.status == "error"

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Note what a tool raised."""
        run = self._end(run_id)
        run.result, run.is_error = f"{type(error).__name__}: {error}", True

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **_: Any) -> None:
        """Note the documents that a retriever found."""
        self._documents += documents

    def trace(self, messages: Iterable[Any] = (), found: Sequence[Document] = ()) -> AgentResponse:
        """Return what was seen until now, but the text.

        Args:
            messages: Those that the runnable added to its state; models and tools that are not LangChain's are known
                from them alone.
            found: Documents of its result. Where there are any, they are the sources: a graph may have sorted or left
                out what its retrievers found.
        """
        messages = list(messages)
        replies = _unique_replies([*self._replies, *(one for one in messages if isinstance(one, AIMessage))])
        results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
        last = replies[-1].response_metadata if replies else {}
        usages = [*self._usages, *(one.usage_metadata for one in replies[len(self._replies) :])]
        return AgentResponse(
            tool_calls=tuple(self._tool_calls(replies, results)),
            sources=_sources(found or [*self._documents, *self._artifacts(results)]),
            usage=_usage(usages),
            model=str(last.get("model_name") or last.get("model") or ""),
            finish_reason=str(last.get("finish_reason") or last.get("stop_reason") or last.get("done_reason") or ""),
        )

    def _end(self, run_id: UUID) -> _ToolRun:
        run = self._tool_runs[run_id]
        run.duration_ms = (time.perf_counter() - run.start) * 1000
        return run

    def _tool_calls(self, replies: list[AIMessage], results: Mapping[str, ToolMessage]) -> Iterable[ToolCall]:
        """Yield the calls that models asked for, in their order, then those that were made without one."""
        runs = list(self._tool_runs.values())
        for call in (call for reply in replies for call in (*reply.tool_calls, *reply.invalid_tool_calls)):
            call_id, name, arguments = call["id"] or "", call["name"] or "", call["args"]
            run = next((run for run in runs if _is_of(run, call_id, name, arguments)), None)
            if run is not None:
                runs.remove(run)
            yield _tool_call(name, call_id, arguments, run, results.get(call_id))
        for run in runs:
            yield _tool_call(run.name, run.call_id, run.arguments, run, results.get(run.call_id))

    def _artifacts(self, results: Mapping[str, ToolMessage]) -> Iterable[Document]:
        outputs = [run.result for run in self._tool_runs.values()]
        for message in (*outputs, *results.values()):
            if isinstance(message, ToolMessage):
                yield from documents_in(message.artifact)
            else:
                yield from documents_in(message)


def documents_in(value: object) -> list[Document]:
    """Return the documents that a value is, is a list of, or has as a field."""
    if isinstance(value, Document):
        return [value]
    if isinstance(value, dict):
        return [
            document for item in value.values() if isinstance(item, list | tuple) for document in documents_in(item)
        ]
    if isinstance(value, list | tuple) and value and all(isinstance(item, Document) for item in value):
        return list(value)
    return []


def _is_of(run: _ToolRun, call_id: str, name: str, arguments: Any) -> bool:
    """Return whether a tool's run is that of a call; a graph that runs a tool by hand may not pass the call's id."""
    return run.call_id == call_id if run.call_id else (run.name, run.arguments) == (name, arguments)


def _tool_call(name: str, call_id: str, arguments: Any, run: _ToolRun | None, message: ToolMessage | None) -> ToolCall:
    """Return a call; the message of its result is what the model saw, where the tool raised too."""
    result = message or (run.result if run is not None else None)
    is_error = bool(run and run.is_error) or bool(message and message.status == "error")
    if isinstance(result, ToolMessage):
        result = result.content
    return ToolCall(
        name=name or "tool",
        id=call_id,
        arguments_json=json_of(arguments),
        result_json=json_of(result) if result is not None else "",
        is_error=is_error,
        duration_ms=run.duration_ms if run is not None else None,
    )


def _unique_replies(replies: Iterable[AIMessage]) -> list[AIMessage]:
    """Return each reply once: a model's comes through its callback and again in the state."""
    found: dict[Any, AIMessage] = {}
    for reply in replies:
        found.setdefault(reply.id or id(reply), reply)
    return list(found.values())


def _sources(documents: Iterable[Document]) -> tuple[Source, ...]:
    """Return documents as sources, each once, in their order."""
    found: dict[tuple[str, str, str], Source] = {}
    for document in documents:
        source = _source(document)
        found.setdefault((source.id, source.uri, source.content), source)
    return tuple(found.values())


def _source(document: Document) -> Source:
    """Return a document as a source; what its metadata has beside the parts of a source stays metadata."""
    metadata = dict(plain(document.metadata))
    name = metadata.get("source")
    if name and isinstance(name, str) and "uri" not in metadata:
        # LangChain's loaders name a document by `source`, whatever addresses it has beside that.
        metadata["uri"] = metadata.pop("source")
    own = {"id": str(document.id)} if document.id else {}
    parts = source_parts(metadata | own)
    used = parts.used - own.keys()
    return Source(
        id=parts.id,
        title=parts.title,
        uri=parts.uri,
        content=document.page_content,
        score=parts.score,
        metadata={key: value for key, value in metadata.items() if key not in used},
    )


def _counts(usage: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Return the tokens of one call of a model; None where they are not known."""
    counts = read_counts(usage or {}, lambda count, _: count if type(count) is int else None)
    if "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    return {"total_tokens": counts["input_tokens"] + counts["output_tokens"], **counts}


def _usage(usages: Sequence[Mapping[str, Any] | None]) -> Usage | None:
    """Return the sum over the calls of models; without tokens where one of them reported none."""
    if not usages:
        return None
    known = [counts for counts in map(_counts, usages) if counts is not None]
    sums = Counter[str]()
    if len(known) == len(usages):
        for counts in known:
            sums.update(counts)
    return Usage(**{**sums, "requests": len(usages)})
