"""The jury of a run: one or several judges, and their verdicts on an answer once all have arrived."""

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

    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import JudgeSpec
    from assay_orchestrator.evidence.judge_client import RunAccount
    from assay_orchestrator.evidence.verdict_wire import JudgedRow

_QUALITY = "quality"
_ANSWER = "answer"
_HIGHEST = {_QUALITY: 5.0, _ANSWER: 1.0}
_LEAST_S, _MOST_S = 1.0, 300.0


class RunJury:
    """Gathers the verdicts of one run.

    Args:
        stub: The judge service; None if recorded verdicts replace it.
        judge: The judges.
        account: The account that pays.
        ask_round: The round of asking: how many times the run was paused before.
        patience_s: How long to retry an unreachable judge service, in seconds.
        pausing: Set when no more questions may be asked.
    """

    def __init__(
        self,
        stub: JudgeServiceAsyncStub | None,
        judge: JudgeSpec,
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
                stub, judge_settings, account,
                place=place, ask_round=ask_round, patience_s=patience_s, pausing=pausing, status=self._status,
            )
            for place, judge_settings in enumerate(judge.judges)
        ]  # fmt: skip

    @property
    def trouble(self) -> str:
        """Why verdicts are unavailable, as a sentence; empty while they are available."""
        return self._status.trouble

    @property
    def batches(self) -> bool:
        """Whether verdicts are ordered, and arrive hours later."""
        return self._judge.batch

    @property
    def canary_rate(self) -> float:
        """Share of the cases with canaries: answers of known quality that the judges also grade."""
        return self._judge.canary_rate

    def goes_by_references(self, rubric: str) -> bool:
        """Return whether a rubric asks if an answer is right, so that a reference is good and other answers are not."""
        return rubric == _QUALITY or (not self._judge.rubric_yaml and self._judge.rubric in ("", _ANSWER, _QUALITY))

    async def is_refused(self) -> bool:
        """Return whether a judge's provider refuses every call: its key, its model, or its spending.

        Called once, before the agent is asked: no question is paid for whose answer cannot be judged.
        """
        async with self._checking:
            if self._is_refused is None:
                preflights = [judge.preflight() for judge in self._judges if isinstance(judge, RunJudge)]
                await asyncio.gather(*preflights)
                self._is_refused = self._status.stops
        return self._is_refused

    def highest_score(self, rubric: str) -> float | None:
        """Return the highest score of a rubric; None for a rubric that only the judge service knows."""
        if rubric != _QUALITY and self._judge.rubric_yaml:
            return read_rubric(self._judge.rubric_yaml).maximum
        return _HIGHEST.get(rubric if rubric == _QUALITY else self._judge.rubric or _ANSWER)

    async def order(self, judged: Iterable[tuple[JudgedRow, AgentResponse, Sequence[str]]]) -> None:
        """Order all verdicts of a row.

        Args:
            judged: The row and its canaries with their answers, each with the names of its verdicts.

        Raises:
            NotYetError: Some have not arrived.
        """
        delays = await asyncio.gather(
            *(
                judge.order(row, response, rubric)
                for row, response, rubrics in judged
                for rubric, judge in itertools.product(rubrics, self._judges)
            )
        )
        _raise_if_pending(delays)

    async def gather(
        self, row: JudgedRow, response: AgentResponse, rubrics: Sequence[str]
    ) -> dict[str, JudgeEvidence] | None:
        """Return the verdicts on an answer, by the name under which metrics look them up.

        Args:
            row: The row.
            response: The judged answer.
            rubrics: The names.

        Returns:
            None if a verdict is currently unavailable; `trouble` says why, unless the run is being paused.

        Raises:
            NotYetError: A verdict is ordered and has not arrived.
        """
        requests = list(itertools.product(rubrics, self._judges))
        gathered = await asyncio.gather(*(judge.evidence(row, response, name) for name, judge in requests))
        _raise_if_pending(gathered)
        verdicts = [evidence for evidence in gathered if isinstance(evidence, JudgeEvidence)]
        if len(verdicts) < len(requests):
            return None
        if len(self._judges) == 1:
            return dict(zip(rubrics, verdicts, strict=True))
        size = len(self._judges)
        return {
            name: JudgeEvidence(None, jury=tuple(verdicts[place * size : (place + 1) * size]))
            for place, name in enumerate(rubrics)
        }

    async def aclose(self) -> None:
        """Cancel the calls in flight; read their cost if money was taken for them."""
        for judge in self._judges:
            await judge.aclose()
        first = self._judges[0]
        if self._budget.is_metered and isinstance(first, RunJudge):
            await first.settle()


def _raise_if_pending(outcomes: Iterable[object]) -> None:
    pending = [outcome.after_s for outcome in outcomes if isinstance(outcome, NotYetError)]
    if pending:
        raise NotYetError(min(_MOST_S, max(_LEAST_S, *pending)))
