"""The figures of an ended run by which lists filter and sort: small beside its summary, with its groups and details."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMES = {"mean_ms": "mean", "p50_ms": "p50", "p95_ms": "p95", "max_ms": "max"}


def figures_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return verdict and figures of a stored summary; latencies are in seconds, and missing values are left out.

    Figures have the names that gates use: METRIC, METRIC.pass_rate, METRIC.group.NAME, latency.p95.
    """
    values = {name: value for name, value in _values(summary) if value is not None}
    return {"verdict": summary.get("verdict", ""), "values": values}


def _values(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    times = summary.get("latency", {})
    for name, figure in _TIMES.items():
        time_ms = times.get(name)
        yield f"latency.{figure}", None if time_ms is None else time_ms / 1000
    for metric in summary.get("metrics", ()):
        name, decided = metric["metric"], metric["passed_count"] + metric["failed_count"]
        yield name, metric["value"]
        yield f"{name}.pass_rate", metric["passed_count"] / decided if decided else None
        for group, value in (metric["detail"].get("groups") or {}).items():
            yield f"{name}.group.{group}", value
