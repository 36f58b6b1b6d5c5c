"""Questions that cannot be answered, and answers that say so: what `coverage` and `satisfaction` agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import Parameter
from assay.model.answers.agent_response import AgentStatus
from assay.text.folding import containment_work, fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.model.answers.agent_response import AgentResponse

_PHRASES = [
    "I don't know", "I do not know", "couldn't find", "could not find", "cannot answer", "can't answer",
    "no information", "لا أعرف", "لا أعلم", "لم أجد",
]  # fmt: skip

DECLINE_PHRASES = Parameter(
    "decline_phrases", "text_list", _PHRASES, "Phrases that decline a question which cannot be answered."
)


def decline_phrases(parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return the phrases of a metric."""
    return list(parameters[DECLINE_PHRASES.name])


class Declining:
    """Recognises answers that decline a question.

    Args:
        phrases: Any of them in the folded answer declines.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = [folded for phrase in phrases if (folded := fold(phrase))]

    def work(self, response: AgentResponse) -> int:
        """Return how much work looking for the phrases is at most."""
        return containment_work(response.text, self._phrases, as_words=False)

    def is_declined(self, response: AgentResponse) -> bool:
        """Return whether the agent, which did not fail, has said that it has no answer."""
        if response.status is not AgentStatus.SUCCESS:
            return response.status is AgentStatus.OUT_OF_SCOPE
        answer = fold(response.text)
        return any(phrase in answer for phrase in self._phrases)
