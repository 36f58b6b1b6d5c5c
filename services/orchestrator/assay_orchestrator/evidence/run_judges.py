"""The judges of a run, and their verdicts on an answer once all have arrived."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from assay.judging.rubric_file import read_rubric
from assay.metrics.core.score import JudgeEvidence
from assay.metrics.core.verdict_names import judge_in
from assay_orchestrator.evidence.judge_client import JudgeStatus, RunJudge
from assay_orchestrator.evidence.recorded_judge import RecordedJudge
from assay_orchestrator.evidence.verdict_wire import NotYetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import JudgeSpec
    from assay_orchestrator.evidence.judge_client import RunAccount
    from assay_orchestrator.evidence.verdict_wire import JudgedRow, MetricRubric

_HIGHEST = {"quality": 5.0, "answer": 1.0}
"""The highest score of the judge service's rubrics that ask whether an answer is right."""
_LEAST_S, _MOST_S = 1.0, 300.0


class RunJudges:
    """Gathers the verdicts of one run, each from the judge that its name contains.

    Args:
        stub: The judge service; None if recorded verdicts replace it.
        judges: The judges; the first is the default.
        rubrics: The rubrics of metrics, by the names of their verdicts.
        account: The account that pays.
        ask_round: The round of asking: how many times the run was paused before.
        patience_s: How long to retry an unreachable judge service, in seconds.
        pausing: Set when no more questions may be asked.
    """

    def __init__(
        self,
        stub: JudgeServiceAsyncStub | None,
        judges: Sequence[JudgeSpec],
        rubrics: Mapping[str, MetricRubric],
        account: RunAccount,
        *,
        ask_round: int,
        patience_s: float,
        pausing: asyncio.Event,
    ) -> None:
        self._default = judges[0].name
        self._specs = {judge.name: judge for judge in judges}
        self._rubrics = rubrics
        self._budget = account.budget.judge
        self._status = JudgeStatus()
        self._checking = asyncio.Lock()
        self._is_refused: bool | None = None
        self._members: dict[str, list[RunJudge | RecordedJudge]] = {}
        places = itertools.count()
        for judge in judges:
            if judge.recorded_file:
                self._members[judge.name] = [RecordedJudge(judge, rubrics)]
                continue
            assert stub is not None, "the caller refuses a run without a judge service"
            self._members[judge.name] = [
                RunJudge(
                    stub, judge, member, rubrics, account,
                    place=next(places), ask_round=ask_round, patience_s=patience_s, pausing=pausing,
                    status=self._status,
                )
                for member in judge.members
            ]  # fmt: skip

    @property
    def trouble(self) -> str:
        """Why verdicts are unavailable, as a sentence; empty while they are available."""
        return self._status.trouble

    @property
    def batches(self) -> bool:
        """Whether verdicts of any judge are ordered, and arrive hours later."""
        return any(judge.batch for judge in self._specs.values())

    def canary_rate(self, name: str) -> float:
        """Return the share of the cases with canaries: answers of known quality that a verdict's judge also grades."""
        return self._specs[judge_in(name) or self._default].canary_rate

    def goes_by_references(self, name: str) -> bool:
        """Return whether a verdict's rubric asks if an answer is right.

        By such a rubric a reference is a good answer, and the references of other cases are bad ones.
        """
        rubric = self._rubrics[name]
        return not rubric.text and rubric.name in _HIGHEST

    def highest_score(self, name: str) -> float | None:
        """Return the highest score of a verdict's rubric; None for a rubric that only the judge service knows."""
        rubric = self._rubrics[name]
        return read_rubric(rubric.text).maximum if rubric.text else _HIGHEST.get(rubric.name)

    async def is_refused(self) -> bool:
        """Return whether a judge's provider refuses every call: its key, its model, or its spending.

        Called once, before the agent is asked: no question is paid for whose answer cannot be judged.
        """
        async with self._checking:
            if self._is_refused is None:
                preflights = [member.preflight() for member in self._all() if isinstance(member, RunJudge)]
                await asyncio.gather(*preflights)
                self._is_refused = self._status.stops
        return self._is_refused

    async def order(self, judged: Iterable[tuple[JudgedRow, AgentResponse, Sequence[str]]]) -> None:
        """Order all verdicts of a row that come in batches.

        Args:
            judged: The row and its canaries with their answers, each with the names of its verdicts.

        Raises:
            NotYetError: Some have not arrived.
        """
        delays = await asyncio.gather(
            *(
                member.order(row, response, name)
                for row, response, names in judged
                for name in names
                for member in self._members_of(name)
                if member.batches
            )
        )
        _raise_if_pending(delays)

    async def gather(
        self, row: JudgedRow, response: AgentResponse, names: Sequence[str]
    ) -> dict[str, JudgeEvidence] | None:
        """Return the verdicts on an answer, by the names under which metrics look them up.

        Args:
            row: The row.
            response: The judged answer.
            names: The names.

        Returns:
            None if a verdict is currently unavailable; `trouble` says why, unless the run is being paused.

        Raises:
            NotYetError: A verdict is ordered and has not arrived.
        """
        requests = [(name, member) for name in names for member in self._members_of(name)]
        gathered = await asyncio.gather(*(member.evidence(row, response, name) for name, member in requests))
        _raise_if_pending(gathered)
        verdicts: dict[str, list[JudgeEvidence]] = {name: [] for name in names}
        for (name, _), evidence in zip(requests, gathered, strict=True):
            if not isinstance(evidence, JudgeEvidence):
                return None
            verdicts[name].append(evidence)
        return {
            name: given[0] if len(given) == 1 else JudgeEvidence(None, jury=tuple(given))
            for name, given in verdicts.items()
        }

    async def aclose(self) -> None:
        """Cancel the calls in flight; read their cost if money was taken for them."""
        for member in self._all():
            await member.aclose()
        asked = sorted((member for member in self._all() if isinstance(member, RunJudge)), key=lambda m: not m.batches)
        if self._budget.is_metered and asked:
            await asked[0].settle()

    def _all(self) -> Iterator[RunJudge | RecordedJudge]:
        return itertools.chain.from_iterable(self._members.values())

    def _members_of(self, name: str) -> Sequence[RunJudge | RecordedJudge]:
        return self._members[judge_in(name) or self._default]


def _raise_if_pending(outcomes: Iterable[object]) -> None:
    pending = [outcome.after_s for outcome in outcomes if isinstance(outcome, NotYetError)]
    if pending:
        raise NotYetError(min(_MOST_S, max(_LEAST_S, *pending)))
