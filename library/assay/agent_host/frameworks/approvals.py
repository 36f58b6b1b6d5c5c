"""The loop that resumes a framework's agent after each stop with the request's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from assay.agent_host.failures import TooManyStopsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from assay.model.answers.approvals import Decision, ScriptedApprovals
    from assay.model.answers.interrupts import Interrupt

OutcomeT = TypeVar("OutcomeT")

MAX_STOPS = 100
"""Maximum resumes per turn: an agent that asks again after each decision would never end."""


async def run_to_end(
    run: Callable[[], Awaitable[OutcomeT]],
    resume: Callable[[OutcomeT, Sequence[tuple[Interrupt, Decision]]], Awaitable[OutcomeT]],
    waiting: Callable[[OutcomeT], Sequence[Interrupt]],
    approvals: ScriptedApprovals,
) -> OutcomeT:
    """Run an agent, and resume it while all interrupts of its stop have a decision.

    Args:
        run: Runs the agent until it ends or stops.
        resume: Resumes it until it ends or stops again. Called with the stop, and with each of its interrupts and the
            decision on it, in the order of `waiting`.
        waiting: Returns the interrupts of a stop; empty if the agent has ended.
        approvals: The request's approvals. Afterwards, also after an exception, `approvals.interrupts` has all
            interrupts, and `approvals.is_waiting` says whether the agent still waits.

    Returns:
        The result of `run` or of the last `resume`.

    Raises:
        TooManyStopsError: The agent stopped again after `MAX_STOPS` resumes.
    """
    outcome = await run()
    for _ in range(MAX_STOPS):
        decisions = [(interrupt, approvals.decide(interrupt)) for interrupt in waiting(outcome)]
        decided = [(interrupt, decision) for interrupt, decision in decisions if decision is not None]
        if not decisions or len(decided) < len(decisions):
            return outcome
        outcome = await resume(outcome, decided)
    stops = waiting(outcome)
    if not stops:
        return outcome
    names = ", ".join(dict.fromkeys(stop.tool or stop.kind for stop in stops))
    raise TooManyStopsError(
        f"approvals resumed the agent {MAX_STOPS} times and it stopped again ({names}); give the item a number of "
        "`times`, or correct the agent so that it stops asking"
    )
