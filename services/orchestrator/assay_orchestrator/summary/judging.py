"""The judging summary: a fold over the verdicts behind a run's rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.judging.canaries import DETAIL, CanaryFold, canary_of
from assay.metrics.core.score import JURY
from assay.metrics.core.turn_scores import turn_details
from assay.metrics.jury.jury_agreement import AgreementFold
from assay.model.judging_summary import JudgingSummary, JurorSummary
from assay.model.run_spec import CANARY_LIMIT
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.model.run import RowResult

_MOST_FINGERPRINTS = 20


class _Juror:
    """The verdicts of one judge of a jury."""

    def __init__(self, judge: str) -> None:
        self._judge = judge
        self._verdicts = self._failed = 0
        self._cost = ExactSum()
        self._scores: dict[str, ExactSum] = {}

    def add(self, verdict: Mapping[str, Any]) -> None:
        self._verdicts += 1
        self._failed += verdict["status"] != "valid"
        if not verdict["cached"] and verdict["cost_usd"] is not None:
            self._cost.add(verdict["cost_usd"])

    def score(self, metric: str, value: float | None) -> None:
        if value is not None:
            self._scores.setdefault(metric, ExactSum()).add(value)

    def result(self) -> JurorSummary:
        means = {metric: total.mean or 0.0 for metric, total in sorted(self._scores.items())}
        cost = self._cost.total if self._cost.count else None
        return JurorSummary(self._judge, self._verdicts, self._failed, cost, means)


class JudgingFold:
    """Counts verdicts and adds up their usage; the order of rows does not matter.

    Args:
        canary_limit: Maximum rate of wrong verdicts on canaries, from 0 to 1.
        accepts_canaries: Whether the spec accepts failed canaries.
    """

    def __init__(self, canary_limit: float = CANARY_LIMIT, *, accepts_canaries: bool = False) -> None:
        self._counts: Counter[str] = Counter()
        self._tokens = {"input_tokens": 0, "output_tokens": 0}
        self._money = {"cost_usd": ExactSum(), "saved_usd": ExactSum()}
        self._fingerprints: set[str] = set()
        self._flags: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._canaries = CanaryFold(canary_limit, accepts_canaries)
        self._jurors: dict[int, _Juror] = {}
        self._agreement: dict[str, AgreementFold] = {}

    def add(self, row: RowResult) -> None:
        """Add a row; a verdict shared by several of its metrics counts once."""
        verdicts: dict[object, tuple[int | None, Mapping[str, Any]]] = {}
        for score in row.scores:
            for turn, detail in turn_details(score.detail):
                for place, verdict in _verdicts(detail):
                    verdicts[verdict.get("key") or (score.metric, turn, place)] = place, verdict
            self._add_canary(score.detail.get(DETAIL))
        for place, verdict in verdicts.values():
            self._add(verdict)
            if place is not None:
                self._jurors.setdefault(place, _Juror(verdict["judge"])).add(verdict)
        for score in row.scores:
            for _, detail in turn_details(score.detail):
                self._add_jury(score.metric, detail)

    def result(self) -> JudgingSummary | None:
        """Return the summary; None if no row has a verdict."""
        if not self._counts["verdict_count"]:
            return None
        cost, saved = (total.total if total.count else None for total in self._money.values())
        counts: dict[str, Any] = {**self._counts, **self._tokens}
        return JudgingSummary(
            **counts,
            cost_usd=cost,
            saved_usd=saved,
            fingerprints=tuple(sorted(self._fingerprints)[:_MOST_FINGERPRINTS]),
            canaries=self._canaries.result(),
            jurors=tuple(self._jurors[place].result() for place in sorted(self._jurors)),
            agreement=tuple(fold.result() for _, fold in sorted(self._agreement.items())),
            flag_counts=dict(sorted(self._flags.items())),
            refused_parameter_counts=dict(sorted(self._refused.items())),
        )

    def _add_canary(self, document: object) -> None:
        canary = canary_of(document) if isinstance(document, dict) else None
        if canary is not None and isinstance(document, dict):
            paid = [verdict["cost_usd"] for _, verdict in _verdicts(document) if not verdict.get("cached")]
            costs = [cost for cost in paid if cost is not None]
            self._canaries.add(canary, passed=document.get("passed"), cost_usd=sum(costs) if costs else None)

    def _add_jury(self, metric: str, detail: Mapping[str, Any]) -> None:
        jurors = detail.get(JURY)
        if not isinstance(jurors, list):
            return
        values = [juror.get("value") for juror in jurors]
        self._agreement.setdefault(metric, AgreementFold(metric)).add(values)
        for place, value in enumerate(values):
            if place in self._jurors:
                self._jurors[place].score(metric, value)

    def _add(self, verdict: Mapping[str, Any]) -> None:
        was_called = not verdict["cached"] and verdict["call_count"] > 0
        counted = {
            "verdict_count": True,
            "asked_count": was_called,
            "cached_count": verdict["cached"],
            "by_rule_count": verdict["by_rule"],
            "failed_count": verdict["status"] != "valid",
            "unpriced_count": was_called and verdict["cost_usd"] is None,
            "batched_count": verdict.get("batched", False),
            "recorded_count": verdict.get("recorded", False),
        }
        for name, holds in counted.items():
            self._counts[name] += bool(holds)
        for name in self._tokens:
            self._tokens[name] += verdict[name] or 0
        for name, total in self._money.items():
            if verdict.get(name) is not None and (was_called or name == "saved_usd"):
                total.add(verdict[name])
        self._flags.update(verdict.get("flags") or ())
        self._refused.update(verdict.get("refused_parameters") or ())
        if verdict["fingerprint"]:
            self._fingerprints.add(verdict["fingerprint"])


def _verdicts(detail: Mapping[str, Any]) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield the verdicts behind a score, each with the place of its judge in the jury, if there is one.

    Verdicts of judged checks are in the detail of their check.
    """
    checks = detail.get("checks")
    for check in checks if isinstance(checks, list) else ():
        yield from _verdicts(check)
    placed: list[tuple[int | None, object]] = [(None, detail.get("verdict"))]
    jury = detail.get(JURY)
    if isinstance(jury, list):
        placed = [(place, juror.get("verdict")) for place, juror in enumerate(jury)]
    for place, verdict in placed:
        if isinstance(verdict, dict) and "fingerprint" in verdict:
            yield place, verdict
