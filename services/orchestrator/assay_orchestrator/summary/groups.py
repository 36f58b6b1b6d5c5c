"""The rows of a run by category and by tag, and the means weighted by case."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.model.interval import Interval
from assay.model.run import GroupSummary, WeightedSummary
from assay.statistics.clustered_mean import ClusteredMean
from assay.statistics.exact_sum import ExactSum
from assay_orchestrator.summary.intervals import MetricIntervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.gates.gates import Gate
    from assay.metrics.core.score import Aggregate, Metric
    from assay.model.run import MetricSummary, RowResult
    from assay_orchestrator.summary.clusters import CaseClusters

MAX_GROUPS = 1000
"""How many categories, and how many tags, are summarised at most."""
_MAX_GROUPS_BYTES = 700_000  # of categories, and of tags: with settings of 2 MiB a run must fit in a message
_BYTES_OF_GROUP = 120  # counts, interval and the field's own bytes
_BYTES_OF_VALUE = 16


@dataclass(frozen=True, slots=True)
class GroupTally:
    """Counts of a category's or tag's rows that gates need besides its summary.

    Args:
        undecided: Rows without a verdict because a metric could not be computed.
        metrics: The summary of each metric, by name.
        intervals: The 95 % interval of each metric that a gate names in this group, by name.
    """

    undecided: int
    metrics: Mapping[str, MetricSummary]
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)


class _Group:
    def __init__(self, metrics: Sequence[Metric], gated: Iterable[str]) -> None:
        self.total = self.passed = self.failed = self.undecided = 0
        self.folds: list[Aggregate] = [metric.aggregate() for metric in metrics]
        self.verdicts = ClusteredMean()
        self.intervals = {
            index: MetricIntervals(metric) for index, metric in enumerate(metrics) if metric.name in gated
        }

    def add(self, row: RowResult, cluster: int | None) -> None:
        self.total += 1
        self.passed += row.passed is True
        self.failed += row.passed is False
        self.undecided += row.passed is None and bool(row.message)
        if row.passed is not None:
            self.verdicts.take(float(row.passed), cluster)
        for fold, score in zip(self.folds, row.scores, strict=True):
            fold.add(row, score)
        for index, interval in self.intervals.items():
            interval.add(row.scores[index], cluster)

    def result(self, name: str) -> GroupSummary:
        decided = self.passed + self.failed
        summaries = [fold.result() for fold in self.folds]
        return GroupSummary(
            name=name,
            row_count=self.total,
            passed_count=self.passed,
            failed_count=self.failed,
            pass_rate=self.passed / decided if decided else None,
            metrics={summary.metric: summary.value for summary in summaries},
            pass_rate_interval=Interval.of(self.verdicts.interval()),
        )

    def tally(self) -> GroupTally:
        summaries = [fold.result() for fold in self.folds]
        intervals = {
            summaries[index].metric: interval.of_value(summaries[index].value)
            for index, interval in self.intervals.items()
        }
        return GroupTally(self.undecided, {summary.metric: summary for summary in summaries}, intervals)


class Groups:
    """Summaries by category and by tag, each with the metrics' own aggregates.

    A dataset with more than a thousand different categories or tags uses them as labels, not as groups: the first
    thousand are summarised, and the others are counted. Fewer are summarised with very many metrics or long names,
    because a group lists every metric by name.

    Args:
        metrics: The run's metrics, in report order.
        clusters: The dependent rows.
        gates: The gates, some of them about groups.
    """

    def __init__(self, metrics: Sequence[Metric], clusters: CaseClusters, gates: Iterable[Gate]) -> None:
        self._metrics = metrics
        self._least_bytes = _BYTES_OF_GROUP + sum(len(metric.name.encode()) + _BYTES_OF_VALUE for metric in metrics)
        self._room = {"category": _MAX_GROUPS_BYTES, "tag": _MAX_GROUPS_BYTES}
        self._clusters = clusters
        self._gated: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for gate in gates:
            if gate.group:
                self._gated[gate.group, gate.label].add(gate.name)
        self._categories: dict[str, _Group] = {}
        self._tags: dict[str, _Group] = {}
        # Hashes rather than names, which may be long; a collision would miscount by one.
        self._omitted: dict[str, set[int]] = {"category": set(), "tag": set()}

    def add(self, row: RowResult, cluster: int | None) -> None:
        """Add a row, with its cluster from `CaseClusters.of`."""
        if row.category:
            self._add("category", self._categories, row.category, row, cluster)
        for tag in dict.fromkeys(row.tags):
            self._add("tag", self._tags, tag, row, cluster)

    def _add(self, kind: str, groups: dict[str, _Group], name: str, row: RowResult, cluster: int | None) -> None:
        group = groups.get(name)
        if group is None:
            size = self._least_bytes + len(name.encode())
            if len(groups) >= MAX_GROUPS or size > self._room[kind] or self._omitted[kind]:
                self._omitted[kind].add(hash(name))
                return
            self._room[kind] -= size
            group = groups[name] = _Group(self._metrics, self._gated.get((kind, name), ()))
        group.add(row, self._clusters.within(kind, name, row, cluster))

    @property
    def categories(self) -> list[GroupSummary]:
        """One summary per category, by name."""
        return [group.result(name) for name, group in sorted(self._categories.items())]

    @property
    def tags(self) -> list[GroupSummary]:
        """One summary per tag, by name."""
        return [group.result(name) for name, group in sorted(self._tags.items())]

    def omitted(self, kind: str) -> int:
        """Return how many categories or tags are not summarised; `kind` is "category" or "tag"."""
        return len(self._omitted[kind])

    @property
    def tallies(self) -> dict[tuple[str, str], GroupTally]:
        """The counts of each group that gates need besides its summary."""
        kinds = (("category", self._categories), ("tag", self._tags))
        return {(kind, name): group.tally() for kind, groups in kinds for name, group in groups.items()}


class Weights:
    """Means and the pass rate with every row weighted by its case's weight: Σ w·x / Σ w, summed exactly."""

    def __init__(self) -> None:
        self._differ = False
        self._passed, self._decided = ExactSum(), ExactSum()
        self._values: defaultdict[str, ExactSum] = defaultdict(ExactSum)
        self._totals: defaultdict[str, ExactSum] = defaultdict(ExactSum)

    def add(self, row: RowResult) -> None:
        """Add a row."""
        self._differ = self._differ or row.weight != 1.0
        if row.passed is not None:
            self._decided.add(row.weight)
            self._passed.add(float(row.passed), row.weight)
        for score in row.scores:
            if score.value is not None:
                self._values[score.metric].add(score.value, row.weight)
                self._totals[score.metric].add(row.weight)

    def result(self) -> WeightedSummary | None:
        """Return the weighted means; None if all weights are 1."""
        if not self._differ:
            return None
        means = {name: _ratio(total, self._totals[name]) for name, total in sorted(self._values.items())}
        return WeightedSummary(
            _ratio(self._passed, self._decided), {name: mean for name, mean in means.items() if mean is not None}
        )


def _ratio(part: ExactSum, whole: ExactSum) -> float | None:
    return float(part.exact / whole.exact) if whole.exact else None
