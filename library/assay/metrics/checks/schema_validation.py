"""Validation of JSON values against schemas, without fetching anything and without patterns that can hang.

Patterns use RE2, as everywhere in Assay: jsonschema's own keywords use `re`, with which one pattern and one hostile
answer can block a service for hours.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.metrics.checks.patterns import compile_pattern, pattern_problem, pattern_size, search_work
from assay.metrics.checks.schema_limits import REFERENCES, count_values, expanded_parts, expansion_problem, size_problem
from assay.process.deferred_imports import imported_when_called
from assay.text.equality import composed_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_COMPLAINTS = 10
_MAX_MESSAGE_CHARS = 200
_WORK_PER_PART = 1_000
"""Validating one value against one part of a schema: 10 µs."""
_MOST_VALUES = 10_000
_MOST_CHARS = 100_000
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_problem(schema: object) -> str:
    """Return why a schema (Draft 2020-12) cannot be used, as the end of a sentence, or the empty string.

    Also empty if jsonschema is not installed: a client submits the schema to an orchestrator, which has it.
    """
    try:
        jsonschema = _library()
    except SetupError:
        return ""
    if not isinstance(schema, dict | bool):
        return "is no JSON schema: it must be a mapping"
    if wrong := _other_draft(schema) or size_problem(schema):
        return wrong
    try:
        # Only one format: whether others are checked depends on installed packages.
        formats = jsonschema.FormatChecker(formats=("regex",))
        jsonschema.Draft202012Validator.check_schema(schema, format_checker=formats)
        return next(_problems(schema), "") or expansion_problem(schema)
    except jsonschema.SchemaError as problem:
        where = ".".join(map(str, problem.absolute_path))
        return f"is no JSON schema{f' at {where}' if where else ''}: {problem.message[:_MAX_MESSAGE_CHARS]}"
    except RecursionError:
        return "is nested too deep"
    except ValueError as problem:  # an $id or a $ref that is no address
        return f"has an $id or $ref that cannot be read: {str(problem)[:_MAX_MESSAGE_CHARS]}"


@lru_cache(maxsize=256)
def schema_validator(schema_text: str) -> Any:
    """Return a validator for a schema, given as JSON text.

    Raises:
        SetupError: jsonschema or RE2 is not installed.
    """
    from jsonschema_specifications import REGISTRY

    compile_pattern("")  # a missing RE2 is reported now, not on the first answer
    schema = composed_json(json.loads(schema_text))
    for _, part in _parts(schema):
        # For a part that names its draft, jsonschema would replace our keywords by its own.
        part.pop("$schema", None)
    # The registry holds the drafts themselves and fetches nothing.
    return _validator_class()(schema, registry=REGISTRY)


@lru_cache(maxsize=256)
def _schema_work(schema_text: str) -> tuple[float, int]:
    """Return the figures behind an upper bound of the work of validation.

    Args:
        schema_text: The schema as JSON text.

    Returns:
        The most parts that a value is validated against, infinite without a bound or if lists are compared entry by
        entry; and the size of the compiled patterns that each text is searched for.
    """
    try:
        schema = json.loads(schema_text)
        parts = [part for _, part in _parts(schema)]
        if any(part.get("uniqueItems") for part in parts):
            return math.inf, 0
        patterns = {part["pattern"] for part in parts if "pattern" in part}
        patterns.update(*(part.get("patternProperties", ()) for part in parts))
        return expanded_parts(schema), sum(map(pattern_size, patterns))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return math.inf, 0  # a broken schema counts as expensive


def schema_complaints(value: object, validator: Any) -> list[str]:
    """Return up to ten sentences on where a value violates a schema.

    Args:
        value: A JSON value.
        validator: What `schema_validator` returned.

    Raises:
        ValueError: The schema cannot be used, which `schema_problem` reports in advance.
    """
    from referencing.exceptions import Unresolvable

    complaints: list[str] = []
    try:
        for error in validator.iter_errors(composed_json(value)):
            complaints.append(f"{error.json_path}: {error.message[:_MAX_MESSAGE_CHARS]}")
            if len(complaints) >= _MAX_COMPLAINTS:
                break
    except Unresolvable as problem:
        raise ValueError(f"the schema refers to {problem.ref!r}, which it does not have") from None
    except RecursionError:
        return ["$: is nested too deep, or the schema refers to itself without end"]
    except OverflowError:  # of `multipleOf`, which divides by a float
        return [*complaints, "$: holds a number that is too large to be compared with the schema"]
    return complaints


def validation_work(schema_text: str, value: object) -> float:
    """Return an upper bound of the work of validating a value against a schema; see `row_work`.

    Args:
        schema_text: The schema as JSON text.
        value: A JSON value, or the text to parse it from.
    """
    parts, patterns = _schema_work(schema_text)
    if isinstance(value, str):
        values = 1 + sum(value.count(mark) for mark in ",:[{") if len(value) < _MOST_CHARS else math.inf
        chars = len(value)
    else:
        values = count_values(value, _MOST_VALUES)
        values = math.inf if values > _MOST_VALUES else values
        chars = len(json.dumps(value, default=str)) if patterns and values <= _MOST_VALUES else 0
    return parts * values * _WORK_PER_PART + search_work(patterns, chars)


def _library() -> Any:
    try:
        # If installed, jsonschema imports a grammar of IRIs, which costs a second and which no schema here needs.
        with imported_when_called("rfc3987_syntax", "is_valid_syntax"):
            import jsonschema  # imported here: the library starts without it
    except ImportError:
        raise SetupError(
            f"JSON schemas need jsonschema, which is not installed: {install_hint('orchestrator')}",
            reason="NOT_INSTALLED",
        ) from None
    return jsonschema


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    jsonschema = _library()
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, keywords)


def _problems(schema: object) -> Iterator[str]:
    """Yield problems that jsonschema's own check of a schema misses: references, patterns and other drafts."""
    from referencing.exceptions import Unresolvable

    keywords: set[str] = set()
    for resolver, part in _parts(schema):
        if other := _other_draft(part):
            yield other
        if isinstance(identifier := part.get("$id"), str):
            urlsplit(identifier)  # jsonschema does so only if something refers to it
        for reference in (part[name] for name in REFERENCES if name in part):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                yield f"refers to {reference[:80]!r}, which it does not have; nothing is fetched: write it under $defs"
        for pattern in (*filter(None, [part.get("pattern")]), *part.get("patternProperties", ())):
            if problem := pattern_problem(pattern):
                yield f"has the pattern {pattern[:80]!r}, which {problem}"
        keywords |= part.keys()
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        # jsonschema evaluates these two together with `re`, out of our reach.
        yield "has both patternProperties and unevaluatedProperties: use additionalProperties instead of the latter"


def _other_draft(schema: dict[str, Any] | bool) -> str:
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(draft, str) or draft.rstrip("#") == _DRAFT:
        return ""
    return f"is written for {draft[:80]!r}: write it for Draft 2020-12 and leave $schema out"


def _parts(schema: object) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield every schema within a schema that is a mapping, with the resolver of its references."""
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import DRAFT202012

    root = DRAFT202012.create_resource(schema)
    pending = [(REGISTRY.with_resource("", root).resolver_with_root(root), root)]
    while pending:
        resolver, resource = pending.pop()
        if isinstance(resource.contents, dict):
            yield resolver, resource.contents
        pending += [(resolver.in_subresource(part), part) for part in resource.subresources()]


def _pattern(validator: Any, pattern: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(value, str) and not compile_pattern(pattern).search(value):
        yield _library().ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    for pattern, part in patterns.items():
        for name, item in value.items():
            if compile_pattern(pattern).search(name):
                yield from validator.descend(item, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, part: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not isinstance(value, dict) or part is True:
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    further = [
        name
        for name in value
        if name not in named and not any(compile_pattern(pattern).search(name) for pattern in patterns)
    ]
    if part is False and further:
        shown = ", ".join(map(repr, further[:5])) + (", ..." if len(further) > 5 else "")
        yield _library().ValidationError(f"Additional properties are not allowed: {shown}")
    elif isinstance(part, dict):
        for name in further:
            yield from validator.descend(value[name], part, path=name)
