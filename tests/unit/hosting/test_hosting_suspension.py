"""Noticing that a process was suspended."""

from __future__ import annotations

from assay.agent_host.concurrency.suspension import Suspensions


def test_only_a_loop_that_did_not_run_for_longer_than_a_second_was_suspended() -> None:
    """Each such time counts once, as soon as it is over."""
    now = [100.0]
    suspensions = Suspensions(lambda: now[0])
    counts = []
    for step in (0.0, 0.25, 1.0, 1.01, 0.25, 3600.0, 0.0):
        now[0] += step
        counts.append(suspensions.check())
    assert counts == [0, 0, 0, 1, 1, 2, 2]
