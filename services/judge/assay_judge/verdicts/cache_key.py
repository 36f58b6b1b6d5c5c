"""The identity of a verdict: a hash of everything that it rests on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def canonical_json(data: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys, no spaces, and other than ASCII characters as they are."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_key(
    *,
    answer: str | Sequence[str],
    question: str,
    reference: str | None,
    context: Sequence[str] = (),
    history: Sequence[tuple[str, str]] = (),
    criterion: str | None = None,
    model: str,
    params: Mapping[str, Any],
    schema: str,
    template: str,
    sample_index: int = 0,
) -> str:
    """Return the SHA-256 of everything that a verdict rests on, in hexadecimal; no text is normalised.

    Args:
        answer: The answer, or the two that are compared in the order in which they are shown.
        reference: The reference; None where there is none.
        context: Passages; left out of the hash where there are none.
        history: Role and text of each message before the question; left out of the hash where there are none.
        criterion: What the answer is judged by; left out of the hash where there is nothing.
        model: The judge.
        params: How it is asked.
        schema: What identifies the form of the verdict.
        template: What identifies the texts around the material.
        sample_index: Which of several verdicts on the same material; 0 is left out of the hash.
    """
    parts: dict[str, Any] = {
        "answer": answer if isinstance(answer, str) else list(answer),
        "model": model,
        "params": dict(params),
        "question": question,
        "reference": reference,
        "schema": schema,
        "template": template,
    }
    if context:
        parts["context"] = list(context)
    if history:
        parts["history"] = [list(message) for message in history]
    if criterion is not None:
        parts["criterion"] = criterion
    if sample_index:
        parts["sample_index"] = sample_index
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def fingerprint(*, model: str, params: Mapping[str, Any], schema: str, template: str, parser: str) -> str:
    """Return what identifies a judge with its rubric: verdicts of different fingerprints are not compared."""
    parts = {"model": model, "params": dict(params), "schema": schema, "template": template, "parser": parser}
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()
