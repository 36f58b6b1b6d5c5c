"""Events of Google ADK, read alike in process and from its server, so that an agent scores the same both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import MalformedAnswerError, Source, Usage
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind
from assay.model.answers.response_fields import clean_text, json_text
from assay.model.answers.retrying import is_retryable_status

if TYPE_CHECKING:
    from assay.model.answers.approvals import Decision

_CONFIRMATION, _CREDENTIAL, _INPUT = "adk_request_confirmation", "adk_request_credential", "adk_request_input"
REQUESTS = frozenset({_CONFIRMATION, _CREDENTIAL, _INPUT})
"""The calls with which ADK asks a person something."""
TYPED_OUTPUT_CALL = "set_model_response"
"""The call with which a model that has tools returns structured output; the agent's text is its JSON."""
OWN_CALLS = REQUESTS | {TYPED_OUTPUT_CALL, "finish_task"}
"""ADK's own calls: the requests above, structured output and the result of a task. None is a user's tool."""

_WITHHELD = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"})
_SUMS = ("input_tokens", "output_tokens", "total_tokens")
_DEFAULT_HINT = "Please approve or reject the tool call"
_RETRYABLE_CODES = frozenset({"ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
                              "UNKNOWN", "UNKNOWN_ERROR"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stop:
    """A call of ADK or of a long-running tool that waits for a response from outside.

    Args:
        id: The call's id, which the response repeats.
        name: The call's name.
        arguments: The call's arguments.
        agent: The agent, and the branch of its event.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    agent: tuple[str, str] = ("", "")

    @property
    def interrupt(self) -> Interrupt:
        """The question for a person."""
        if self.name == _CONFIRMATION:
            call, asked = _mapping(self.arguments, "originalFunctionCall"), _mapping(self.arguments, "toolConfirmation")
            message = _text(asked.get("hint"))
            message = "" if message.startswith(_DEFAULT_HINT) else message
            if self._payload:
                message = f"{message} (payload {json_text(self._payload, 'payload')})".strip()
            tool, arguments = _text(call.get("name")), _mapping(call, "args")
            return _interrupt(self.call_id, InterruptKind.APPROVAL, tool, arguments, message)
        if self.name == _INPUT:
            payload, message = _mapping(self.arguments, "payload"), _text(self.arguments.get("message"))
            if self.is_of_workflow:
                tool, arguments = _text(payload["tool_name"]), _mapping(payload, "args")
                message = "" if message.startswith(_DEFAULT_HINT) else message
                return _interrupt(self.id, InterruptKind.APPROVAL, tool, arguments, message)
            return _interrupt(self.id, InterruptKind.INPUT, "", {}, message)
        if self.name == _CREDENTIAL:
            return _interrupt(self.id, InterruptKind.INPUT, "", {}, "credentials of the user")
        return _interrupt(self.id, InterruptKind.CALL, self.name, self.arguments, "")

    @property
    def is_of_workflow(self) -> bool:
        """Whether a node of a workflow waits for the approval of a tool call."""
        return self.name == _INPUT and "tool_name" in _mapping(self.arguments, "payload")

    @property
    def call_id(self) -> str:
        """The id of the tool call that waits."""
        call = _mapping(self.arguments, "originalFunctionCall") if self.name == _CONFIRMATION else {}
        return _text(call.get("id")) or self.id

    def asks_what(self, other: Stop) -> bool:
        """Return whether the same agent repeats an earlier question."""
        mine, before = self.interrupt, other.interrupt
        return self.agent[0] == other.agent[0] and (mine.kind, mine.tool, mine.arguments_json, mine.message) == (
            before.kind, before.tool, before.arguments_json, before.message
        )  # fmt: skip

    def edits(self, decision: Decision) -> dict[str, Any] | None:
        """Return the arguments that replace those of the waiting call; None if it keeps its own.

        ADK has no edited arguments. If the tool asked with a payload that has all the edited fields, the response
        carries them in its payload instead.
        """
        if decision.kind is not DecisionKind.EDIT or self._edits_payload(decision):
            return None
        return dict(decision.arguments or {})

    def response(self, decision: Decision) -> dict[str, Any]:
        """Return the response that resumes the invocation."""
        if self.name == _CONFIRMATION or self.is_of_workflow:
            response: dict[str, Any] = {"confirmed": decision.kind is not DecisionKind.DENY}
            if decision.reason:
                response["hint"] = decision.reason
            if self._edits_payload(decision):
                response["payload"] = {**self._payload, **(decision.arguments or {})}
            elif self._payload:
                response["payload"] = self._payload
            return response
        answer = decision.answer
        return answer if isinstance(answer, dict) and self.name != _INPUT else {"result": answer}

    @property
    def _payload(self) -> Any:
        return _mapping(self.arguments, "toolConfirmation").get("payload")

    def _edits_payload(self, decision: Decision) -> bool:
        payload, edited = self._payload, decision.arguments
        return isinstance(payload, dict) and bool(edited) and set(edited or ()) <= set(payload)


def next_message(
    decided: Sequence[tuple[Stop, Decision]], renewed: Sequence[Stop]
) -> tuple[list[tuple[Stop, Decision]], list[tuple[Stop, Decision]]]:
    """Split stops into those that the next message answers, with their decisions, and those left for later messages.

    ADK resumes only the agent that a message addresses, so agents waiting in parallel need a message each. It may
        restart the others meanwhile; when they repeat a question, the repeated question is answered.

    Args:
        decided: The remaining stops, with their decisions.
        renewed: The agents' stops since the first message.
    """
    current: list[tuple[Stop, Decision]] = []
    open_stops = list(renewed)
    for stop, decision in decided:
        repeated = next((pair for pair in open_stops if pair.asks_what(stop)), None)
        if repeated is not None:
            open_stops.remove(repeated)
        current.append((repeated or stop, decision))
    agent = current[0][0].agent
    return [pair for pair in current if pair[0].agent == agent], [pair for pair in current if pair[0].agent != agent]


def is_failure(response: Mapping[str, Any] | None) -> bool:
    """Return whether a tool's response reports a failed call, by the key of ADK or of MCP."""
    keys = ("isError", "is_error")
    return response is not None and (bool(response.get("error")) or any(response.get(key) is True for key in keys))


def returned_value(responses: Sequence[Any]) -> Any:
    """Return the results of tools, or of a task, that are the agent's answer; None if there are none.

    ADK puts a value that is not a mapping under the key `result`. Several results become lines of one text.
    """
    values = [
        response["result"] if isinstance(response, dict) and set(response) == {"result"} else response
        for response in responses
    ]
    values = [value for value in values if value is not None and value not in ("", {}, [])]
    if len(values) <= 1:
        return values[0] if values else None
    return "\n".join(value if isinstance(value, str) else json_text(value, "result") for value in values)


def _interrupt(call_id: str, kind: InterruptKind, tool: str, arguments: Mapping[str, Any], message: str) -> Interrupt:
    arguments_json = json_text(dict(arguments), "arguments") if kind is not InterruptKind.INPUT else ""
    return Interrupt(clean_text(call_id), kind, tool, arguments_json, message[:4000])


def _mapping(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def error_code(code: str, finish_reason: str) -> str:
    """Return the error code of an event that is not an answer; empty if it may be one.

    Args:
        code: The event's own code.
        finish_reason: Why the model stopped. When a filter cuts the model off, ADK has the start of a text and no code.
    """
    return code or (finish_reason if finish_reason in _WITHHELD else "")


def is_retryable(code: str) -> bool:
    """Return whether a retry may help after a model's error code, which may be an HTTP status."""
    if code.isascii() and code.isdigit():
        return is_retryable_status(int(code))
    return code in _RETRYABLE_CODES


def usage_of(calls: Sequence[Mapping[str, Any]]) -> Usage | None:
    """Return the token sums over model calls; a count that any call lacks is unknown.

    Tool prompts count as input, thoughts as output.

    Args:
        calls: The `usageMetadata` of every call; empty for a call without it.

    Raises:
        MalformedAnswerError: A count is not an integer.
    """
    if not calls:
        return None
    counts = [_counts(call) for call in calls]
    sums = {name: sum(call.get(name, 0) for call in counts) for name in dict.fromkeys(chain(*counts))}
    unknown = {name for name in _SUMS if any(name not in call for call in counts)}
    if unknown >= {"input_tokens", "output_tokens"}:
        return Usage(requests=len(calls))
    return Usage(**{name: count for name, count in sums.items() if name not in unknown}, requests=len(calls))


def sources_of(grounding: Mapping[str, Any], citations: Mapping[str, Any]) -> Iterator[Source]:
    """Yield the grounding sources of an answer, then its citations.

    Args:
        grounding: The `groundingMetadata` of an event.
        citations: Its `citationMetadata`.
    """
    for chunk in _mappings(grounding.get("groundingChunks")):
        for kind in ("retrievedContext", "web", "maps", "image"):
            if part := _mapping(chunk, kind):
                yield _source(part)
    for citation in _mappings(citations.get("citations")):
        yield _source({name: citation.get(name) for name in ("title", "uri")})


def _counts(call: Mapping[str, Any]) -> dict[str, int]:
    def count(name: str) -> int | None:
        value = call.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedAnswerError("a count of usageMetadata is not an integer")
        return value

    prompts = [
        tokens for name in ("promptTokenCount", "toolUsePromptTokenCount") if (tokens := count(name)) is not None
    ]
    input_tokens, total, thoughts = (
        sum(prompts) if prompts else None,
        count("totalTokenCount"),
        count("thoughtsTokenCount"),
    )
    counts = {
        "input_tokens": input_tokens,
        "output_tokens": _output_tokens(input_tokens, count("candidatesTokenCount"), thoughts, total),
        "total_tokens": total,
        "cache_read_tokens": count("cachedContentTokenCount"),
        "reasoning_tokens": thoughts,
    }
    return {name: value for name, value in counts.items() if value is not None}


def _source(data: Mapping[str, Any]) -> Source:
    def text(*names: str) -> str:
        return clean_text(next((str(data[name]) for name in names if data.get(name)), ""))

    return Source(
        id=text("documentName", "placeId"),
        title=text("title", "domain"),
        uri=text("uri", "sourceUri", "imageUri"),
        content=text("text"),
    )


def _mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _output_tokens(
    input_count: int | None, candidates: int | None, thoughts: int | None, total: int | None
) -> int | None:
    """Return the output tokens of a model call, thoughts included; None if they are unknown.

    Gemini counts thoughts beside the candidates, LiteLLM and OpenAI models within them: the total shows which.

    Args:
        input_count: Tokens of the prompt and of tool prompts.
        candidates: Tokens of the answer.
        thoughts: Tokens of thoughts.
        total: All tokens of the call.
    """
    if not thoughts or (total and total == (input_count or 0) + (candidates or 0)):
        return candidates
    return (candidates or 0) + thoughts
