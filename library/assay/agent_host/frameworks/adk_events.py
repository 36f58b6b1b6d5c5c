"""Converting the events of an ADK invocation into an answer: its text, typed output, stops, or the error."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from assay.agent_host.frameworks.adk_trace import Trace, written
from assay.agent_host.frameworks.answers import answer_with, plain
from assay.model.answers.adk_events import REQUESTS, Stop, error_code, is_retryable, returned_value
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.adk.events.event import Event


class EventReader:
    """Reads the events of a turn's invocations, in order.

    Args:
        trace: The agents' calls, recorded while they run.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.invocation_id = ""
        """The invocation's id; empty before the first event."""
        self._value: Any = None
        self._output: Any = None
        self._error: AgentError | None = None
        self._stops: dict[str, Stop] = {}
        self._finish_reason = ""

    @property
    def stops(self) -> tuple[Stop, ...]:
        """The calls that wait for a response from outside."""
        return tuple(self._stops.values())

    def settle(self, stops: Iterable[Stop]) -> None:
        """Record that some stops have a response or will get one."""
        for stop in stops:
            self._stops.pop(stop.id, None)

    def add(self, event: Event) -> None:
        """Read the next event; fragments of a streamed event are skipped, since it repeats them."""
        self.invocation_id = event.invocation_id or self.invocation_id
        if event.partial:
            return
        for call in event.get_function_calls():
            if call.id and (call.id in (event.long_running_tool_ids or ()) or call.name in REQUESTS):
                arguments = json.loads(written(call.args or {}))
                if not isinstance(arguments, dict):  # they cannot be written
                    arguments = {}
                self._stops[call.id] = Stop(call.id, call.name or "", arguments, (event.author, event.branch or ""))
        for returned in event.get_function_responses():
            self._stops.pop(returned.id or "", None)
        if event.is_final_response() or event.output is not None:
            self._add_final(event)

    def answer(self) -> AgentResponse:
        """Return the answer of a completed invocation.

        Raises:
            MalformedAnswerError: It ended without any result.
        """
        trace = dataclasses.replace(self._trace.response(), finish_reason=self._finish_reason)
        if self._error is None:
            answer = answer_with(self._value, trace)
            return answer if self._output is None else dataclasses.replace(answer, output=plain(self._output))
        text = self._value if isinstance(self._value, str) else ""
        return dataclasses.replace(trace, text=text, status=AgentStatus.ERROR, error=self._error)

    def _add_final(self, event: Event) -> None:
        """Take the value or error of a final response; each agent has one, and the last one counts."""
        if event.long_running_tool_ids or event.actions.requested_tool_confirmations:
            return  # it ends in a stop
        value, output = self._value_of(event), returned_value([event.output])
        if code := error_code(_word(event.error_code), _word(event.finish_reason)):
            self._error = _error(code, clean_text(event.error_message or ""))
        elif value is None and output is None:
            return  # such as a change of the session's state, or the end of a workflow
        else:
            self._error = None
        self._value = output if value is None else value
        self._output = None if value is None else output
        self._finish_reason = _word(event.finish_reason)

    def _value_of(self, event: Event) -> Any:
        """Return the tool results that are the answer, or a text without thoughts, parsed if it is JSON.

        None if an event has neither; the output of a node or task is ignored.
        """
        if responses := event.get_function_responses():
            is_answer = event.actions.skip_summarization
            return (
                returned_value([json.loads(written(part.response or {})) for part in responses]) if is_answer else None
            )
        parts = event.content.parts or [] if event.content else []
        text = clean_text("".join(part.text for part in parts if part.text and not part.thought))
        if text and event.author in self._trace.typed:
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(text)
        return text or None


def _error(code: str, message: str) -> AgentError:
    status = int(code) if code.isascii() and code.isdigit() and 400 <= int(code) <= 599 else None
    return AgentError(
        kind=AgentErrorKind.RAISED if status is None else AgentErrorKind.HTTP_STATUS,
        message=f"the model answered with error {code}{f': {message}' if message else ''}"[:4000],
        type=code[:200],
        http_status=status,
        retryable=is_retryable(code),
    )


def _word(value: object) -> str:
    """Return the value of an ADK enumeration; errors carry such values or texts of their own."""
    return clean_text(str(getattr(value, "value", value) or ""))
