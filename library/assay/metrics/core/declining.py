"""Recognition of answers that decline an unanswerable question, for `coverage` and `satisfaction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics.core.info import Parameter
from assay.model.answers.agent_response import AgentStatus
from assay.text.folding import containment_work, fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.model.answers.agent_response import AgentResponse

_PHRASES = [
    "I don't know", "I do not know", "couldn't find", "could not find", "cannot answer", "can't answer",
    "no information", "لا أعرف", "لا أعلم", "لم أجد",
]  # fmt: skip

DECLINE_PHRASES = Parameter(
    "decline_phrases", "text_list", _PHRASES, "Phrases that decline a question which cannot be answered."
)


class Declining:
    """Recognises answers that decline a question.

    Args:
        phrases: Phrases, any of which in the folded answer declines the question.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = [folded for phrase in phrases if (folded := fold(phrase))]

    def work(self, response: AgentResponse) -> int:
        """Return an upper bound of the work of searching for the phrases."""
        return containment_work(response.text, self._phrases, as_words=False)

    def is_declined(self, response: AgentResponse) -> bool:
        """Return whether the agent declined to answer; a failed agent did not."""
        if response.status is not AgentStatus.SUCCESS:
            return response.status is AgentStatus.OUT_OF_SCOPE
        answer = fold(response.text)
        return any(phrase in answer for phrase in self._phrases)
