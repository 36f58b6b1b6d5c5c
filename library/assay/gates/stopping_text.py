"""The sentence on a run's early stop; names are untrusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.stopping import StoppedEarly


def stopped_sentence(stopped: StoppedEarly) -> str:
    """Return when and why a run stopped early, and the savings."""
    saved = saved_text(stopped.saved_call_count, stopped.saved_tokens, stopped.saved_usd, stopped.saved_ms)
    return (
        f"stopped early by {stopped.rule.value}: {stopped.winner} is better on {stopped.metric}, decided after "
        f"{stopped.case_count:,} cases; {stopped.asked_count:,} of {stopped.planned_count:,} cases asked; {saved}"
    )


def saved_text(calls: int, tokens: float | None, usd: float | None, time_ms: float | None) -> str:
    """Return the estimated savings of stopping, leaving out unknown ones."""
    if not calls:
        return "nothing saved"
    parts = [f"{calls:,} call{'s' * (calls != 1)}"]
    if tokens is not None:
        parts.append(f"{tokens:,.0f} tokens")
    if usd is not None:
        parts.append(f"{usd:,.2g} USD")
    if time_ms is not None:
        parts.append(f"{time_ms / 1000:,.0f} s" if time_ms >= 1000 else "less than 1 s")
    return f"saves about {', '.join(parts)}"
