"""One verdict from beginning to end: the precheck, the cache, the calls, the check, the cache again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, OverloadedError, Problem
from assay_judge.calls.provider_client import CallFailedError, Payer
from assay_judge.calls.usage import Tally
from assay_judge.grading.single_flight import JointWork
from assay_judge.verdicts.cache import verdict_from
from assay_judge.verdicts.cache_key import canonical_json, content_key, fingerprint
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import PARSER, InvalidVerdictError, JudgeVerdict, verdict_schema
from assay_judge.verdicts.precheck import precheck_off_loop
from assay_judge.verdicts.prompt import build_prompt, template_hash
from assay_judge.verdicts.replies import TURNS, no_verdict, outcome_of, wanted_parameters

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric
    from assay_judge.batches.dispatcher import Batches
    from assay_judge.calls.provider_client import Line
    from assay_judge.calls.provider_registry import Switchboard
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import Keeping
    from assay_judge.verdicts.recording import Recording
from assay_judge.model import Grading


@dataclass(slots=True)
class Statistics:
    """What the cache has done since the start: answered, asked the judge, joined an identical request."""

    hits: int = 0
    misses: int = 0
    joined: int = 0


class Grader:
    """Grades answers.

    Args:
        switchboard: The judges.
        keeping: Verdicts that were given before.
        ledger: What runs have spent.
        batches: Requests that are asked in batches.
        recording: Verdicts for the provider "replay"; None where there are none.
        queue_limit: Most requests under way; more are refused.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        keeping: Keeping,
        ledger: Ledger,
        batches: Batches,
        *,
        recording: Recording | None = None,
        queue_limit: int = 4_096,
    ) -> None:
        self.statistics = Statistics()
        self._switchboard = switchboard
        self._keeping = keeping
        self._ledger = ledger
        self._batches = batches
        self._recording = recording
        self._queue_limit = queue_limit
        self._under_way = 0
        self._joint: JointWork[Outcome] = JointWork()

    async def grade(self, grading: Grading) -> Outcome:
        """Return what comes of a request; a verdict that cannot be had is an outcome.

        Raises:
            InvalidInputError: A recording of several judges was asked for without saying which.
            SetupError: The judge's package or key is missing.
            OverloadedError: Too many requests are under way.
            StorageError: Spending cannot be kept.
        """
        if grading.judge.provider == "none":
            message = "no judge configured: name one in the run, or give the judge service one with --provider"
            return Outcome(Status.UNAVAILABLE, reason="judge_not_configured", message=message)
        if self._under_way >= self._queue_limit:
            raise OverloadedError(f"{self._queue_limit} verdicts are in flight; retry in 1 s.", reason="QUEUE_FULL")
        self._under_way += 1
        try:
            outcome = await self._graded(self._named(grading))
        finally:
            self._under_way -= 1
        return dataclasses.replace(outcome, message=self._switchboard.redact(outcome.message))

    def check(self, grading: Grading) -> None:
        """Raise what is known to keep a judge from being asked, without calling anybody.

        Raises:
            InvalidInputError: As in `grade`.
            SetupError: As in `grade`.
        """
        grading = self._named(grading)
        if grading.judge.provider not in ("none", "replay"):
            self._switchboard.check(grading.judge, capped=grading.cap is not None)

    async def aclose(self) -> None:
        """End what is under way."""
        await self._joint.aclose()

    def _named(self, grading: Grading) -> Grading:
        """Return the request with the recorded judge filled in where only one was recorded."""
        if grading.judge.provider != "replay" or grading.judge.model:
            return grading
        judges = self._recording.judges if self._recording else []
        if len(judges) != 1:
            recorded = ", ".join(judges) or "nothing"
            message = f"must name the recorded judge; the recording of this server holds {recorded}"
            raise InvalidInputError([Problem(message, "judge.model")])
        return dataclasses.replace(grading, judge=dataclasses.replace(grading.judge, model=judges[0]))

    async def _graded(self, grading: Grading) -> Outcome:
        seen = await precheck_off_loop(grading.material)
        known = _identity(grading)
        known["flags"] = seen.flags
        if seen.is_empty and not grading.rubric.judges_trivial:
            lowest = JudgeVerdict("The answer is empty.", grading.rubric.lowest)
            return Outcome(Status.VALID, lowest, by_rule=True, **known)
        if grading.judge.provider == "replay":
            return self._replayed(grading, known)
        if grading.batch:
            self.statistics.joined += self._batches.is_ordered(known["key"])
            ordered = await self._batches.found(grading, known["key"])
            if ordered is not None:
                return dataclasses.replace(ordered, **known)
        found = await self._keeping.find(known["key"], grading.rubric)
        if found is not None:
            self.statistics.hits += 1
            return dataclasses.replace(found, cached=True, **known)
        line = await self._switchboard.line(grading.judge)
        if grading.batch:
            self.statistics.misses += 1
            return dataclasses.replace(await self._batches.verdict(line, grading, known["key"]), **known)
        return dataclasses.replace(await self._joined(line, grading, known["key"]), **known)

    async def _joined(self, line: Line, grading: Grading, key: str) -> Outcome:
        # Another run's cap must not decide about this one's verdict.
        work = (key, grading.run_id, grading.cap)
        joins = self._joint.is_under_way(work)
        if joins:
            self.statistics.joined += 1
        else:
            self.statistics.misses += 1
        tally = Tally()
        try:
            outcome = await self._joint.do(work, lambda: self._asked(line, grading, key, tally), grading.timeout_s)
        except TimeoutError:
            said = f"; last: {tally.last_problem}" if tally.last_problem else ""
            message = f"no verdict within {grading.timeout_s:g} s{said}"
            reason = "rate_limited" if tally.throttled else "deadline_exceeded"
            return Outcome(
                Status.UNAVAILABLE, reason=reason, message=message, tally=tally,
                temperature=tally.temperature,
            )  # fmt: skip
        return outcome.as_found() if joins else outcome

    async def _asked(self, line: Line, grading: Grading, key: str, tally: Tally) -> Outcome:
        account, close = await self._ledger.open(grading.run_id)
        try:
            outcome = await self._asked_for(line, grading, Payer(account, grading.cap, self._ledger.journal), tally)
        except CallFailedError as failure:
            outcome = Outcome(Status.UNAVAILABLE, reason=failure.reason, message=failure.message)
        finally:
            close()
        outcome = dataclasses.replace(outcome, tally=tally, temperature=tally.temperature)
        await self._keeping.keep(key, grading.rubric, grading.judge, outcome)
        return outcome

    async def _asked_for(self, line: Line, grading: Grading, payer: Payer, tally: Tally) -> Outcome:
        rubric, wanted = grading.rubric, wanted_parameters(grading.judge)
        problem = ""
        for _ in range(TURNS):
            # Each turn has a verdict_id of its own, and says what was wrong in our words alone: the refused reply may
            # hold what the answer told the judge to say.
            prompt = build_prompt(rubric, grading.material, problem=problem)
            reply = await line.call(prompt, verdict_schema(rubric), wanted, payer, tally)
            try:
                return outcome_of(reply, rubric, prompt.verdict_id)
            except InvalidVerdictError as invalid:
                problem = str(invalid)
                tally.last_problem = problem
        return no_verdict(problem, reply.model)

    def _replayed(self, grading: Grading, known: dict[str, Any]) -> Outcome:
        record = self._recording.find(known["key"]) if self._recording else None
        outcome = None if record is None else verdict_from(record, grading.rubric)
        if outcome is None:
            message = f"the recording holds no verdict of {grading.judge.identity} on this answer"
            return Outcome(Status.UNAVAILABLE, reason="not_recorded", message=message, **known)
        return dataclasses.replace(outcome, **known)


def _identity(grading: Grading) -> dict[str, Any]:
    """Return the key of a verdict and the fingerprint of its judge."""
    rubric, material, judge = grading.rubric, grading.material, grading.judge
    by: dict[str, Any] = {
        "model": judge.identity,
        "params": judge.params,
        "schema": _schema_text(rubric),
        "template": template_hash(rubric),
    }
    key = content_key(
        answer=material.answer if material.second is None else [material.answer, material.second],
        question=material.question,
        reference=material.reference,
        context=material.contexts,
        history=material.history,
        sample_index=grading.sample_index,
        **by,
    )
    return {"key": key, "fingerprint": fingerprint(**by, parser=PARSER)}


@lru_cache(maxsize=256)
def _schema_text(rubric: Rubric) -> str:
    return canonical_json(verdict_schema(rubric))
