"""The judging summary: a fold over the verdicts behind a run's rows."""

from __future__ import annotations

import itertools
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.judging.canaries import DETAIL, CanaryFold, canary_of
from assay.metrics.jury.jury_agreement import AgreementFold
from assay.model.judgement import judgement_from_json
from assay.model.judging_summary import JudgingSummary, JurorSummary
from assay.model.run_spec import DEFAULT_JUDGE
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.model.judgement import Judgement
    from assay.model.run import JudgeSpec, RowResult

_MOST_FINGERPRINTS = 20
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class _Juror:
    """The verdicts of one model: a member of a jury, or one of several judges."""

    def __init__(self, judge: str, name: str) -> None:
        self._judge = judge
        self._name = name
        self._verdicts = self._failed = 0
        self._cost = ExactSum()
        self._scores: dict[str, ExactSum] = {}

    def add(self, judgement: Judgement) -> None:
        self._verdicts += 1
        self._failed += not judgement.is_valid
        if judgement.paid_usd is not None:
            self._cost.add(judgement.paid_usd)

    def score(self, metric: str, value: float | None) -> None:
        if value is not None:
            self._scores.setdefault(metric, ExactSum()).add(value)

    def result(self) -> JurorSummary:
        means = {metric: total.mean or 0.0 for metric, total in sorted(self._scores.items())}
        cost = self._cost.total if self._cost.count else None
        return JurorSummary(self._judge, self._verdicts, self._failed, cost, means, self._name)


class JudgingFold:
    """Counts verdicts and adds up their usage; the order of rows does not matter.

    Args:
        judges: The judges of the run; the first is that of metrics without one.
        judge_by_metric: The names of the judges of metrics, by metric.
    """

    def __init__(self, judges: Sequence[JudgeSpec] = (), judge_by_metric: Mapping[str, str] = _NO_NAMES) -> None:
        self._judge_by_metric = judge_by_metric
        self._default = judges[0].name if judges else DEFAULT_JUDGE
        self._has_several = len(judges) > 1
        self._counts: Counter[str] = Counter()
        self._tokens = {"input_tokens": 0, "output_tokens": 0}
        self._money = {"cost_usd": ExactSum(), "saved_usd": ExactSum()}
        self._fingerprints: set[str] = set()
        self._flags: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._canaries = {
            judge.name: CanaryFold(judge.canary_limit, judge.accepts_canaries, judge.name) for judge in judges
        }
        self._jurors: dict[tuple[str, int], _Juror] = {}
        self._agreement: dict[str, AgreementFold] = {}

    def add(self, row: RowResult) -> None:
        """Add a row; a verdict shared by several of its metrics counts once."""
        verdicts: dict[str, tuple[str, int | None, Judgement]] = {}
        for score in row.scores:
            judge = self._judge_of(score.metric)
            for place, judgement in _placed(score.judgements):
                if judgement.key:
                    verdicts[judgement.key] = judge, place, judgement
            if DETAIL in score.detail:
                self._add_canary(judge, score.detail[DETAIL])
        for judge, place, judgement in verdicts.values():
            self._add(judgement)
            if place is not None or self._has_several:
                juror = (judge, place or 0)
                self._jurors.setdefault(juror, _Juror(judgement.judge, judge)).add(judgement)
        for score in row.scores:
            if score.judgements:
                self._add_jury(score.metric, score.judgements)

    def result(self) -> JudgingSummary | None:
        """Return the summary; None if no row has a verdict."""
        if not self._counts["verdict_count"]:
            return None
        cost, saved = (total.total if total.count else None for total in self._money.values())
        counts: dict[str, Any] = {**self._counts, **self._tokens}
        needed = self._counts["asked_count"] + self._counts["cached_count"]
        return JudgingSummary(
            **counts,
            cost_usd=cost,
            saved_usd=saved,
            fingerprints=tuple(sorted(self._fingerprints)[:_MOST_FINGERPRINTS]),
            canaries=tuple(filter(None, (fold.result() for fold in self._canaries.values()))),
            jurors=tuple(self._jurors[juror].result() for juror in sorted(self._jurors)),
            agreement=tuple(fold.result() for _, fold in sorted(self._agreement.items())),
            flag_counts=dict(sorted(self._flags.items())),
            refused_parameter_counts=dict(sorted(self._refused.items())),
            hit_rate=self._counts["cached_count"] / needed if needed else None,
        )

    def _judge_of(self, metric: str) -> str:
        return self._judge_by_metric.get(metric) or self._default

    def _add_canary(self, judge: str, document: object) -> None:
        canary = canary_of(document) if isinstance(document, dict) else None
        if canary is not None and isinstance(document, dict):
            paid = [judgement_from_json(judgement).paid_usd for judgement in document["judgements"]]
            costs = [cost for cost in paid if cost is not None]
            fold = self._canaries.setdefault(judge, CanaryFold(judge=judge))
            fold.add(canary, passed=document.get("passed"), cost_usd=sum(costs) if costs else None)

    def _add_jury(self, metric: str, judgements: Sequence[Judgement]) -> None:
        judge = self._judge_of(metric)
        for (_, check_index), jury in itertools.groupby(judgements, _part):
            values = [judgement.value for judgement in jury]
            if len(values) == 1 or check_index is not None:
                continue
            self._agreement.setdefault(metric, AgreementFold(metric)).add(values)
            for place, value in enumerate(values):
                if (judge, place) in self._jurors:
                    self._jurors[judge, place].score(metric, value)

    def _add(self, judgement: Judgement) -> None:
        was_called = not judgement.is_cached and judgement.call_count > 0
        counted = {
            "verdict_count": True,
            "asked_count": was_called,
            "cached_count": judgement.is_cached,
            "by_rule_count": judgement.is_by_rule,
            "failed_count": not judgement.is_valid,
            "unpriced_count": was_called and judgement.cost_usd is None,
            "batched_count": judgement.is_batched,
            "recorded_count": judgement.is_recorded,
        }
        for name, holds in counted.items():
            self._counts[name] += holds
        self._tokens["input_tokens"] += judgement.input_tokens or 0
        self._tokens["output_tokens"] += judgement.output_tokens or 0
        if was_called and judgement.cost_usd is not None:
            self._money["cost_usd"].add(judgement.cost_usd)
        if judgement.saved_usd is not None:
            self._money["saved_usd"].add(judgement.saved_usd)
        self._flags.update(judgement.flags)
        self._refused.update(judgement.refused_parameters)
        if judgement.fingerprint:
            self._fingerprints.add(judgement.fingerprint)


def _placed(judgements: Sequence[Judgement]) -> Iterator[tuple[int | None, Judgement]]:
    """Yield the judgements behind a score, each with the place of its judge in the jury, if there is one."""
    for _, group in itertools.groupby(judgements, _part):
        jury = list(group)
        for place, judgement in enumerate(jury):
            yield place if len(jury) > 1 else None, judgement


def _part(judgement: Judgement) -> tuple[int | None, int | None]:
    return judgement.turn_index, judgement.check_index
