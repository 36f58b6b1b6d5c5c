"""When others may be declared dead: not before they had the time to beat after an outage or a suspend."""

from __future__ import annotations

import pytest

from assay_orchestrator.engine.liveness import Liveness

BEAT_S, DEAD_AFTER_S = 1.0, 20.0


class Clock:
    """A clock that stands until it is set forward."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock of the test's own."""
    return Clock()


@pytest.fixture
def liveness(clock: Clock) -> Liveness:
    """Return what a process may conclude that has just started."""
    return Liveness(BEAT_S, DEAD_AFTER_S, clock)


def trusted(liveness: Liveness) -> tuple[bool, bool]:
    """Return whether free locks, and whether silence, say that a worker is dead."""
    return liveness.trusts_locks, liveness.trusts_silence


def test_a_free_lock_says_soon_that_a_worker_is_dead(liveness: Liveness, clock: Clock) -> None:
    """Normally two heartbeats reveal a killed worker; silence takes longer."""
    liveness.reach()
    assert trusted(liveness) == (False, False)
    clock.now += 2 * BEAT_S + 0.1
    assert trusted(liveness) == (True, False)
    clock.now += DEAD_AFTER_S
    assert trusted(liveness) == (True, True)


def test_an_outage_counts_from_the_first_success_after_it(liveness: Liveness, clock: Clock) -> None:
    """However long it lasted, and however long connecting took: nobody is dead before the interval has passed."""
    clock.now += 1000.0
    liveness.lose()
    assert trusted(liveness) == (False, False)
    clock.now += 1000.0
    assert trusted(liveness) == (False, False)
    liveness.reach()
    clock.now += DEAD_AFTER_S
    assert (trusted(liveness), liveness.is_returning) == ((False, False), True)
    clock.now += 0.1
    assert (trusted(liveness), liveness.is_returning) == ((True, True), False)


def test_further_successes_do_not_count_anew(liveness: Liveness, clock: Clock) -> None:
    """The first success counts; another failure starts again."""
    liveness.lose()
    liveness.reach()
    for _ in range(21):
        clock.now += 1.0
        liveness.reach()
    assert trusted(liveness) == (True, True)
    liveness.lose()
    liveness.reach()
    assert trusted(liveness) == (False, False)


def test_a_server_that_has_just_started_is_an_outage_that_one_did_not_see(liveness: Liveness, clock: Clock) -> None:
    """A process that starts beside a restarted server waits as all others do."""
    liveness.reach(server_age_s=DEAD_AFTER_S - 0.1)
    clock.now += DEAD_AFTER_S
    assert trusted(liveness) == (False, False)
    clock.now += 0.1
    assert trusted(liveness) == (True, True)


def test_a_suspend_is_an_outage(liveness: Liveness, clock: Clock) -> None:
    """A suspended process notices by its clock, and declares no other suspended process dead."""
    clock.now += DEAD_AFTER_S / 2
    assert not liveness.tick()
    clock.now += DEAD_AFTER_S / 2 + 0.1
    assert liveness.tick()
    assert trusted(liveness) == (False, False)
    assert not liveness.tick()
    liveness.reach()
    clock.now += DEAD_AFTER_S
    assert trusted(liveness) == (False, False)
