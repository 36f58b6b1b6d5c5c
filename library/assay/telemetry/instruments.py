"""The instruments of a process for Prometheus; without an exporter they record nothing.

A module declares its instruments like its logger. Only an export imports `prometheus_client`. Frequent calls look their
series up once, after the export has begun: the result depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase

    class Series(Protocol):
        """The values of an instrument under one set of labels."""

        def inc(self, amount: float = 1.0) -> None:
            """Increase by an amount."""

        def dec(self, amount: float = 1.0) -> None:
            """Decrease a gauge."""

        def set(self, value: float) -> None:
            """Set a gauge."""

        def set_function(self, read: Callable[[], float]) -> None:
            """Read a gauge from a function at each scrape, in another thread."""

        def set_to_current_time(self) -> None:
            """Set a gauge to the current time, in seconds since 1970."""

        def observe(self, amount: float) -> None:
            """Add a value to a histogram."""


FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of what should take milliseconds, in seconds."""
SLOW_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of what waits for a model, in seconds."""
COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Upper bounds of how many there are of something."""


MAX_LABEL_VALUES = 200
"""Each value of a label is a series that Prometheus keeps: callers must not make them without end."""


class _Silent:
    """Records nothing."""

    def inc(self, amount: float = 1.0) -> None:
        pass

    dec = set = observe = set_to_current_time = inc

    def set_function(self, read: Callable[[], float]) -> None:
        pass


_SILENT: Series = _Silent()


class _Export:
    """The exporter of this process; like logging, there is one per process."""

    def __init__(self) -> None:
        self.declared: dict[str, Instrument] = {}
        self.registry: CollectorRegistry | None = None
        self.names_teams = False
        self.label_values: dict[str, set[str]] = {}


_export = _Export()


class Instrument:
    """A name with a kind, labels and a text, as listed in [observability.md](docs/observability.md).

    Args:
        name: `assay_…`, ending with the unit; `…_total` for a counter.
        text: Its description, a sentence without the full stop.
        labels: The names of its labels.
    """

    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self._made: MetricWrapperBase | None = None
        _export.declared[name] = self
        if _export.registry is not None:
            self._begin(_export.registry)

    def series(self, *values: str) -> Series:
        """Return the series of some labels, in the order of `labels`."""
        if self._made is None:
            return _SILENT
        series: Series = self._made.labels(*values) if values else self._made  # type: ignore[assignment]
        return series

    def _begin(self, registry: CollectorRegistry) -> None:
        self._made = self._make(registry)

    def _end(self) -> None:
        self._made = None

    def _make(self, registry: CollectorRegistry) -> MetricWrapperBase:
        raise NotImplementedError


class Counter(Instrument):
    """Counts events; it only increases."""

    kind = "counter"

    def _make(self, registry: CollectorRegistry) -> MetricWrapperBase:
        import prometheus_client

        return prometheus_client.Counter(self.name, self.text, self.labels, registry=registry)


class Gauge(Instrument):
    """Has a current value; it appears with its first value, because 0 would be a value too."""

    kind = "gauge"

    def series(self, *values: str) -> Series:
        """Return the series of some labels, in the order of `labels`."""
        if self._made is None and _export.registry is not None:
            self._made = self._make(_export.registry)
        return super().series(*values)

    def _begin(self, registry: CollectorRegistry) -> None:
        """Wait for the first value."""

    def _make(self, registry: CollectorRegistry) -> MetricWrapperBase:
        import prometheus_client

        return prometheus_client.Gauge(self.name, self.text, self.labels, registry=registry)


class Histogram(Instrument):
    """Counts values by size.

    Args:
        buckets: Upper bounds of the sizes, ascending.
    """

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        super().__init__(name, text, labels)

    def _make(self, registry: CollectorRegistry) -> MetricWrapperBase:
        import prometheus_client

        return prometheus_client.Histogram(self.name, self.text, self.labels, registry=registry, buckets=self._buckets)


def begin_export(registry: CollectorRegistry, *, names_teams: bool = False) -> None:
    """Record from now on, into a registry.

    Args:
        registry: The scraped registry.
        names_teams: Whether `team_label` names teams.
    """
    _export.registry, _export.names_teams = registry, names_teams
    for instrument in _export.declared.values():
        instrument._begin(registry)  # noqa: SLF001 - of this module


def end_export() -> None:
    """Record nothing from now on."""
    _export.registry, _export.names_teams = None, False
    _export.label_values.clear()
    for instrument in _export.declared.values():
        instrument._end()  # noqa: SLF001 - of this module


def is_exporting() -> bool:
    """Return whether anything is recorded."""
    return _export.registry is not None


def team_label(team: str) -> str:
    """Return a team as the value of a label: empty, which means no label, unless the operator lets series name
    teams."""
    return bounded_label("team", team) if _export.names_teams else ""


def bounded_label(label: str, value: str) -> str:
    """Return a caller's value for a label, or `other` once the label has MAX_LABEL_VALUES values.

    Args:
        label: What the value names, e.g. `model`.
        value: The value.
    """
    if _export.registry is None:
        return value
    known = _export.label_values.setdefault(label, set())
    if value not in known and len(known) >= MAX_LABEL_VALUES:
        return "other"
    known.add(value)
    return value


def declared() -> list[Instrument]:
    """Return all instruments of the modules that are imported, by name."""
    return [_export.declared[name] for name in sorted(_export.declared)]
