"""The metrics that Prometheus reads from a process."""

from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


def read_families(address: str) -> dict[str, Metric]:
    """Return the metric families of an address by name."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as reply:
        families = text_string_to_metric_families(reply.read().decode())
    return {f"{family.name}_total" if family.type == "counter" else family.name: family for family in families}


async def scraped(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples of an address by name, then by label values in the order of the label names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in (await asyncio.to_thread(read_families, address)).values():
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found
