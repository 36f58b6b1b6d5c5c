"""Token counts of a trace: the sum over its model calls, each counted once even if several spans repeat it."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.span_kinds import SpanKind, kind_of_span, value_at
from assay.model.answers.agent_response import Usage
from assay.model.answers.usage_names import read_counts
from assay.model.limits import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.agent_host.traces.span import Span

_PREFIXES = ("llm.usage.", "gen_ai.usage.", "ai.usage.")
"""Prefixes of attributes that have a provider's or the conventions' own name of a count."""
_WHOLE_USAGES = ("langfuse.observation.usage_details", "mlflow.chat.tokenUsage")
"""Attributes that hold a usage as JSON."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("llm.token_count.prompt",),
    "output_tokens": ("llm.token_count.completion",),
    "total_tokens": ("llm.token_count.total",),
    "cache_read_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.details.cache_write_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.details.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
}
"""Attributes whose names occur only in traces."""
_WHOLE = ("input_tokens", "output_tokens", "total_tokens")
"""Counts that each call has; another call without any counts shows nothing."""


def usage_of_trace(spans: Sequence[Span]) -> tuple[Usage | None, str]:
    """Return the tokens of a trace, and the reason if they cannot be known.

    A span counts if no span below it has counts: an agent's span repeats the sum of its calls, and two instrumentations
        record the same call twice. A failed call may have no counts.
    """
    counts = {span.span_id: span_counts for span in spans if (span_counts := _counts(span))}
    parents = {span.span_id: span.parent_id for span in spans}
    above = _above(counts, parents)
    counted = [counts[span_id] for span_id in counts if span_id not in above]
    below = _below(counts.keys() - above, parents)
    uncounted = [
        span
        for span in spans
        if kind_of_span(span) is SpanKind.MODEL
        and not span.is_error
        and span.span_id not in counts
        and span.span_id not in above
        and span.span_id not in below
    ]
    if uncounted:
        message = f"calls of a model without token counts: {len(uncounted)} of {len(uncounted) + len(counted)}"
        return None, f"{message}, so that their sum is not known"
    if not counted:
        return None, ""
    return Usage(**_sums(counted)), ""


def _counts(span: Span) -> dict[str, int]:
    """Return the counts of a span; embeddings do not count toward an answer."""
    if kind_of_span(span) is SpanKind.EMBEDDING:
        return {}
    usage = {
        name.removeprefix(prefix): value
        for prefix in _PREFIXES
        for name, value in span.attributes.items()
        if name.startswith(prefix)
    }
    for name in _WHOLE_USAGES:
        usage |= _mapping(span.attributes.get(name))
    counts = read_counts(usage, _count)
    for name, attributes in _NAMES.items():
        value = _count(value_at(span.attributes, *attributes), name)
        if value is not None:
            counts.setdefault(name, value)
    return counts if any(name in counts for name in _WHOLE) else {}


def _mapping(value: object) -> dict[str, Any]:
    try:
        data = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _count(value: object, where: str) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_INTEGER
    return value if is_count else None  # type: ignore[return-value]  # it is one


def _sums(counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    sums = {}
    for name in _NAMES:
        values = [counts[name] for counts in counted if name in counts]
        if values and (name not in _WHOLE or len(values) == len(counted)):
            sums[name] = sum(values)
    if "total_tokens" not in sums and "input_tokens" in sums and "output_tokens" in sums:
        sums["total_tokens"] = sums["input_tokens"] + sums["output_tokens"]
    return sums


def _above(marked: Mapping[str, object], parents: Mapping[str, str]) -> set[str]:
    """Return the spans above a marked one."""
    above: set[str] = set()
    for span_id in marked:
        parent = parents[span_id]
        while parent in parents and parent not in above:
            above.add(parent)
            parent = parents[parent]
    return above


def _below(marked: set[str], parents: Mapping[str, str]) -> set[str]:
    """Return the spans below a marked one."""
    children = defaultdict(list)
    for span_id, parent in parents.items():
        children[parent].append(span_id)
    below: set[str] = set()
    pending = list(marked)
    while pending:
        for child in children[pending.pop()]:
            if child not in below:
                below.add(child)
                pending.append(child)
    return below
