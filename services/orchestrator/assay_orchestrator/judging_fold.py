"""What judging came to: a fold over the verdicts that the rows of a run rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.canaries import DETAIL, CanaryFold, canary_of
from assay.metrics.exact_sum import ExactSum
from assay.results import JudgingSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.results import CaseResult

__all__ = ["JudgingFold"]

_MOST_FINGERPRINTS = 20


class JudgingFold:
    """Counts verdicts and adds up what they took; the order of rows does not matter."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("verdicts", "asked", "cached", "by_rule", "failed", "unpriced"), 0)
        self._tokens = {"input_tokens": 0, "output_tokens": 0}
        self._money = {"cost_usd": ExactSum(), "saved_usd": ExactSum()}
        self._fingerprints: set[str] = set()
        self._canaries = CanaryFold()

    def add(self, row: CaseResult) -> None:
        """Take one more row; a verdict that several of its metrics rest on counts once."""
        found = {}
        for score in row.scores:
            verdict = score.detail.get("verdict")
            if isinstance(verdict, dict) and "fingerprint" in verdict:
                found[verdict.get("key") or score.metric] = verdict
            self._add_canary(score.detail.get(DETAIL))
        for verdict in found.values():
            self._add(verdict)

    def result(self) -> JudgingSummary | None:
        """Return the summary; None where no row has a verdict."""
        if not self._counts["verdicts"]:
            return None
        cost, saved = (total.total if total.count else None for total in self._money.values())
        return JudgingSummary(
            **self._counts,
            **self._tokens,
            cost_usd=cost,
            saved_usd=saved,
            fingerprints=tuple(sorted(self._fingerprints)[:_MOST_FINGERPRINTS]),
            canaries=self._canaries.result(),
        )

    def _add_canary(self, document: object) -> None:
        canary = canary_of(document) if isinstance(document, dict) else None
        if canary is not None and isinstance(document, dict):
            verdict = document.get("verdict") or {}
            cost = None if verdict.get("cached") else verdict.get("cost_usd")
            self._canaries.add(canary, passed=document.get("passed"), cost_usd=cost)

    def _add(self, verdict: Mapping[str, Any]) -> None:
        asked = not verdict["cached"] and verdict["attempts"] > 0
        counted = {
            "verdicts": True,
            "asked": asked,
            "cached": verdict["cached"],
            "by_rule": verdict["by_rule"],
            "failed": verdict["status"] != "valid",
            "unpriced": asked and verdict["cost_usd"] is None,
        }
        for name, holds in counted.items():
            self._counts[name] += bool(holds)
        for name in self._tokens:
            self._tokens[name] += verdict[name] or 0
        for name, total in self._money.items():
            if verdict.get(name) is not None and (asked or name == "saved_usd"):
                total.add(verdict[name])
        if verdict["fingerprint"]:
            self._fingerprints.add(verdict["fingerprint"])
