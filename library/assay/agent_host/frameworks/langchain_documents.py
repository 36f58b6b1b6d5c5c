"""LangChain documents in results and artifacts, as the sources of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage

from assay.agent_host.frameworks.answers import plain
from assay.model.answers.agent_response import Source
from assay.model.answers.response_names import source_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_core.messages import BaseMessage

_MAX_DEPTH = 4


def documents_in(value: object, depth: int = _MAX_DEPTH) -> list[Document]:
    """Return the documents in a value, searching its lists and mappings a few levels deep."""
    if isinstance(value, Document):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list | tuple) or not depth:
        return []
    return [document for item in value for document in documents_in(item, depth - 1)]


def without_documents(value: object, depth: int = _MAX_DEPTH) -> Any:
    """Return a value without its documents and without containers left empty; None if nothing is left."""
    if isinstance(value, Document):
        return None
    if not documents_in(value, depth):
        return value
    if isinstance(value, dict):
        fields = {key: without_documents(item, depth - 1) for key, item in value.items()}
        return {key: item for key, item in fields.items() if item is not None} or None
    items = list(value)  # type: ignore[call-overload]  # documents are in it
    if any(isinstance(item, Document) for item in items):
        items = [item for item in items if not isinstance(item, Document | float)]  # pairs of a document and its score
    rest = [without_documents(item, depth - 1) for item in items]
    return [item for item in rest if item is not None] or None


def sources_of(documents: Iterable[Document], messages: Iterable[BaseMessage]) -> tuple[Source, ...]:
    """Return documents as sources, in order without repeats; without documents, the messages' citations."""
    sources: dict[tuple[str, str, str], Source] = {}
    for source in list(map(_source, documents)) or _citations_in(messages):
        sources.setdefault((source.id, source.uri, source.content), source)
    return tuple(sources.values())


def _citations_in(messages: Iterable[BaseMessage]) -> Iterator[Source]:
    """Yield the results of provider-run file searches, and the citations in models' texts."""
    for block in (block for message in messages for block in blocks_of(message)):
        if block["type"] == "server_tool_result":
            for item in block.get("output") if isinstance(block.get("output"), list) else ():
                if isinstance(item, dict) and item.get("file_id"):
                    parts = source_parts(item | {"id": item["file_id"]})
                    yield Source(
                        id=parts.id, title=parts.title, uri=parts.uri, content=parts.content, score=parts.score
                    )
        for note in block.get("annotations") or () if block["type"] == "text" else ():
            if note.get("type") == "citation" and (note.get("url") or note.get("title")):
                cited = note.get("cited_text") or ""
                yield Source(title=note.get("title") or "", uri=note.get("url") or "", content=cited)


def blocks_of(message: BaseMessage) -> list[Any]:
    """Return a message's parts in LangChain's provider-independent form; empty for plain text."""
    return message.content_blocks if isinstance(message, AIMessage) and isinstance(message.content, list) else []


def _source(document: Document) -> Source:
    """Return a document as a source; other metadata stays metadata."""
    metadata = dict(plain(document.metadata))
    name = metadata.get("source")
    if name and isinstance(name, str) and "uri" not in metadata:
        # LangChain's loaders identify a document by `source`, whatever other addresses it has.
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
