"""The names that frameworks and providers use for tool calls and sources, in one table for all readers.

Answers of agents, recorded answers, traces and datasets are read with it. `assay.model.answers.usage_names` has the
names of token counts. Values are returned unchecked: each reader raises its own errors.
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
"""The answer fields that may hold tool calls."""

RETRIEVED_KEYS = ("retrieved", "events", "retrieved_items")
"""The answer fields that hold retrieved items; a string in them is a title."""

PASSAGE_KEYS = (
    "retrieved_contexts", "retrieval_context", "retrieved_documents", "retrieved_passages", "source_documents",
    "source_nodes", "contexts", "passages",
)  # fmt: skip
"""Further fields of retrieved items; a string in them is a passage."""

SOURCE_KEYS = ("sources", "citations", "search_results", "searchResults")
"""The answer fields that may hold sources."""

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
"""The fields of a requested call; further fields are its result and additions of a tool."""

_NO_ARGUMENTS = frozenset({
    *CALL_FIELDS, *_RESULTS, "result_json", "error", "metadata", "meta", "extra", "extra_content", "caller", "origin",
    "usage", "cache_control", "annotations", "provider_metadata", "providerMetadata", "provider_options",
    "providerOptions", "provider_details", "provider_specific_fields", "additional_properties", "events", "logs",
})  # fmt: skip
"""Fields of a call that may hold an object other than its arguments."""

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
"""Fields that hold a name or a path; a longer text in them is the document itself."""
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
    """The parts of a tool call, unchecked.

    Args:
        name: The tool's name; None if there is none.
        arguments: The arguments, parsed if they are JSON text; None if there are none.
        arguments_key: The field of the arguments; empty if there are none.
        id: The call's id.
        result: The tool's result; None if there is none.
        is_error: Whether the call failed.
        unread: Fields that may be its arguments under an unknown name.
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
    """The texts that describe a source, and the fields they come from."""

    id: str
    title: str
    uri: str
    content: str
    score: float | None
    used: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether the source has neither a name nor a text."""
        return not (self.id or self.title or self.uri or self.content)


def call_parts(call: Mapping[Any, Any]) -> CallParts:
    """Return the parts of a tool call, in any framework's form."""
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
        is_error=any(layer.get(flag) is True for layer in layers for flag in ("is_error", "isError"))
        or call.get("status") == "error"
        or (bool(error) and isinstance(error, bool | str | Mapping)),
        unread=() if key else tuple(_possible_arguments(layers)),
    )


def source_parts(source: Mapping[Any, Any]) -> SourceParts:
    """Return the parts of a source; its own fields take precedence over those of its document or metadata."""
    layers = list(_source_layers(source))
    used: set[str] = set()

    def value(names: Iterable[str], accepts: Callable[[Any], bool]) -> Any:
        key, content = _found(layers, names, accepts)
        if key and content is source.get(key):
            used.add(key)
        return content

    def text(names: Iterable[str], accepts: Callable[[str], bool] = bool) -> str:
        content = value(names, lambda value: _is_name(value) and accepts(str(value)))
        return "" if content is None else str(content)

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
    """Return the names of a mapping's non-empty fields, for messages."""
    names = [repr(str(key))[:60] for key, value in data.items() if value is not None and value != ""]
    return ", ".join(names[:_MOST_NAMED]) + ("" if len(names) <= _MOST_NAMED else ", …") or "none"


def _source_layers(source: Mapping[Any, Any]) -> Iterable[Mapping[Any, Any]]:
    level = [source]
    for _ in range(3):
        yield from level
        level = [layer[key] for layer in level for key in _SOURCE_HOLDERS if isinstance(layer.get(key), Mapping)]
    yield from (layer["content"] for layer in (source,) if isinstance(layer.get("content"), Mapping))  # Bedrock: {text}


def _found(
    layers: Iterable[Mapping[Any, Any]], names: Iterable[str], accepts: Callable[[Any], bool] = lambda _: True
) -> tuple[str, Any]:
    """Return the first non-empty field with its value; ("", None) if there is none."""
    names = tuple(names)
    for layer in layers:
        for name in names:
            value = layer.get(name)
            if value is not None and value != "" and accepts(value):
                return name, value
    return "", None


def _found_arguments(layers: Iterable[Mapping[Any, Any]]) -> tuple[str, Any]:
    """Return the field of a call's arguments, and them; empty arguments only if no other field has any."""
    first = ("", None)
    for layer in layers:
        for name in ARGUMENTS:
            raw = layer.get(name)
            if raw is None or raw == "":
                continue
            value = _value_of(raw)
            if value not in (None, {}, []):
                return name, value
            first = first if first[0] else (name, value)
    return first


def _value_of(arguments: Any) -> Any:
    """Return arguments: JSON text is parsed, blank text is None, other text is unchanged."""
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
    """Return the object that `str` turned into this text, or the text."""
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
