"""What events of Google ADK mean, in process and as its server writes them: one agent has one score by both ways."""

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
"""Calls by which ADK asks a person something."""
TYPED_OUTPUT_CALL = "set_model_response"
"""The call by which a model that has tools hands over its structured output; its agent's text is the JSON of that."""
OWN_CALLS = REQUESTS | {TYPED_OUTPUT_CALL, "finish_task"}
"""Those, and the tools by which a model hands over its structured output and the result of a task: none is a tool of
the user's."""

_WITHHELD = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"})
_SUMS = ("input_tokens", "output_tokens", "total_tokens")
_DEFAULT_HINT = "Please approve or reject the tool call"
_RETRYABLE_CODES = frozenset({"ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
                              "UNKNOWN", "UNKNOWN_ERROR"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stop:
    """A call of ADK's or of a long-running tool that waits for its response from outside.

    Args:
        id: Its id, which the response repeats.
        name: Its name.
        arguments: Its arguments.
        agent: Its agent, and the branch of its event.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    agent: tuple[str, str] = ("", "")

    @property
    def interrupt(self) -> Interrupt:
        """What a person is asked."""
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
        """Return whether an agent asks again what it asked before."""
        mine, before = self.interrupt, other.interrupt
        return self.agent[0] == other.agent[0] and (mine.kind, mine.tool, mine.arguments_json, mine.message) == (
            before.kind, before.tool, before.arguments_json, before.message
        )  # fmt: skip

    def edits(self, decision: Decision) -> dict[str, Any] | None:
        """Return the arguments with which the waiting call must run in place of its own; None where they are its own.

        ADK itself has no edited arguments. Where the tool asked with a payload that has all edited fields, they are the
        payload's, which the response carries.
        """
        if decision.kind is not DecisionKind.EDIT or self._edits_payload(decision):
            return None
        return dict(decision.arguments or {})

    def response(self, decision: Decision) -> dict[str, Any]:
        """Return the response with which the invocation is resumed."""
        if self.name == _CONFIRMATION or self.is_of_workflow:
            said: dict[str, Any] = {"confirmed": decision.kind is not DecisionKind.DENY}
            if decision.reason:
                said["hint"] = decision.reason
            if self._edits_payload(decision):
                said["payload"] = {**self._payload, **(decision.arguments or {})}
            elif self._payload:
                said["payload"] = self._payload
            return said
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
    """Return the stops that the next message answers, each with its decision, and those that are left for further ones.

    ADK resumes the one agent that a message is for: agents that wait beside each other need a message each. It may run
    the others anew meanwhile, and they ask the same again: then that is answered.

    Args:
        decided: The stops that are left, with their decisions.
        renewed: What the agents stopped at since the first message.
    """
    current: list[tuple[Stop, Decision]] = []
    open_stops = list(renewed)
    for stop, decision in decided:
        again = next((one for one in open_stops if one.asks_what(stop)), None)
        if again is not None:
            open_stops.remove(again)
        current.append((again or stop, decision))
    agent = current[0][0].agent
    return [one for one in current if one[0].agent == agent], [one for one in current if one[0].agent != agent]


def is_failure(response: Mapping[str, Any] | None) -> bool:
    """Return whether a tool's response says that the call failed: by the key of ADK's, or by that of MCP."""
    keys = ("isError", "is_error")
    return response is not None and (bool(response.get("error")) or any(response.get(key) is True for key in keys))


def returned_value(responses: Sequence[Any]) -> Any:
    """Return what tools, or a task, returned whose results are the answer; None where they returned nothing.

    ADK puts what is no mapping under the key `result`. Several results are lines of one text.
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
    said = json_text(dict(arguments), "arguments") if kind is not InterruptKind.INPUT else ""
    return Interrupt(clean_text(call_id), kind, tool, said, message[:4000])


def _mapping(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def error_code(code: str, finish_reason: str) -> str:
    """Return the code of an event that is no answer; empty where it may be one.

    Args:
        code: The event's own code.
        finish_reason: Why the model stopped: where a filter cut it off, ADK has the beginning of a text and no code.
    """
    return code or (finish_reason if finish_reason in _WITHHELD else "")


def is_retryable(code: str) -> bool:
    """Return whether another attempt may help after an error code of a model, which may be a status of HTTP."""
    if code.isascii() and code.isdigit():
        return is_retryable_status(int(code))
    return code in _RETRYABLE_CODES


def usage_of(calls: Sequence[Mapping[str, Any]]) -> Usage | None:
    """Return the sums over calls of models; a count that one call lacks is not known.

    Prompts of tools are input, and thoughts are output.

    Args:
        calls: The `usageMetadata` of each; empty where it has none.

    Raises:
        MalformedAnswerError: A count is no whole number.
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
    """Yield what an answer is grounded on, then what it cites.

    Args:
        grounding: The `groundingMetadata` of an event.
        citations: Its `citationMetadata`.
    """
    for chunk in _mappings(grounding.get("groundingChunks")):
        for kind in ("retrievedContext", "web", "maps", "image"):
            if found := _mapping(chunk, kind):
                yield _source(found)
    for citation in _mappings(citations.get("citations")):
        yield _source({name: citation.get(name) for name in ("title", "uri")})


def _counts(call: Mapping[str, Any]) -> dict[str, int]:
    def count(name: str) -> int | None:
        value = call.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedAnswerError("a count of usageMetadata is no whole number")
        return value

    prompts = [found for name in ("promptTokenCount", "toolUsePromptTokenCount") if (found := count(name)) is not None]
    given, total, thoughts = sum(prompts) if prompts else None, count("totalTokenCount"), count("thoughtsTokenCount")
    counts = {
        "input_tokens": given,
        "output_tokens": _output_tokens(given, count("candidatesTokenCount"), thoughts, total),
        "total_tokens": total,
        "cache_read_tokens": count("cachedContentTokenCount"),
        "reasoning_tokens": thoughts,
    }
    return {name: value for name, value in counts.items() if value is not None}


def _source(found: Mapping[str, Any]) -> Source:
    def text(*names: str) -> str:
        return clean_text(next((str(found[name]) for name in names if found.get(name)), ""))

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
    """Return the tokens that a call of a model made, thoughts included; None where nothing is known of them.

    Gemini counts thoughts beside the candidates, LiteLLM and OpenAI's models among them: the total shows which.

    Args:
        input_count: Tokens of the prompt and of tools' prompts.
        candidates: Tokens of the answer.
        thoughts: Tokens of thoughts.
        total: All tokens of the call.
    """
    if not thoughts or (total and total == (input_count or 0) + (candidates or 0)):
        return candidates
    return (candidates or 0) + thoughts
