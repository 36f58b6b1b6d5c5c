"""The names under which frameworks and providers write calls of tools and sources: one table for all readers.

Answers of agents, recorded answers, traces and datasets are read by it. The names of token counts are in
`assay.model.answers.usage_names`. What is found is unchecked: each reader has its own errors.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TOOL_CALL_KEYS = (
    "tool_calls", "toolCalls", "tools_called", "toolsCalled", "tools_used", "toolsUsed", "function_calls",
    "functionCalls", "tool_uses", "toolUses", "tool_invocations", "toolInvocations",
)  # fmt: skip
"""The fields of an answer that may hold its calls of tools."""

RETRIEVED_KEYS = ("retrieved", "events", "retrieved_items")
"""The fields of an answer that hold what was retrieved; a text in them is a title."""

PASSAGE_KEYS = (
    "retrieved_contexts", "retrieval_context", "retrieved_documents", "retrieved_passages", "source_documents",
    "source_nodes", "contexts", "passages",
)  # fmt: skip
"""Further such fields; a text in them is a passage."""

SOURCE_KEYS = ("sources", "citations", "search_results", "searchResults")
"""The fields of an answer that may hold its sources."""

_CALL_HOLDERS = (
    "function", "functionCall", "function_call", "toolUse", "tool_use", "toolCall", "tool_call", "tool", "custom",
    "raw_item",
)  # fmt: skip
TOOL_NAMES = (
    "name", "tool_name", "toolName", "function_name", "functionName", "tool", "function",
)  # fmt: skip
ARGUMENTS = (
    "arguments", "args", "input", "parameters", "params", "kwargs", "tool_input", "toolInput", "tool_args", "toolArgs",
    "tool_arguments", "toolArguments", "tool_kwargs", "input_parameters", "inputParameters", "function_args",
    "raw_input", "action_input",
)  # fmt: skip
_CALL_IDS = ("call_id", "callId", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "tool_id", "toolId", "id")
_RESULTS = (
    "result", "output", "response", "tool_output", "toolOutput", "tool_result", "toolResult", "raw_output",
    "observation",
)  # fmt: skip
CALL_FIELDS = frozenset({*_CALL_HOLDERS, *TOOL_NAMES, *ARGUMENTS, *_CALL_IDS, "type"})
"""What a call that is asked for may have; further fields are its result and what a tool adds."""

_NO_ARGUMENTS = frozenset({
    *CALL_FIELDS, *_RESULTS, "result_json", "error", "metadata", "meta", "extra", "extra_content", "caller", "origin",
    "usage", "cache_control", "annotations", "provider_metadata", "providerMetadata", "provider_options",
    "providerOptions", "provider_details", "provider_specific_fields", "additional_properties", "events", "logs",
})  # fmt: skip
"""Fields of a call that may hold an object which is not its arguments."""

_IDS = ("id", "document_id", "documentId", "doc_id", "docId", "source_id", "sourceId", "chunk_id", "chunkId",
        "node_id", "nodeId", "passage_id", "record_id", "file_id", "fileId", "id_", "_id")  # fmt: skip
_TITLES = ("title", "Title", "name", "Name", "document_name", "documentName", "document_title", "documentTitle",
           "doc_name", "doc_title", "docTitle", "source_name", "source_title", "page_title", "display_name",
           "displayName", "heading", "headline", "file_name", "fileName", "filename", "sourcefile", "source_file",
           "sourcepage", "label")  # fmt: skip
_ADDRESSES = ("uri", "url", "URI", "URL", "Url", "link", "href", "permalink", "source_url", "sourceUrl", "source_uri",
              "document_url", "doc_url", "page_url", "website", "web_url", "file_path", "filePath", "filepath",
              "path")  # fmt: skip
_PLACES = ("source", "file", "reference", "ref", "citation", "document", "doc")
"""Names of a field that holds a name or a path; a longer text in one of them is the document itself."""
_CONTENTS = ("content", "text", "page_content", "pageContent", "passage", "snippet", "chunk", "chunk_text", "excerpt",
             "cited_text", "quote", "body")  # fmt: skip
_SCORES = ("score", "_score", "@search.score", "relevance_score", "relevanceScore", "similarity", "similarity_score")
_SOURCE_HOLDERS = (
    "node", "document", "doc", "source", "web", "retrievedContext", "retrieved_context", "url_citation",
    "file_citation", "maps", "location", "s3Location", "webLocation", "confluenceLocation", "sharePointLocation",
    "salesforceLocation", "customDocumentLocation", "metadata", "meta", "payload", "properties", "entity", "_source",
    "attributes", "fields", "extra_info", "kwargs",
)  # fmt: skip
_MOST_NAMED, _MOST_PLACE_CHARS = 8, 300
_MOST_SCORE = 1e300
_MOST_LITERAL_CHARS, _MOST_BRACES = 10_000, 50


@dataclass(frozen=True, slots=True)
class CallParts:
    """What a call of a tool says of itself, unchecked.

    Args:
        name: The tool's name; None where there is none.
        arguments: Them, read where they are JSON text; None where there are none.
        arguments_key: The field that has them; empty where there are none.
        id: The call's id.
        result: The tool's result; None where there is none.
        is_error: Whether the call failed.
        unread: Fields that may be its arguments under a name that is not known.
    """

    name: object
    arguments: Any
    arguments_key: str
    id: object
    result: Any
    is_error: bool
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceParts:
    """What a source says of itself: texts, and the fields that they come from."""

    id: str
    title: str
    uri: str
    content: str
    score: float | None
    used: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing names the source or says what it is."""
        return not (self.id or self.title or self.uri or self.content)


def call_parts(call: Mapping[Any, Any]) -> CallParts:
    """Return the parts of a call of a tool, as any of the frameworks writes it."""
    inner: Mapping[Any, Any] = next((call[key] for key in _CALL_HOLDERS if isinstance(call.get(key), Mapping)), {})
    layers = (inner, call)
    _, name = _found(layers, TOOL_NAMES, lambda value: not isinstance(value, Mapping))
    key, arguments = _found_arguments(layers)
    _, result = _found((call, inner), _RESULTS)
    error = call.get("error", inner.get("error"))
    return CallParts(
        name=name,
        arguments=arguments,
        arguments_key=key,
        id=_found((call, inner), _CALL_IDS)[1],
        result=error if result is None and isinstance(error, str | Mapping) else result,
        is_error=any(one.get(flag) is True for one in layers for flag in ("is_error", "isError"))
        or call.get("status") == "error"
        or (bool(error) and isinstance(error, bool | str | Mapping)),
        unread=() if key else tuple(_possible_arguments(layers)),
    )


def source_parts(source: Mapping[Any, Any]) -> SourceParts:
    """Return the parts of a source; fields of its own come before those of its document or metadata."""
    layers = list(_source_layers(source))
    used: set[str] = set()

    def value(names: Iterable[str], accepts: Callable[[Any], bool]) -> Any:
        key, found = _found(layers, names, accepts)
        if key and found is source.get(key):
            used.add(key)
        return found

    def text(names: Iterable[str], accepts: Callable[[str], bool] = bool) -> str:
        found = value(names, lambda value: _is_name(value) and accepts(str(value)))
        return "" if found is None else str(found)

    score = value(_SCORES, _is_score)
    return SourceParts(
        id=text(_IDS),
        title=text(_TITLES),
        uri=text(_ADDRESSES) or text(_PLACES, _is_short),
        content=text(_CONTENTS) or text(_PLACES, lambda place: not _is_short(place)),
        score=None if score is None else float(score),
        used=frozenset(used),
    )


def fields_of(data: Mapping[Any, Any]) -> str:
    """Return the names of the fields of a mapping that hold something, for messages."""
    names = [repr(str(key))[:60] for key, value in data.items() if value is not None and value != ""]
    return ", ".join(names[:_MOST_NAMED]) + ("" if len(names) <= _MOST_NAMED else ", …") or "none"


def _source_layers(source: Mapping[Any, Any]) -> Iterable[Mapping[Any, Any]]:
    level = [source]
    for _ in range(3):
        yield from level
        level = [one[key] for one in level for key in _SOURCE_HOLDERS if isinstance(one.get(key), Mapping)]
    yield from (one["content"] for one in (source,) if isinstance(one.get("content"), Mapping))  # Bedrock: {text}


def _found(
    layers: Iterable[Mapping[Any, Any]], names: Iterable[str], accepts: Callable[[Any], bool] = lambda _: True
) -> tuple[str, Any]:
    """Return the first of the fields that holds something, and what it holds; ("", None) where none does."""
    names = tuple(names)
    for layer in layers:
        for name in names:
            value = layer.get(name)
            if value is not None and value != "" and accepts(value):
                return name, value
    return "", None


def _found_arguments(layers: Iterable[Mapping[Any, Any]]) -> tuple[str, Any]:
    """Return the field that holds the arguments of a call, and them; empty ones only where no other field has any."""
    first = ("", None)
    for layer in layers:
        for name in ARGUMENTS:
            given = layer.get(name)
            if given is None or given == "":
                continue
            value = _value_of(given)
            if value not in (None, {}, []):
                return name, value
            first = first if first[0] else (name, value)
    return first


def _value_of(arguments: Any) -> Any:
    """Return arguments that are JSON text as the value that they are, blank ones as None, another text as it is."""
    if isinstance(arguments, str):
        if not arguments.strip():
            return None
        try:
            value = json.loads(arguments, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return _python_object(arguments)
        return _value_of(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value
    if isinstance(arguments, Mapping) and arguments.keys() == {"args", "kwargs"} and not arguments["args"]:
        return arguments["kwargs"]  # LlamaIndex
    if isinstance(arguments, list) and arguments and all(map(_is_named_value, arguments)):
        return {item["name"]: item["value"] for item in arguments}  # agents of Bedrock
    return arguments


def _python_object(text: str) -> Any:
    """Return the object that a text is as `str` writes it, or the text."""
    if not text.lstrip().startswith("{") or len(text) > _MOST_LITERAL_CHARS or text.count("{") > _MOST_BRACES:
        return text
    try:
        value = ast.literal_eval(text.strip())
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
    return value if isinstance(value, dict) else text


def _is_named_value(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str) and "value" in item


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _possible_arguments(layers: Iterable[Mapping[Any, Any]]) -> Iterable[str]:
    for layer in layers:
        for name, value in layer.items():
            is_object = isinstance(value, Mapping | list) and value
            if name not in _NO_ARGUMENTS and (is_object or (isinstance(value, str) and value.lstrip()[:1] == "{")):
                yield str(name)


def _is_name(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_short(text: str) -> bool:
    return len(text) <= _MOST_PLACE_CHARS and "\n" not in text


def _is_score(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_SCORE
