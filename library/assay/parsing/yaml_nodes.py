"""Strict YAML with positions: the values as written, without a parser's interpretations.

Only safe tags are allowed, and no anchors, aliases, custom tags or duplicate keys. `yes`, `no`, `on` and dates stay
texts (YAML 1.2); only true and false are booleans. Numbers must be finite; size and depth are bounded.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from assay.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Lines = dict[str, int]
"""1-based line of every value, by its path, e.g. "metrics[1].threshold"."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 50
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {"", *(f"{_PREFIX}{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
          "null": None, "Null": None, "NULL": None, "~": None, "": None}  # fmt: skip


class TextStream(Protocol):
    """A source that returns a text in pieces."""

    def read(self, size: int = -1, /) -> str:
        """Return at most `size` characters; the empty text at the end."""


class YamlSyntaxError(Exception):
    """The text is not YAML that Assay accepts; `message` and `line` say why and where."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def parse_yaml(text: str, *, file: str, problems: list[Problem]) -> tuple[Any, Lines]:
    """Return the document and the lines of its values; append problems to `problems`.

    Args:
        text: A YAML document, at most 1 MiB.
        file: The file's name, for problems.
        problems: Receives the problems.
    """
    if len(text.encode("utf-8", "replace")) > _MAX_BYTES:
        problems.append(Problem("is larger than 1 MiB, which no spec needs", file=file))
        return None, {}
    try:
        nodes = list(iterate_documents(text))
    except YamlSyntaxError as problem:
        problems.append(Problem(problem.message, file=file, line=problem.line))
        return None, {}
    if len(nodes) != 1:
        message = f"has {len(nodes)} YAML documents: keep one" if nodes else "is empty; expected one YAML document"
        problems.append(Problem(message, file=file))
        return None, {}
    lines: Lines = {}
    unread: list[tuple[str, YamlSyntaxError]] = []
    data = construct(nodes[0], lines=lines, problems=unread)
    problems += [Problem(problem.message, path, file, problem.line) for path, problem in unread]
    return data, lines


def iterate_documents(text: str | TextStream) -> Iterator[yaml.Node]:
    """Yield the root node of each document.

    Raises:
        YamlSyntaxError: The syntax is invalid, or an alias is used.
    """
    events = iterate_events(text)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            yield compose(next(events), events, 0)


def iterate_events(text: str | TextStream) -> Iterator[yaml.Event]:
    """Yield the parser's events for a text, or for a stream that is read on demand.

    Raises:
        YamlSyntaxError: The syntax is invalid.
    """
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlSyntaxError(f"is not valid YAML: {error.problem or error.context}", _line(mark)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlSyntaxError(f"is not valid YAML: {str(error).splitlines()[0]}", None) from None


def compose(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> yaml.Node:
    """Return the node that starts with an event; the library's own composer cannot stream."""
    if isinstance(event, yaml.AliasEvent):
        # A few bytes of aliases can expand to gigabytes.
        raise YamlSyntaxError("uses an alias (*), which is not read: write the value out", _line(event.start_mark))
    if depth > _MAX_DEPTH:
        raise YamlSyntaxError(f"is nested more than {_MAX_DEPTH} levels deep", _line(event.start_mark))
    if getattr(event, "anchor", None):
        raise YamlSyntaxError("uses an anchor (&), which is not read: remove it", _line(event.start_mark))
    mark: Any = event.start_mark
    tag = getattr(event, "tag", None) or ""
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(compose(item, events, depth + 1))
        return yaml.SequenceNode(tag, items, mark)
    if isinstance(event, yaml.MappingStartEvent):
        pairs = []
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            pairs.append((compose(key, events, depth + 1), compose(next(events), events, depth + 1)))
        return yaml.MappingNode(tag, pairs, mark)
    assert isinstance(event, yaml.ScalarEvent)
    return yaml.ScalarNode(tag, event.value, mark, style=event.style)


def _line(mark: Any) -> int | None:
    return mark.line + 1 if mark is not None else None


def construct(
    node: yaml.Node,
    *,
    lines: Lines | None = None,
    problems: list[tuple[str, YamlSyntaxError]],
    path: str = "",
) -> Any:
    """Return the value of a node; append problems to `problems` with their paths."""
    line = node.start_mark.line + 1
    if lines is not None:
        lines[path] = line
    if node.tag not in _TAGS:
        problems.append((path, YamlSyntaxError(f"uses the tag {node.tag}, which is not read", line)))
        return None
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, lines, problems, path)
    if isinstance(node, yaml.SequenceNode):
        return [
            construct(item, lines=lines, problems=problems, path=f"{path}[{i}]") for i, item in enumerate(node.value)
        ]
    return _scalar(node, problems, path)


def parse_scalar(text: str) -> Any:
    """Return the value of a plain scalar or flow collection, as in `--set key=value`.

    Raises:
        YamlSyntaxError: The text is invalid.
    """
    nodes = list(iterate_documents(text))
    if not nodes:
        return None
    problems: list[tuple[str, YamlSyntaxError]] = []
    value = construct(nodes[0], problems=problems)
    if problems:
        raise problems[0][1]
    return value


def _mapping(
    node: yaml.MappingNode,
    lines: Lines | None,
    problems: list[tuple[str, YamlSyntaxError]],
    path: str,
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
            problems.append((path, YamlSyntaxError("has a key that is not a plain text", line)))
            continue
        key = key_node.value
        inner = f"{path}.{key}" if path else key
        if key in data:
            problems.append((inner, YamlSyntaxError("is given twice", line)))
            continue
        data[key] = construct(value_node, lines=lines, problems=problems, path=inner)
        if lines is not None:
            lines[inner] = line
    return data


def _scalar(node: yaml.Node, problems: list[tuple[str, YamlSyntaxError]], path: str) -> Any:
    text, line = node.value, node.start_mark.line + 1
    if node.tag == f"{_PREFIX}str" or getattr(node, "style", None) in ("'", '"', "|", ">"):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        problems.append((path, YamlSyntaxError(f"must be a finite number, not {text}", line)))
        return None
    if _INT.fullmatch(text) and len(text) <= 400:
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            problems.append((path, YamlSyntaxError(f"{text} is too large a number", line)))
            return None
        return number
    return text
