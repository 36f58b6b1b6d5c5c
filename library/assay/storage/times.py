"""Times as the store keeps them: UTC, ISO 8601, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from assay.process.failpoints import clock_offset_s, failpoint


def now() -> str:
    """Return the current time, e.g. 2026-05-01T09:30:00.125Z."""
    failpoint("store.clock")
    moment = datetime.now(UTC)
    if offset_s := clock_offset_s():
        moment += timedelta(seconds=offset_s)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
