"""The messages of a command: questions and answers, each a JSON object."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import MalformedAnswerError, response_from_json
from assay.model.answers.approvals import approvals_to_json
from assay.model.answers.response_fields import excerpt
from assay.model.answers.response_limits import MAX_ANSWER_BYTES, AnswerTooLargeError, check_bounds
from assay.parsing.names import kind_of
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.agent_host.failures import Failures
    from assay.model.answers.agent_response import AgentRequest, AgentResponse

# Escapes make JSON larger than the texts in it.
MAX_OUTPUT_BYTES = 4 * MAX_ANSWER_BYTES
"""Maximum size of an answer as JSON."""


def question_line(request: AgentRequest) -> bytes:
    """Return a question as a line of JSON, with the field names of `AgentRequest`."""
    fields = {**dataclasses.asdict(request), "approvals": approvals_to_json(request.approvals)}
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def object_from(output: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object that a command wrote.

    Args:
        output: The command's output.
        where: A name for the output, e.g. "line 3 of its stdout".

    Raises:
        MalformedAnswerError: It is not an object; the message names `where` and shows the beginning.
    """
    begins = f"it begins {clean(excerpt(output))!r}"
    try:
        data = json.loads(output.decode())
    except UnicodeDecodeError:
        raise MalformedAnswerError(f"{where} is not UTF-8: {begins}") from None
    except (ValueError, RecursionError):
        raise MalformedAnswerError(f"{where} is not JSON: {begins}; logs belong on stderr") from None
    if not isinstance(data, dict):
        raise MalformedAnswerError(f"{where} is {kind_of(data)}, not an object: {begins}")
    return data


def answer_from(data: dict[str, Any], failures: Failures) -> AgentResponse:
    """Return the answer in an object, or the failure to read it."""
    try:
        check_bounds(data)
        return response_from_json({name: value for name, value in data.items() if name != "request_id"})
    except (MalformedAnswerError, AnswerTooLargeError) as problem:
        return failures.of_unreadable(problem)


class Lines:
    """Splits bytes into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that these bytes complete, without their ends.

        Raises:
            AnswerTooLargeError: A line is longer than 8 MiB.
        """
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield bytes(self._rest) + line
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > MAX_OUTPUT_BYTES:
            raise AnswerTooLargeError(f"a line of its stdout is longer than {MAX_OUTPUT_BYTES // 1024**2} MiB")

    def rest(self) -> bytes:
        """Return the bytes after the last line end."""
        return bytes(self._rest)
