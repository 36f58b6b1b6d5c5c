"""Limits on the size of JSON schemas and on the evaluations of their parts.

A small schema can mean much work: two references to a definition with two references to a third make four evaluations,
and eighteen such levels make 262,144. So parts are counted with all references expanded.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SCHEMA_CHARS = 65_536
"""The most characters of a schema as JSON."""
_MAX_DEPTH = 50
_MAX_LIST = 1_000
_MAX_PARTS = 10_000
REFERENCES = ("$ref", "$dynamicRef")
"""Keywords that refer to another part of a schema."""
_REPEATED = ("unevaluatedProperties", "unevaluatedItems")
_TIMES_REPEATED = 3
"""A schema with one of these keywords is evaluated twice: its parts are read again for what they leave open."""


def size_problem(schema: object) -> str:
    """Return the size limit that a schema exceeds, as the end of a sentence, or the empty string."""
    pending: list[tuple[object, int]] = [(schema, 1)]
    while pending:
        value, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return f"is nested more than {_MAX_DEPTH} levels deep"
        if isinstance(value, list) and len(value) > _MAX_LIST:
            return f"has a list of {len(value):,} entries, more than {_MAX_LIST:,}"
        pending += [(child, depth + 1) for child in _children(value)]
    size = len(json.dumps(schema, default=str))
    return f"has {size:,} characters as JSON, more than {MAX_SCHEMA_CHARS:,}" if size > MAX_SCHEMA_CHARS else ""


def expansion_problem(schema: object) -> str:
    """Return the problem of a schema that expands to too many parts, or the empty string; its references resolve."""
    parts = expanded_parts(schema)
    if math.isinf(parts) or parts <= _MAX_PARTS:
        return ""
    return (
        f"stands for {_shown(parts)} parts once its references are written out, more than {_MAX_PARTS:,}: "
        "refer to the same definition less often"
    )


def expanded_parts(schema: object) -> float:
    """Return the number of JSON values in a schema with expanded references; infinite if it is recursive.

    No value of an answer is validated against more parts than this.

    Raises:
        RecursionError: The expanded schema is nested too deep.
    """
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import DRAFT202012

    root = DRAFT202012.create_resource(schema)
    return _Expansion().count(REGISTRY.with_resource("", root).resolver_with_root(root), root)


def count_values(value: object, most: int) -> int:
    """Return the number of values within a JSON value, including itself; any number above `most` if there are more."""
    count, pending = 0, [value]
    while pending and count <= most:
        item = pending.pop()
        count += 1
        if isinstance(item, dict | list):
            count += len(item) if len(item) > most else 0
            pending += _children(item) if count <= most else ()
    return count


class _Expansion:
    """Counts parts, and remembers the counts."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        self._sizes: dict[int, int] = {}

    def count(self, resolver: Any, resource: Any) -> float:
        contents = resource.contents
        if not isinstance(contents, dict):
            return 1
        key = id(contents)
        if key in self._known:
            return self._known[key]
        self._known[key] = math.inf  # a reference back to here is recursive
        subresources = list(resource.subresources())
        own = self._size(contents) - sum(self._size(part.contents) for part in subresources)
        within = sum(self.count(resolver.in_subresource(part), part) for part in subresources)
        within += sum(self.count(*reference) for reference in self._referred(resolver, contents))
        times = _TIMES_REPEATED if any(keyword in contents for keyword in _REPEATED) else 1
        self._known[key] = own + times * within
        return self._known[key]

    def _referred(self, resolver: Any, contents: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        from referencing.jsonschema import DRAFT202012

        for name in REFERENCES:
            if isinstance(contents.get(name), str):
                resolved = resolver.lookup(contents[name])
                yield resolved.resolver, DRAFT202012.create_resource(resolved.contents)

    def _size(self, value: object) -> int:
        key = id(value)
        if key not in self._sizes:
            size = 1 + sum(self._size(child) for child in _children(value))
            if not isinstance(value, dict | list):
                return size  # a freed object's id may be reused
            self._sizes[key] = size
        return self._sizes[key]


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _shown(parts: float) -> str:
    return f"{int(parts):,}" if parts < 1e15 else "more than 10^15"
