"""Answers that the orchestrator has not stored yet and may request again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.v1 import agent_pb2
    from assay.v1 import orchestrator_pb2 as pb

    Answer: TypeAlias = agent_pb2.AgentResponse | pb.MetricResponse

_MAX_BYTES = 256 * 1024 * 1024


class KeptAnswers:
    """Answers by the idempotency key of their question and the id of the request.

    A key has several answers after failed attempts, and if metrics of its row were computed. All are dropped once the
    orchestrator reports that it has stored their results.

    Args:
        max_bytes: Maximum total size; beyond it the oldest are dropped.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._answers: dict[str, dict[str, Answer]] = {}
        self._byte_count = 0

    def keep(self, key: str, answer: Answer) -> None:
        """Store the answer to a question."""
        answers = self._answers.setdefault(key, {})
        if (before := answers.get(answer.request_id)) is not None:
            self._byte_count -= before.ByteSize()
        answers[answer.request_id] = answer
        self._byte_count += answer.ByteSize()
        while self._byte_count > self._max_bytes:
            self.drop([next(iter(self._answers))])

    def find(self, key: str, request_id: str) -> Answer | None:
        """Return the answer to a request; None if there is none."""
        return self._answers.get(key, {}).get(request_id)

    def drop(self, keys: Iterable[str]) -> None:
        """Drop all answers to some questions."""
        for key in keys:
            self._byte_count -= sum(answer.ByteSize() for answer in self._answers.pop(key, {}).values())
