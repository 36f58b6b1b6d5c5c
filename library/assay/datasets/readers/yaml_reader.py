"""YAML: a list of cases, or a mapping with the list under a known key; read item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import yaml

from assay.datasets.readers.json_reader import is_container_key, no_list, two_lists
from assay.datasets.records import MAX_RAW_CHARS, BadFileError, Record
from assay.parsing.yaml_nodes import YamlSyntaxError, compose, construct, iterate_events

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_AHEAD_CHARS = 64 * 1024


def read_yaml(stream: TextIO, top: dict[str, Any]) -> Iterator[Record]:
    """Yield the items of a list, or of the list under a known key of a mapping.

    A mapping without such a list is the only record itself.

    Args:
        stream: The text.
        top: Receives the mapping's data beside the list.
    """
    limited = _Limited(stream)
    events = iterate_events(limited)
    seen = False
    try:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise BadFileError("holds more than one YAML document: keep one", _line(event))
                seen = True
            elif isinstance(event, yaml.SequenceStartEvent):
                yield from _items(events, limited)
            elif isinstance(event, yaml.MappingStartEvent):
                yield from _mapping(event, events, limited, top)
            elif isinstance(event, yaml.NodeEvent):
                raise BadFileError("holds neither a list of cases nor a mapping with one", _line(event))
    except YamlSyntaxError as error:
        raise BadFileError(error.message, error.line) from None


def _items(events: Iterator[yaml.Event], limited: _Limited) -> Iterator[Record]:
    number = 0
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        number += 1
        node = compose(event, events, 1)
        yield _record(number, node, limited.take())


def _record(number: int, node: yaml.Node, size: int) -> Record:
    line = _line(node)
    data, problem = _value(node)
    return Record(number, line, None if problem else data, size, problem=problem)


def _line(item: yaml.Event | yaml.Node) -> int:
    assert item.start_mark is not None, "the parser marks everything"
    return item.start_mark.line + 1


def _value(node: yaml.Node) -> tuple[Any, str]:
    problems: list[tuple[str, YamlSyntaxError]] = []
    data = construct(node, problems=problems)
    return data, "; ".join(f"{path}: {error.message}" if path else error.message for path, error in problems)


def _mapping(
    start: yaml.Event, events: Iterator[yaml.Event], limited: _Limited, top: dict[str, Any]
) -> Iterator[Record]:
    line = _line(start)
    list_key, has_list, size = "", False, 0
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = compose(event, events, 1).value
        value = next(events)
        place = _line(event)
        if not isinstance(key, str):
            raise BadFileError("has a key that is not a plain text", place)
        if key in top:
            raise BadFileError(f"gives {key!r} twice", place)
        if is_container_key(key) and isinstance(value, yaml.SequenceStartEvent):
            has_list, any_items = True, False
            for record in _items(events, limited):
                if list_key:
                    raise two_lists(list_key, key, record.line)
                any_items = True
                yield record
            list_key = key if any_items else list_key
        else:
            top[key], problem = _value(compose(value, events, 1))
            size += limited.take()
            if problem:
                raise BadFileError(f"{key}: {problem}", place)
            if size > MAX_RAW_CHARS:
                raise no_list(top, line)
    if not has_list:
        if any(map(is_container_key, top)):
            raise no_list(top, line)
        yield Record(1, line, dict(top), size)


class _Limited:
    """A text that limits how much a single record may read."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._size = 0
        self._line = 1

    def read(self, size: int = -1) -> str:
        chunk = self._stream.read(size)
        self._size += len(chunk)
        if self._size > MAX_RAW_CHARS:
            limit = MAX_RAW_CHARS // 1024**2
            raise BadFileError(f"holds a record larger than {limit} MiB, or a quote that is never closed", self._line)
        self._line += chunk.count("\n")
        return chunk

    def take(self) -> int:
        """Return at least the size read since the last call, and start counting again."""
        size, self._size = self._size, 0
        return size + _READ_AHEAD_CHARS
