"""Checks that are not made: the types that never are, and the sentence about those left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_JUDGE_FOR_IT = "no judge"
"""The reason of a judged check that is not made in a run without a judge."""

_CODE = "code is not run"
_OTHER = "Assay has no such check"

NEVER_MADE: Mapping[str, str] = {
    **dict.fromkeys(("javascript", "python", "ruby", "webhook"), _CODE),
    **dict.fromkeys(
        ("bleu", "classifier", "contains-html", "contains-sql", "contains-xml", "context-recall", "context-relevance",
         "conversation-relevance", "gleu", "guardrails", "is-html", "is-refusal", "is-sql", "is-valid-function-call",
         "is-valid-openai-function-call", "is-valid-openai-tools-call", "is-xml", "max-score", "meteor", "moderation",
         "perplexity", "perplexity-score", "pi", "search-rubric", "select-best", "trace-error-spans",
         "trace-span-count", "trace-span-duration", "trajectory:goal-success"),
        _OTHER,
    ),
}  # fmt: skip
"""The types of promptfoo's checks that are never made here, with the reasons."""

_MOST_KINDS = 8


def not_made(unmade: Mapping[str, Mapping[str, int]], total: int) -> str:
    """Return a sentence on the number of checks that are not made, and why; empty if all are made.

    Args:
        unmade: Checks that are not made, by type and reason.
        total: All checks.

    Example:
        >>> not_made({"llm-rubric": {"no judge": 2}, "latency": {"no latency was measured": 1}}, 4)
        '3 of 4 checks are not made: llm-rubric 2 (no judge), latency 1 (no latency was measured)'
    """
    counts = {kind: sum(reasons.values()) for kind, reasons in unmade.items()}
    if not (count := sum(counts.values())):
        return ""
    kinds = sorted(unmade, key=lambda kind: (-counts[kind], kind))
    shown = [f"{kind} {counts[kind]:,} ({', '.join(sorted(unmade[kind]))})" for kind in kinds[:_MOST_KINDS]]
    more = [f"and {len(kinds) - _MOST_KINDS} more types"] if len(kinds) > _MOST_KINDS else []
    return f"{count:,} of {total:,} checks are not made: {', '.join([*shown, *more])}"
