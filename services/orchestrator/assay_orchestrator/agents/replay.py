"""The replay adapter: answers recorded in the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.case import Case


class ReplayAgent:
    """Returns recorded answers with their recorded latency; of several answers, each repeat gets its own."""

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the recorded answer; for an unscored earlier turn without an answer, its reference."""
        index = request.repeat - 1 if len(case.recordings) > 1 else 0  # one recording serves all repeats
        is_recorded = index < len(case.recordings)
        if is_recorded and case.has_recorded_turns:
            return case.recordings[index][request.turn_index]
        if request.turn_index < len(case.turns) - 1:
            return AgentResponse(text=next(iter(case.turns[request.turn_index].references), ""))
        if is_recorded:
            return case.recordings[index][-1]
        repeat = f"repeat {request.repeat} of " if case.recordings else ""
        message = f"the dataset has no recorded answer for {repeat}case {case.case_id}"
        return error_response(AgentErrorKind.NOT_RECORDED, message)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
