"""Reads HTTP agents' replies as answers: here if that is little work, else in a scorer process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError, error_response, response_from_json
from assay.model.answers.response_fields import UnmappedReplyError
from assay.model.answers.response_limits import AnswerTooLargeError
from assay_orchestrator.scorers.jobs import MapReply
from assay_orchestrator.scorers.pool import ScoringFailedError
from assay_orchestrator.scorers.reply_mapping import ReplyMapping
from assay_orchestrator.scorers.row_scorer import WORK_AT_ONCE, WORK_HERE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.answers.agent_response import AgentResponse
    from assay_orchestrator.scorers.jobs import ReplyEvents
    from assay_orchestrator.scorers.pool import ScorerPool

_THREADED_BYTES = 64 * 1024


class ReplyReader:
    """Reads the replies of one agent.

    Args:
        expressions: JMESPath expressions by answer field.
        pool: The scorers; None to read every reply here.
    """

    def __init__(self, expressions: Mapping[str, str], pool: ScorerPool | None) -> None:
        self._mapping = ReplyMapping(expressions)
        self._expressions = tuple(expressions.items())
        self._pool = pool

    async def read(self, reply: bytes | ReplyEvents, run_id: str) -> AgentResponse:
        """Return the answer in the reply to a question of a run.

        Raises:
            MalformedAnswerError: The reply is not JSON.
            UnmappedReplyError: An expression does not fit it, or finds no text.
            AnswerTooLargeError: The extracted answer is too large.
        """
        work = self._mapping.work(reply)
        if self._pool is None or work <= WORK_AT_ONCE:
            return self._mapping.read(reply)
        if work <= WORK_HERE:
            async with self._pool.turn:
                await asyncio.sleep(0)
                return self._mapping.read(reply)
        try:
            result = await self._pool.do(run_id, MapReply(self._expressions, reply))
        except ScoringFailedError as problem:
            return error_response(
                AgentErrorKind.MALFORMED,
                f"the reply cannot be read with agent.response: {problem.failure}: simplify the expressions, "
                f"which may take {self._pool.limits.timeout_s:g} s of processor time and "
                f"{self._pool.limits.memory_mib} MiB of memory",
                type=problem.failure,
            )
        size = len(reply) if isinstance(reply, bytes) else sum(map(len, reply.events))
        return await asyncio.to_thread(_answer, result) if size > _THREADED_BYTES else _answer(result)


def _answer(result: Any) -> AgentResponse:
    """Return the answer that a scorer read, or raise its error."""
    if not isinstance(result, dict):
        raise MalformedAnswerError("the reply cannot be read")
    if "unmapped" in result:
        raise UnmappedReplyError(str(result["unmapped"]))
    if "malformed" in result:
        raise MalformedAnswerError(str(result["malformed"]))
    if "too_large" in result:
        raise AnswerTooLargeError(str(result["too_large"]))
    return response_from_json(result.get("answer"))
