"""The scored answers of a row: the last one, or in a conversation those of every turn."""

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
    """A scored answer.

    Args:
        case: The case up to the turn.
        response: The answer.
        earlier: The answers before it.
        embeddings: The texts it needs embedded, by model and compared part of the vectors.
        rubrics: The names under which metrics look up its verdicts.
        turn_index: The turn, if later turns are scored too; None for a row's last turn.
    """

    case: Case
    response: AgentResponse
    earlier: Sequence[AgentResponse]
    embeddings: Mapping[EmbeddingSettings, WantedTexts]
    rubrics: Sequence[str]
    turn_index: int | None = None

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages before the turn."""
        return history_before(self.case, self.earlier)


def scored_turns(
    case: Case, answers: Sequence[AgentResponse], metrics: Sequence[Metric], turn_score: str
) -> list[ScoredTurn]:
    """Return the scored turns of a row, the last turn last.

    After a turn whose agent fails no further turn is asked; those turns count as failed calls too. Of earlier turns,
    judges see those with a reference, and none if the row fails in any case.

    Args:
        case: The row's case.
        answers: One per turn, for the turns that were asked.
        metrics: The run's metrics.
        turn_score: How a conversation is valued, one of `assay.model.run_spec.TURN_SCORES`.
    """
    last = answers[-1]
    if len(case.turns) == 1 or turn_score == "last":
        return [
            ScoredTurn(case, last, answers[:-1], wanted_texts(metrics, case, last), wanted_rubrics(metrics, case, last))
        ]
    by_turn = [metric for metric in metrics if scores_turns(metric)]
    unasked = AgentResponse(status=last.status, error=last.error, interrupts=last.interrupts)
    padded_answers = [*answers, *[unasked] * (len(case.turns) - len(answers))]
    turns = []
    for index, response in enumerate(padded_answers):
        is_last, view = index == len(padded_answers) - 1, case.up_to(index)
        chosen = metrics if is_last else by_turn
        judged = is_last or (not last.is_failed and has_reference(view))
        embeddings = wanted_texts(chosen, view, response)
        rubrics = wanted_rubrics(chosen, view, response) if judged else ()
        turns.append(
            ScoredTurn(view, response, padded_answers[:index], embeddings, rubrics, None if is_last else index)
        )
    return turns


def scored_row(
    case: Case,
    answers: Sequence[AgentResponse],
    turns: Sequence[ScoredTurn],
    evidence: Sequence[tuple[Mapping[EmbeddingSettings, EmbeddingEvidence], Mapping[str, JudgeEvidence]]],
    turn_score: str,
    outcomes: Sequence[Mapping[str, MetricOutcome]],
) -> Row:
    """Return the row that metrics score.

    Args:
        case: The row's case.
        answers: One per turn, for the turns that were asked.
        turns: The result of `scored_turns`.
        evidence: The evidence of embedding models and judges for each turn.
        turn_score: As in `scored_turns`.
        outcomes: The outcomes of the user's own metric functions for each turn.
    """
    rows = [
        Row(case=turn.case, response=turn.response, embeddings=embeddings, verdicts=verdicts, outcomes=turn_outcomes)
        for turn, (embeddings, verdicts), turn_outcomes in zip(turns, evidence, outcomes, strict=True)
    ]
    if len(rows) == 1:
        return rows[0]
    whole = _whole_answer(answers, turn_score)
    return dataclasses.replace(rows[-1], case=case, response=whole, turns=tuple(rows), turn_score=turn_score)


def _whole_answer(answers: Sequence[AgentResponse], turn_score: str) -> AgentResponse:
    """Return the last answer with the totals of all: summed tokens and cost, and the mean or the longest of the times.

    It is cold if any answer is. A figure that one answer lacks is missing from the total. A failed call keeps its own
    times.
    """
    last = answers[-1]
    usages = [answer.usage or Usage() for answer in answers]
    total: dict[str, Any] = {
        field.name: _sum(getattr(usage, field.name) for usage in usages) for field in dataclasses.fields(Usage)
    }
    impossible = [usage.cost_usd for usage in usages if usage.cost_usd != possible_cost(usage.cost_usd)]
    if impossible:
        total["cost_usd"] = impossible[0]  # in a sum, another turn's cost could hide it
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
    known_times = [time_ms for time_ms in times_ms if time_ms is not None]
    if len(known_times) < len(times_ms):
        return None
    return max(known_times) if turn_score == "worst" else exact_mean(known_times)


def _sum(values: Iterable[float | None]) -> float | None:
    summands = list(values)
    return None if None in summands else sum(value for value in summands if value is not None)


def history_before(case: Case, earlier: Sequence[AgentResponse]) -> tuple[Message, ...]:
    """Return the next turn's history: the dataset's, or else the conversation so far."""
    own = case.turns[len(earlier)].history
    if own or not earlier:
        return own
    messages = list(case.turns[0].history)
    for turn, response in zip(case.turns, earlier, strict=False):
        messages += [Message("user", turn.input), Message("assistant", response.text)]
    return tuple(messages)
