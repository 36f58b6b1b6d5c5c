"""Interrupts, at which an agent waits for a person, as objects and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assay.model.answers.response_fields import MalformedAnswerError, as_items, as_mapping, as_text, json_text, shown
from assay.model.answers.response_names import ARGUMENTS, TOOL_NAMES

_MESSAGE_CHARS = 4000
_ARGUMENTS_CHARS = 300


class InterruptKind(StrEnum):
    """The kind of an interrupt."""

    APPROVAL = "approval"
    CALL = "call"
    INPUT = "input"


class DecisionKind(StrEnum):
    """The kind of a decision, which is also the key of an item of `approvals`."""

    APPROVE = "approve"
    DENY = "deny"
    EDIT = "edit"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A stop of an agent that waits for a person.

    Args:
        id: The id of the interrupt or of the tool call, if there is one.
        kind: `approval` of a tool call, the result of a `call` that runs outside the agent, or any other `input`.
        tool: The waiting tool; empty if the agent waits for no tool.
        arguments_json: The tool's arguments as JSON text, or empty.
        message: The agent's question to the person, if there is one.
        decision: The `DecisionKind` of the matching approval; empty while it waits.
    """

    id: str = ""
    kind: InterruptKind = InterruptKind.INPUT
    tool: str = ""
    arguments_json: str = ""
    message: str = ""
    decision: str = ""


def is_waiting(interrupts: Sequence[Interrupt]) -> bool:
    """Return whether any interrupt has no decision."""
    return any(not interrupt.decision for interrupt in interrupts)


def interrupted_note(count: int) -> str:
    """Return the note after a count of agent errors: how many wait for a person; empty if none do."""
    return f" ({count:,} interrupted)" if count else ""


def interrupt_text(interrupt: Interrupt) -> str:
    """Return an interrupt with its decision, e.g. 'approve: approval of delete({"id": 5})'."""
    return f"{interrupt.decision or 'waits for'}: {_wait_text(interrupt)}"


def waiting_text(interrupts: Sequence[Interrupt]) -> str:
    """Return why an agent waits as a clause: 'waits for approval of delete({"id": 5})'; empty if it does not wait.

    The clause has at most 4,000 characters.
    """
    waits = list(dict.fromkeys(_wait_text(interrupt) for interrupt in interrupts if not interrupt.decision))
    return _clipped(f"waits for {'; '.join(waits)}", _MESSAGE_CHARS) if waits else ""


def _wait_text(interrupt: Interrupt) -> str:
    call = f"{interrupt.tool}({_clipped(interrupt.arguments_json, _ARGUMENTS_CHARS)})" if interrupt.tool else ""
    if interrupt.kind is InterruptKind.APPROVAL:
        reason = f"approval of {call}" if call else "approval"
    elif interrupt.kind is InterruptKind.CALL:
        reason = f"the result of {call}" if call else "the result of a call"
    else:
        reason = f"input for {call}" if call else "input"
    return f"{reason}: {interrupt.message}" if interrupt.message else reason


def _clipped(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def read_interrupts(value: object, where: str) -> tuple[Interrupt, ...]:
    """Return the interrupts in a list; a string in it is the question to a person.

    Raises:
        MalformedAnswerError: The list has another shape; the message names the field.
    """
    return tuple(_interrupt(item, f"{where}[{index}]") for index, item in enumerate(as_items(value, where)))


def interrupt_to_json(interrupt: Interrupt) -> dict[str, Any]:
    """Return an interrupt as a JSON object without empty fields."""
    fields = {name: getattr(interrupt, name) for name in interrupt.__slots__}
    return {"kind": interrupt.kind.value} | {name: value for name, value in fields.items() if value and name != "kind"}


def _interrupt(value: object, where: str) -> Interrupt:
    if isinstance(value, str):
        return Interrupt(message=as_text(value, where)[:_MESSAGE_CHARS])
    data = as_mapping(value, where)
    tool = as_text(next((data[name] for name in TOOL_NAMES if data.get(name) is not None), ""), f"{where}.tool")
    return Interrupt(
        id=as_text(data.get("id"), f"{where}.id"),
        kind=_kind(data.get("kind"), tool, f"{where}.kind"),
        tool=tool,
        arguments_json=_arguments(data, where),
        message=_message(data, where)[:_MESSAGE_CHARS],
        decision=_decision(data.get("decision"), f"{where}.decision"),
    )


def _message(data: dict[str, Any], where: str) -> str:
    """Return the question to a person; LangGraph puts it in `value`, which may be any JSON value."""
    if data.get("message") is not None or not isinstance(data.get("value"), dict | list):
        name = "value" if data.get("message") is None else "message"
        return as_text(data.get(name), f"{where}.{name}")
    return json_text(data["value"], f"{where}.value")


def _kind(value: object, tool: str, where: str) -> InterruptKind:
    if value is None or value == "":
        return InterruptKind.APPROVAL if tool else InterruptKind.INPUT
    try:
        return InterruptKind(str(value).strip().lower())
    except ValueError:
        raise MalformedAnswerError(f"{where} must be approval, call or input, not {shown(value)}") from None


def _decision(value: object, where: str) -> str:
    decision = as_text(value, where).strip().lower()
    known = list(DecisionKind)
    if decision and decision not in known:
        raise MalformedAnswerError(f"{where} must be {', '.join(known[:-1])} or {known[-1]}, not {shown(value)}")
    return decision


def _arguments(data: dict[str, Any], where: str) -> str:
    if data.get("arguments_json") is not None:
        return as_text(data["arguments_json"], f"{where}.arguments_json")
    name = next((name for name in ARGUMENTS if data.get(name) is not None), "")
    return json_text(data[name], f"{where}.{name}") if name else ""
