"""The jury of a run: one judge or several, and their verdicts on an answer once all of them are there."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from assay.judging.rubric_file import read_rubric
from assay.metrics.core.score import JudgeEvidence
from assay_orchestrator.evidence.judge_client import JudgeStatus, RunJudge
from assay_orchestrator.evidence.recorded_judge import RecordedJudge
from assay_orchestrator.evidence.verdict_wire import NotYetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import JudgeSettings
    from assay.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay_orchestrator.evidence.judge_client import RunAccount
    from assay_orchestrator.evidence.verdict_wire import JudgedRow

_QUALITY = "quality"
_ANSWER = "answer"
_HIGHEST = {_QUALITY: 5.0, _ANSWER: 1.0}
_LEAST_S, _MOST_S = 1.0, 300.0


class RunJury:
    """Gathers the verdicts of one run.

    Args:
        stub: The judge service; None where recorded verdicts take its place.
        judge: Who judges.
        account: Who pays.
        ask_round: Which round of asking this is: how often the run was paused before.
        patience_s: How long a judge service that cannot be reached is asked again.
        pausing: Set when nothing more is to be asked.
    """

    def __init__(
        self,
        stub: JudgeServiceAsyncStub | None,
        judge: JudgeSettings,
        account: RunAccount,
        *,
        ask_round: int,
        patience_s: float,
        pausing: asyncio.Event,
    ) -> None:
        self._judge = judge
        self._budget = account.budget.judge
        self._status = JudgeStatus()
        self._checking = asyncio.Lock()
        self._is_refused: bool | None = None
        self._judges: list[RunJudge | RecordedJudge]
        if stub is None:
            self._judges = [RecordedJudge(judge)]
            return
        self._judges = [
            RunJudge(
                stub, one, account,
                place=place, ask_round=ask_round, patience_s=patience_s, pausing=pausing, status=self._status,
            )
            for place, one in enumerate(judge.judges)
        ]  # fmt: skip

    @property
    def trouble(self) -> str:
        """Why verdicts cannot be had, as a sentence; empty while there is no such trouble."""
        return self._status.trouble

    @property
    def batches(self) -> bool:
        """Whether verdicts are ordered, and come hours later."""
        return self._judge.batch

    @property
    def canary_rate(self) -> float:
        """Share of the cases for which it is also asked about an answer whose worth is known."""
        return self._judge.canary_rate

    def goes_by_references(self, rubric: str) -> bool:
        """Return whether a rubric asks if an answer is right, so that a reference is a good one and others are not."""
        return rubric == _QUALITY or (not self._judge.rubric_yaml and self._judge.rubric in ("", _ANSWER, _QUALITY))

    async def is_refused(self) -> bool:
        """Return whether a judge's provider refuses every call: its key, its model, or what it may spend.

        It is asked once, before the agent is: no question is paid for whose answer cannot be judged.
        """
        async with self._checking:
            if self._is_refused is None:
                asked = [judge.preflight() for judge in self._judges if isinstance(judge, RunJudge)]
                await asyncio.gather(*asked)
                self._is_refused = self._status.stops
        return self._is_refused

    def highest_score(self, rubric: str) -> float | None:
        """Return the highest score of a rubric; None of one that only the judge service knows."""
        if rubric != _QUALITY and self._judge.rubric_yaml:
            return read_rubric(self._judge.rubric_yaml).maximum
        return _HIGHEST.get(rubric if rubric == _QUALITY else self._judge.rubric or _ANSWER)

    async def order(self, wanted: Iterable[tuple[JudgedRow, AgentResponse, Sequence[str]]]) -> None:
        """Order all that a row needs.

        Args:
            wanted: The row and its canaries with their answers, each with the names of its verdicts.

        Raises:
            NotYetError: Some are not there.
        """
        found = await asyncio.gather(
            *(
                judge.order(row, response, rubric)
                for row, response, rubrics in wanted
                for rubric, judge in itertools.product(rubrics, self._judges)
            )
        )
        _raise_if_pending(found)

    async def gather(
        self, row: JudgedRow, response: AgentResponse, rubrics: Sequence[str]
    ) -> dict[str, JudgeEvidence] | None:
        """Return the verdicts on an answer, each by the name under which metrics look for it.

        Args:
            response: The answer that is judged.
            rubrics: The names.

        Returns:
            None where a verdict cannot be had now; `trouble` says why, unless the run is being paused.

        Raises:
            NotYetError: One is ordered and not there.
        """
        asked = list(itertools.product(rubrics, self._judges))
        found = await asyncio.gather(*(judge.evidence(row, response, name) for name, judge in asked))
        _raise_if_pending(found)
        verdicts = [evidence for evidence in found if isinstance(evidence, JudgeEvidence)]
        if len(verdicts) < len(asked):
            return None
        if len(self._judges) == 1:
            return dict(zip(rubrics, verdicts, strict=True))
        size = len(self._judges)
        return {
            name: JudgeEvidence(None, jury=tuple(verdicts[place * size : (place + 1) * size]))
            for place, name in enumerate(rubrics)
        }

    async def aclose(self) -> None:
        """Cancel the calls in flight; read what they cost, where money was taken for them."""
        for judge in self._judges:
            await judge.aclose()
        first = self._judges[0]
        if self._budget.is_metered and isinstance(first, RunJudge):
            await first.settle()


def _raise_if_pending(found: Iterable[object]) -> None:
    pending = [one.after_s for one in found if isinstance(one, NotYetError)]
    if pending:
        raise NotYetError(min(_MOST_S, max(_LEAST_S, *pending)))
