"""The names that providers and frameworks use for token counts: one table for answers, datasets and clients.

Assay's counts are inclusive: input includes cached tokens, output includes thoughts. Anthropic and Bedrock count cached
tokens separately from the input; Gemini, xAI and some gateways count thoughts separately from the output. Both are
added here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.model.answers.response_limits import MAX_TOKENS

OWN_COUNTS = ("input_tokens", "output_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens",
              "reasoning_tokens", "requests")  # fmt: skip
"""The counts of a usage, by Assay's names."""

USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata", "token_usage", "tokenUsage")
"""The answer fields that may hold its usage."""

COST_KEYS = ("cost_usd", "costUSD", "total_cost_usd")
"""The usage fields that may hold a cost in US dollars; a name without a currency does not count."""

_INSIDE = ("prompt_tokens", "promptTokens")
"""Names of inputs that include cached tokens, whatever these are called (LiteLLM uses Anthropic's names)."""

_PATHS: Mapping[str, tuple[str, ...]] = {
    "input_tokens": (
        "input_tokens", *_INSIDE, "inputTokens", "inputTokens.total", "promptTokenCount", "prompt_token_count",
        "prompt_eval_count", "inputTokenCount", "input_token_count", "inputTextTokenCount", "request_tokens",
        "prompt_llm_token_count", "tokens_evaluated", "tokens.input_tokens", "billed_units.input_tokens",
        "input_token_usage", "tokens_in", "InputTokens", "input", "prompt", "in",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "completionTokens", "outputTokens", "outputTokens.total",
        "candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count", "eval_count",
        "outputTokenCount", "output_token_count", "generated_token_count", "generation_token_count",
        "generated_tokens", "response_tokens", "completion_llm_token_count", "tokens_predicted",
        "tokens.output_tokens", "billed_units.output_tokens", "output_token_usage", "tokens_out",
        "OutputTokens", "output", "completion", "out",
    ),
    "total_tokens": (
        "total_tokens", "totalTokens", "totalTokenCount", "total_token_count", "token_count",
        "total_llm_token_count", "total",
    ),
    "cache_read_tokens": (
        "cache_read_tokens", "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
        "promptTokensDetails.cachedTokens", "inputTokensDetails.cachedTokens", "input_token_details.cache_read",
        "inputTokenDetails.cacheReadTokens", "inputTokens.cacheRead", "prompt_cache_hit_tokens",
        "cachedContentTokenCount", "cached_content_token_count", "cachedInputTokens", "cached_input_tokens",
        "cachedPromptTokens", "cached_prompt_tokens", "cachedInputTokenCount", "cached_input_token_count",
        "cached_tokens", "num_cached_tokens", "details.cached_tokens", "details.cache_read_tokens",
    ),
    "cache_write_tokens": (
        "cache_write_tokens", "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens", "input_tokens_details.cache_write_tokens",
        "input_token_details.cache_creation",
        "input_token_details.ephemeral_5m_input_tokens+input_token_details.ephemeral_1h_input_tokens",
        "inputTokenDetails.cacheWriteTokens", "inputTokens.cacheWrite",
    ),
    "reasoning_tokens": (
        "reasoning_tokens", "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
        "output_tokens_details.thinking_tokens", "completionTokensDetails.reasoningTokens",
        "outputTokensDetails.reasoningTokens", "output_token_details.reasoning", "outputTokenDetails.reasoningTokens",
        "outputTokens.reasoning", "reasoningTokens", "reasoningTokenCount", "reasoning_token_count",
        "details.reasoning_tokens",
    ),
    "requests": ("requests", "successful_requests", "request_count"),
    # Counted separately from the input and the output.
    "cache_read_beside": (
        "cache_read_input_tokens", "input_cached_tokens",
        "cacheReadInputTokens", "cacheReadInputTokenCount", "cache_read_input_token_count",
    ),
    "cache_write_beside": (
        "cache_creation_input_tokens", "cacheCreationInputTokens", "cacheWriteInputTokens",
        "cacheWriteInputTokenCount", "cache_write_input_tokens", "cache_write_input_token_count",
        "cache_creation.ephemeral_5m_input_tokens+cache_creation.ephemeral_1h_input_tokens",
    ),
    "thoughts_beside": ("thoughtsTokenCount", "thoughts_token_count"),
    "tools_beside": ("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
}  # fmt: skip

_PLACES = tuple((field, path.partition(".")[0], path) for field, paths in _PATHS.items() for path in paths)
_KNOWN = frozenset(name for _, name, _ in _PLACES).union(COST_KEYS)

Count = Callable[[object, str], int | None]
"""Parses a token count, with its location for messages; returns None if the value is not one."""


def read_counts(usage: Mapping[Any, Any], count: Count) -> dict[str, int]:
    """Return a usage's token counts by the names of `OWN_COUNTS`, inclusive; empty if it has no known name.

    Assay's own names are taken literally. If every field is itself a usage, for example per model, the counts are
    summed.

    Args:
        usage: The usage that a provider, framework or agent reports.
        count: Parses a number or refuses it.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for field, name, path in _PLACES:
        value = _count_at(usage, path, count) if name in usage else None
        # A service may report 0 under one name and the count under another.
        if value is not None and (field not in counts or value > counts[field] == 0):
            names[field], counts[field] = path, value
    if not counts:
        return _sums(usage, count)
    if all(names[field] == field for field in counts):
        return counts
    return _inclusive(counts, cached_inside=names.get("input_tokens") in _INSIDE)


def output_with_thoughts(output: int, input_count: int | None, total: int | None, thoughts: int | None) -> int:
    """Return the output tokens plus thoughts that a service counts separately (xAI, gateways to Gemini).

    Thoughts are billed as output. So the output is at least the total less the input; without a total, it is the sum of
    both if the thoughts exceed the output.
    """
    if input_count and total is not None:
        return max(output, total - input_count)
    return output + (thoughts or 0) if total is None and output < (thoughts or 0) <= MAX_TOKENS else output


def unread_names(usage: Mapping[Any, Any]) -> list[str]:
    """Return the non-empty fields of a usage with unknown names."""
    return [str(name) for name, value in usage.items() if value is not None and name not in _KNOWN]


def _count_at(usage: Mapping[Any, Any], path: str, count: Count) -> int | None:
    values = []
    for part in path.split("+"):
        holder: Any = usage
        *outer, name = part.split(".")
        for key in outer:
            holder = holder.get(key)
            if not isinstance(holder, Mapping):
                return None
        value = holder.get(name)
        values.append(None if isinstance(value, Mapping) else count(value, part))
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sums(usage: Mapping[Any, Any], count: Count) -> dict[str, int]:
    """Return the sums of a mapping whose fields are usages; empty if any field is not one.

    If one field is the total of the others, it is the sum: Codex writes the total beside the last usage.
    """
    totals = [part for name, part in usage.items() if "total" in str(name).lower()]
    usages = totals if len(totals) == 1 else usage.values()
    parts = [read_counts(part, count) if isinstance(part, Mapping) else {} for part in usages]
    if not parts or not all(parts):
        return {}
    shared = [field for field in OWN_COUNTS if all(field in part for part in parts)]
    return {field: sum(part[field] for part in parts) for field in shared}


def _inclusive(counts: dict[str, int], *, cached_inside: bool) -> dict[str, int]:
    tools, thoughts = counts.pop("tools_beside", 0), counts.pop("thoughts_beside", None)
    if "input_tokens" in counts:
        counts["input_tokens"] += tools
    if thoughts is not None:
        written = counts.get("output_tokens", 0)
        # Gateways that adopt Gemini's names may already include thoughts in the output; their total shows it.
        is_inside = thoughts <= written and counts.get("total_tokens") == counts.get("input_tokens", 0) + written
        counts["output_tokens"] = written if is_inside else written + thoughts
        counts.setdefault("reasoning_tokens", thoughts)
    _add_cached(counts, cached_inside=cached_inside)
    if "output_tokens" in counts:
        others = (counts.get(name) for name in ("input_tokens", "total_tokens", "reasoning_tokens"))
        counts["output_tokens"] = output_with_thoughts(counts["output_tokens"], *others)
    return counts


def _add_cached(counts: dict[str, int], *, cached_inside: bool) -> None:
    beside = {
        field: counts.pop(name)
        for field, name in (("cache_read_tokens", "cache_read_beside"), ("cache_write_tokens", "cache_write_beside"))
        if name in counts
    }
    for field, value in beside.items():
        counts[field] = max(value, counts.get(field, 0))
    cached = counts.get("cache_read_tokens", 0) + counts.get("cache_write_tokens", 0)
    read, written, total = (counts.get(name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if read is None or not cached:
        return
    # The total decides, if there is one.
    is_beside = bool(beside) and not cached_inside
    if written is not None and total == read + written + cached:
        is_beside = True
    elif written is not None and total == read + written and cached <= read:
        is_beside = False
    if is_beside:
        counts["input_tokens"] = read + cached
        if total is not None and written is not None:
            counts["total_tokens"] = max(total, read + cached + written)
