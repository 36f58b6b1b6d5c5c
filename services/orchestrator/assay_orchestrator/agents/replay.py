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
        if conversation := case.recorded_conversation(request.repeat_index):
            return conversation[request.turn_index]
        if request.turn_index < len(case.turns) - 1:
            return AgentResponse(text=next(iter(case.turns[request.turn_index].references), ""))
        if case.recorded is None:
            return error_response(
                AgentErrorKind.NOT_RECORDED, f"the dataset has no recorded answer for case {case.case_id}"
            )
        if not request.repeat_index or not case.recorded_repeats:
            return case.recorded
        if request.repeat_index > len(case.recorded_repeats):
            repeat = f"repeat {request.repeat_index + 1} of case {case.case_id}"
            return error_response(AgentErrorKind.NOT_RECORDED, f"the dataset has no recorded answer for {repeat}")
        return case.recorded_repeats[request.repeat_index - 1]

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
