"""Times in the store's form: UTC, ISO 8601, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from assay.process.failpoints import clock_offset_s, failpoint


def now(later_s: float = 0.0) -> str:
    """Return the current time, or the time some seconds later, e.g. 2026-05-01T09:30:00.125Z."""
    failpoint("store.clock")
    moment = datetime.now(UTC)
    if offset_s := clock_offset_s() + later_s:
        moment += timedelta(seconds=offset_s)
    return stamp(moment)


def stamp(moment: datetime) -> str:
    """Return a time in the store's form; a time without a zone is in UTC."""
    at_utc = moment.astimezone(UTC) if moment.tzinfo is not None else moment
    return at_utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
