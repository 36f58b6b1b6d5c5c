"""The sentence on a run's early stop; names are untrusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.stopping import StoppedEarly


def stopped_sentence(stopped: StoppedEarly) -> str:
    """Return when and why a run stopped early, and the savings."""
    saved = saved_text(stopped.saved_calls, stopped.saved_tokens, stopped.saved_usd, stopped.saved_s)
    return (
        f"stopped early by {stopped.rule.value}: {stopped.winner} is better on {stopped.metric}, decided after "
        f"{stopped.cases:,} cases; {stopped.asked:,} of {stopped.planned:,} cases asked; {saved}"
    )


def saved_text(calls: int, tokens: float | None, usd: float | None, seconds: float | None) -> str:
    """Return the estimated savings of stopping, leaving out unknown ones."""
    if not calls:
        return "nothing saved"
    parts = [f"{calls:,} call{'s' * (calls != 1)}"]
    if tokens is not None:
        parts.append(f"{tokens:,.0f} tokens")
    if usd is not None:
        parts.append(f"{usd:,.2g} USD")
    if seconds is not None:
        parts.append(f"{seconds:,.0f} s" if seconds >= 1 else "less than 1 s")
    return f"saves about {', '.join(parts)}"
