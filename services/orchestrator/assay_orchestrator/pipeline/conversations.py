"""The answers of a row that are scored: the last one alone, or in a conversation that of every turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.metrics.core.evidence import wanted_rubrics, wanted_texts
from assay.metrics.core.score import Row, has_reference
from assay.metrics.core.turn_scores import scores_turns
from assay.model.answers.agent_response import AgentResponse, Message, Usage
from assay.model.answers.possible_usage import possible_cost
from assay.statistics.exact_sum import exact_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.evidence import WantedTexts
    from assay.metrics.core.score import EmbeddingEvidence, JudgeEvidence, Metric
    from assay.model.case import Case
    from assay.model.metric_call import MetricOutcome


@dataclass(frozen=True, slots=True)
class ScoredTurn:
    """An answer that is scored.

    Args:
        case: The case up to the turn.
        response: The answer.
        earlier: The answers before it.
        embeddings: What it needs of embedding models, by model and what of its vectors is compared.
        rubrics: The names under which metrics look for verdicts on it.
        turn_index: Which turn, where later ones are scored too; None for a row's last.
    """

    case: Case
    response: AgentResponse
    earlier: Sequence[AgentResponse]
    embeddings: Mapping[EmbeddingSettings, WantedTexts]
    rubrics: Sequence[str]
    turn_index: int | None = None

    @property
    def history(self) -> tuple[Message, ...]:
        """What was said before the turn."""
        return history_before(self.case, self.earlier)


def scored_turns(
    case: Case, answers: Sequence[AgentResponse], metrics: Sequence[Metric], turn_score: str
) -> list[ScoredTurn]:
    """Return what is scored of a row, the last turn last.

    After a turn whose agent fails none is asked: these count as failed calls, too. Of earlier turns, judges see those
    with a reference, and none where the row fails in any case.

    Args:
        case: The row's case.
        answers: One a turn, as far as they were asked.
        metrics: The run's metrics.
        turn_score: What the value of a conversation is, one of `assay.model.run_settings.TURN_SCORES`.
    """
    last = answers[-1]
    if len(case.turns) == 1 or turn_score == "last":
        return [
            ScoredTurn(case, last, answers[:-1], wanted_texts(metrics, case, last), wanted_rubrics(metrics, case, last))
        ]
    by_turn = [metric for metric in metrics if scores_turns(metric)]
    unasked = AgentResponse(status=last.status, error=last.error, interrupts=last.interrupts)
    given = [*answers, *[unasked] * (len(case.turns) - len(answers))]
    turns = []
    for index, response in enumerate(given):
        is_last, view = index == len(given) - 1, case.up_to(index)
        chosen = metrics if is_last else by_turn
        judged = is_last or (not last.is_failed and has_reference(view))
        embeddings = wanted_texts(chosen, view, response)
        rubrics = wanted_rubrics(chosen, view, response) if judged else ()
        turns.append(ScoredTurn(view, response, given[:index], embeddings, rubrics, None if is_last else index))
    return turns


def scored_row(
    case: Case,
    answers: Sequence[AgentResponse],
    turns: Sequence[ScoredTurn],
    evidence: Sequence[tuple[Mapping[EmbeddingSettings, EmbeddingEvidence], Mapping[str, JudgeEvidence]]],
    turn_score: str,
    outcomes: Sequence[Mapping[str, MetricOutcome]],
) -> Row:
    """Return the row that metrics look at.

    Args:
        case: The row's case.
        answers: One a turn, as far as they were asked.
        turns: What `scored_turns` returned.
        evidence: What embedding models and judges say of each of them.
        turn_score: As above.
        outcomes: What functions on the user's side said of each of the turns.
    """
    rows = [
        Row(case=turn.case, response=turn.response, embeddings=embeddings, verdicts=verdicts, outcomes=said)
        for turn, (embeddings, verdicts), said in zip(turns, evidence, outcomes, strict=True)
    ]
    if len(rows) == 1:
        return rows[0]
    whole = _whole_answer(answers, turn_score)
    return dataclasses.replace(rows[-1], case=case, response=whole, turns=tuple(rows), turn_score=turn_score)


def _whole_answer(answers: Sequence[AgentResponse], turn_score: str) -> AgentResponse:
    """Return the last answer with what all took: tokens and cost summed up, the mean or the longest of the times.

    It is cold where one of them is.

    What is not known of every answer is not known of all of them. A failed call has its own times.
    """
    last = answers[-1]
    usages = [answer.usage or Usage() for answer in answers]
    total: dict[str, Any] = {
        field.name: _sum(getattr(usage, field.name) for usage in usages) for field in dataclasses.fields(Usage)
    }
    impossible = [usage.cost_usd for usage in usages if usage.cost_usd != possible_cost(usage.cost_usd)]
    if impossible:
        total["cost_usd"] = impossible[0]  # in a sum another turn's cost could hide it
    usage = Usage(**total) if any(value is not None for value in total.values()) else None
    whole = dataclasses.replace(last, usage=usage, cold=any(answer.cold for answer in answers))
    if last.is_failed:
        return whole
    return dataclasses.replace(
        whole,
        latency_ms=_of_all([answer.latency_ms for answer in answers], turn_score),
        time_to_first_token_ms=_of_all([answer.time_to_first_token_ms for answer in answers], turn_score),
    )


def _of_all(times_ms: Sequence[float | None], turn_score: str) -> float | None:
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    if len(known) < len(times_ms):
        return None
    return max(known) if turn_score == "worst" else exact_mean(known)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def history_before(case: Case, earlier: Sequence[AgentResponse]) -> tuple[Message, ...]:
    """Return the history that the turn after some answers brings along, or what was said so far where it has none."""
    own = case.turns[len(earlier)].history
    if own or not earlier:
        return own
    said = list(case.turns[0].history)
    for turn, response in zip(case.turns, earlier, strict=False):
        said += [Message("user", turn.input), Message("assistant", response.text)]
    return tuple(said)
