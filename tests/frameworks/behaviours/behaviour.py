"""What a behaviour is: questions to one kind of agent, and what must be read of its answers in every framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse, ToolCall

INPUT_TOKENS, OUTPUT_TOKENS = 10, 5
"""What each call of a scripted model costs."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that an answer must list.

    Args:
        name: The tool.
        arguments: Its arguments; None where frameworks differ in them.
        result: A text that the result contains; empty where there is no result, None where frameworks differ.
        failed: Whether the call is marked as failed.
    """

    name: str
    arguments: Mapping[str, Any] | None = field(default_factory=dict)
    result: str | None = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Something at which the agent stopped for a person.

    Args:
        kind: `approval`, `call` or `input`.
        tool: The tool whose call waits; None where frameworks differ.
        arguments: Of the call.
        decision: How the case's approvals decided it; empty where the agent still waits.
    """

    kind: str
    tool: str | None = ""
    arguments: Mapping[str, Any] | None = None
    decision: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a row.

    Args:
        kind: The kind of failure.
        retryable: Whether it may pass when the question is asked again.
        http_status: The status of the model's service.
        says: A text that the message contains.
    """

    kind: str = "raised"
    retryable: bool = False
    http_status: int | None = None
    says: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One question, and the one answer that every framework must be read with.

    Args:
        question: What is asked.
        text: The answer's text; None where frameworks differ, as in failed rows.
        status: The answer's status.
        calls: The tool calls.
        requests: Calls of models, nested agents' included, of 10 and 5 tokens each; None where no tokens are known.
        output: Typed output.
        waits: What the agent stopped at.
        failure: The error; set exactly when the status is `error`.
        timeout_s: The question's time limit.
        variables: Of the case.
    """

    question: str
    text: str | None = ""
    status: str = "success"
    calls: tuple[Call, ...] = ()
    requests: int | None = 1
    output: Any = None
    waits: tuple[Wait, ...] = ()
    failure: Failure | None = None
    timeout_s: float = 30
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What one kind of agent does.

    Args:
        does: The agent, in words: what the modules of the frameworks build.
        turns: A conversation with it.
        approvals: Of the case, as a spec has them.
        opened: How often the agent's resource is opened and closed, each with a line of `log`: once a "run" or once a
            "case"; empty where it has none.
    """

    does: str
    turns: tuple[Turn, ...]
    approvals: tuple[Mapping[str, Any], ...] = ()
    opened: str = ""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of a behaviour in one framework.

    Args:
        source: The end of a module that the module's `PRELUDE` begins; its `agent` is asked.
        options: Of the adapter.
        names: The suite's names of tools that the framework names itself, such as `{"transfer_to_refunds": "handoff"}`.
    """

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lacks:
    """A behaviour that a framework does not have.

    Args:
        reason: Why, for people.
    """

    reason: str


def expected(turn: Turn) -> dict[str, Any]:
    """Return what must be read of an answer, as `seen` returns it."""
    tokens = None
    if turn.requests is not None:
        counts = (INPUT_TOKENS, OUTPUT_TOKENS, INPUT_TOKENS + OUTPUT_TOKENS, 1)
        tokens = tuple(turn.requests * count for count in counts)
    return {
        "status": turn.status,
        "text": turn.text,
        "calls": [(call.name, call.arguments, call.result, call.failed) for call in turn.calls],
        "tokens": tokens,
        "output": turn.output,
        "waits": [(wait.kind, wait.tool, wait.arguments, wait.decision) for wait in turn.waits],
        "failure": turn.failure and (turn.failure.kind, turn.failure.retryable, turn.failure.http_status),
        "says": turn.failure.says if turn.failure else "",
    }


def seen(answer: AgentResponse, turn: Turn, names: Mapping[str, str]) -> dict[str, Any]:
    """Return what an answer says; where the expectation leaves something open or names a part, as it does."""
    usage, error = answer.usage, answer.error
    assert answer.tool_calls is not None
    calls = [_call(call, names) for call in answer.tool_calls]
    for index, (wanted, (name, arguments, result, failed)) in enumerate(zip(turn.calls, calls, strict=False)):
        calls[index] = (
            name,
            None if wanted.arguments is None else arguments,
            wanted.result if wanted.result is None or (wanted.result and wanted.result in result) else result,
            failed,
        )
    waits: list[tuple[Any, ...]] = [
        (str(wait.kind), wait.tool, json.loads(wait.arguments_json) if wait.arguments_json else None, wait.decision)
        for wait in answer.interrupts
    ]
    for index, (expects, (kind, tool, arguments, decision)) in enumerate(zip(turn.waits, waits, strict=False)):
        waits[index] = (kind, tool if expects.tool is not None else None, arguments, decision)
    tokens = None
    if usage is not None and usage.total_tokens is not None:
        tokens = (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.requests)
    says = turn.failure.says if turn.failure else ""
    message = error.message if error else ""
    return {
        "status": str(answer.status),
        "text": None if turn.text is None else answer.text,
        "calls": calls,
        "tokens": tokens,
        "output": answer.output,
        "waits": waits,
        "failure": error and (str(error.kind), error.retryable, error.http_status),
        "says": says if says in message else message,
    }


def _call(call: ToolCall, names: Mapping[str, str]) -> tuple[Any, ...]:
    arguments = json.loads(call.arguments_json) if call.arguments_json else {}
    return names.get(call.name, call.name), arguments, call.result_json, call.is_error
