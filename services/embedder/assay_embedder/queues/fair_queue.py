"""A queue that takes the scopes in turn: a scope with 100,000 texts does not hold up one with ten."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_embedder.queues.jobs import Job


@dataclass(slots=True)
class _Lane:
    """The jobs of one scope, oldest first, and the word pieces it may still take in this round.

    One without jobs is kept until its next turns have paid for what its last job took beyond them.
    """

    jobs: OrderedDict[Job, None] = field(default_factory=OrderedDict)
    credit: int = 0


class FairQueue:
    """Deficit round-robin by word pieces; first come, first served within a scope. Not safe for threads.

    A scope is charged an estimate when its jobs are taken, and the difference once they are counted.

    Args:
        quantum_tokens: Word pieces that a scope gets a turn; a longer text is taken alone, and later turns pay for it.

    Source: M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995.
    """

    def __init__(self, quantum_tokens: int) -> None:
        self._quantum_tokens = quantum_tokens
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        self._job_count = 0

    def __bool__(self) -> bool:
        """Whether the queue has a job."""
        return self._job_count > 0

    def add(self, jobs: Sequence[Job]) -> None:
        """Append jobs of one scope, at least one."""
        scope = jobs[0].scope
        if not self._job_count:
            self._lanes.clear()  # a scope owes nothing where no other waited
        if scope not in self._lanes:
            self._lanes[scope] = _Lane()
        self._lanes[scope].jobs.update(dict.fromkeys(jobs))
        self._job_count += len(jobs)

    def remove(self, job: Job) -> bool:
        """Remove a job; return whether it was still queued."""
        lane = self._lanes.get(job.scope)
        if lane is None or job not in lane.jobs:
            return False
        del lane.jobs[job]
        self._job_count -= 1
        return True

    def take(self) -> list[Job]:
        """Return the next jobs of the scope whose turn it is, at least one; none when the queue is empty."""
        while self._job_count:
            scope, lane = next(iter(self._lanes.items()))
            lane.credit = min(lane.credit + self._quantum_tokens, self._quantum_tokens)
            self._lanes.move_to_end(scope)
            if lane.credit > 0 and lane.jobs:
                return self._taken(lane)
            if lane.credit > 0:
                del self._lanes[scope]
        return []

    def charge(self, scope: str, tokens: int) -> None:
        """Charge a scope for word pieces beyond the estimate; a negative count is a refund."""
        if scope in self._lanes:
            self._lanes[scope].credit -= tokens

    def take_all(self) -> list[Job]:
        """Empty the queue and return what was in it."""
        jobs = [job for lane in self._lanes.values() for job in lane.jobs]
        self._lanes.clear()
        self._job_count = 0
        return jobs

    def _taken(self, lane: _Lane) -> list[Job]:
        taken: list[Job] = []
        while lane.jobs:
            tokens = next(iter(lane.jobs)).estimated_tokens
            if taken and tokens > lane.credit:
                break
            taken.append(lane.jobs.popitem(last=False)[0])
            lane.credit -= tokens
        self._job_count -= len(taken)
        return taken
