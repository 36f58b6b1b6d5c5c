"""Convert a judge's reply to an outcome, for direct calls and batches alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.providers.messages import Stop
from assay.providers.parameters import token_field_of
from assay.text.equality import is_blank
from assay_judge.providers.verdict_request import JudgeParameters
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import InvalidVerdictError, read_verdict

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric
    from assay.providers.messages import Reply
    from assay_judge.calls.provider_client import CallFailedError
    from assay_judge.judges import JudgeChoice

TURNS = 2
"""The first reply, and another if the first was invalid."""

_STOPPED = {
    Stop.REFUSED: ("refused", "the judge refused to answer"),
    Stop.FILTERED: ("refused", "the provider's content filter held the verdict back"),
    Stop.TRUNCATED: ("truncated", "the verdict was cut off at max_tokens: raise max_tokens"),
    Stop.CONTEXT_FULL: ("truncated", "the verdict was cut off where the judge's context window ends"),
    Stop.PAUSED: ("truncated", "the provider paused the turn before the verdict was complete"),
}


def outcome_from_reply(reply: Reply, rubric: Rubric, verdict_id: str) -> Outcome:
    """Return the outcome of a reply.

    Args:
        reply: The judge's reply.
        rubric: The rubric of the request.
        verdict_id: The id of this call.

    Raises:
        InvalidVerdictError: The reply is invalid, and another turn may bring a verdict.
    """
    if reply.stop is Stop.BROKEN_OFF:
        raise InvalidVerdictError("the service broke the reply off")
    if reply.stop in _STOPPED:
        reason, message = _STOPPED[reply.stop]
        return Outcome(Status.INVALID, reason=reason, message=message, model=reply.model)
    if is_blank(reply.text):
        return Outcome(Status.INVALID, reason="empty_verdict", message=_nothing_said(reply), model=reply.model)
    return Outcome(Status.VALID, read_verdict(reply.text, rubric, verdict_id), model=reply.model)


def _nothing_said(reply: Reply) -> str:
    if reply.tool_calls:
        return "the judge called a tool and gave no verdict: choose a model or service that answers without tools"
    if reply.has_thoughts or (reply.tokens is not None and reply.tokens.reasoning):
        return "the judge returned its thoughts and no verdict: raise max_tokens, or choose another model"
    return "the judge returned an empty reply"


def failed_outcome(failure: CallFailedError) -> Outcome:
    """Return the outcome of a request whose call was not made or got no reply."""
    return Outcome(
        Status.UNAVAILABLE,
        reason=failure.reason,
        message=failure.message,
        needed=failure.needed,
        needed_tokens=failure.needed_tokens,
    )


def no_verdict(problem: str, model: str) -> Outcome:
    """Return the outcome of a request that got no valid verdict in any turn."""
    message = f"the judge gave no valid verdict in {TURNS} turns: {problem}"
    return Outcome(Status.INVALID, reason="invalid_verdict", message=message, model=model)


def requested_parameters(judge: JudgeChoice) -> JudgeParameters:
    """Return the parameters of a judge's first call."""
    return JudgeParameters(judge.max_tokens, judge.temperature, token_field_of(judge.base_url))
