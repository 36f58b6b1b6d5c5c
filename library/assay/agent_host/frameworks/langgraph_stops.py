"""Where a graph of LangGraph stopped to wait for a person, and what it is resumed with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from assay.agent_host.failures import UnusableDecisionError
from assay.agent_host.frameworks.answers import json_of
from assay.agent_host.frameworks.langchain_messages import MESSAGES
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind

if TYPE_CHECKING:
    from assay.agent_host.frameworks.langchain_trace import ToolRun
    from assay.model.answers.approvals import Decision

INTERRUPT = "__interrupt__"
"""The field of a result that has the interrupts of a graph."""
_QUESTIONS = ("question", "message", "prompt", "description", "text", "query")


@dataclass(frozen=True, slots=True)
class Raised:
    """A call of `interrupt()`.

    Args:
        id: Its id, by which LangGraph finds it again.
        interrupts: What a person is asked: one decision each.
        answer: Returns what the call returns, of these decisions.
    """

    id: str
    interrupts: tuple[Interrupt, ...]
    answer: Callable[[Sequence[Decision]], Any]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A node that a graph was compiled to stop at (`interrupt_before`, `interrupt_after`).

    Args:
        node: The node that runs next.
        config: Of the graph that it belongs to, which may be a subgraph.
        interrupts: What a person is asked: one decision each.
        message: The model's message whose calls of tools the node runs; None where it runs none.
    """

    node: str
    config: Any
    interrupts: tuple[Interrupt, ...]
    message: AIMessage | None = None


Stop = Raised | Breakpoint


@dataclass(frozen=True, slots=True)
class Update:
    """A change of a graph's state before it is resumed.

    Args:
        config: Of the graph.
        values: What is written.
        node: The node that writes it; None for the last one that ran.
    """

    config: Any
    values: Any
    node: str | None = None


def stops_of(result: object, snapshot: Any, tools: Mapping[str, ToolRun]) -> tuple[Stop, ...]:
    """Return where a graph stopped; none where it ended.

    Args:
        result: What it returned.
        snapshot: Its state, with those of its subgraphs; None where it keeps none.
        tools: The tools in which it was interrupted, by the ids of the interrupts.
    """
    raised = result.get(INTERRUPT) or () if isinstance(result, Mapping) else ()
    found = {item.id: _raised(item, tools.get(item.id)) for item in raised}
    return (*found.values(), *(_breakpoints(snapshot) if snapshot is not None else ()))


def resumed_with(stops: Sequence[Stop], decisions: Sequence[Decision]) -> tuple[dict[str, Any], list[Update], bool]:
    """Return what a graph is resumed with.

    Args:
        stops: All that it waits for.
        decisions: One for each of their interrupts, in order.

    Returns:
        The values that its interrupts return, by their ids; what is written to its state first; and whether it
        continues, which it does not where a breakpoint was denied.
    """
    rest = iter(decisions)
    values: dict[str, Any] = {}
    updates: list[Update] = []
    continues = True
    for stop in stops:
        taken = [next(rest) for _ in stop.interrupts]
        if isinstance(stop, Raised):
            values[stop.id] = stop.answer(taken)
        elif stop.message is not None:
            updates += _reviewed(stop, stop.message, taken)
        elif taken[0].kind is DecisionKind.DENY:
            continues = False
        elif taken[0].kind is DecisionKind.ANSWER:
            updates.append(Update(stop.config, _written(taken[0].value)))
    return values, updates, continues


def _raised(item: Any, tool: ToolRun | None) -> Raised:
    """Return an interrupt, read as LangChain's agents write them, or else as a question in any form."""
    value = item.value
    if isinstance(value, Mapping) and isinstance(requests := value.get("action_requests"), list):
        by_tool = {one.get("action_name"): one.get("allowed_decisions") for one in value.get("review_configs") or ()}
        choices = [by_tool.get(request.get("name")) or () for request in requests]
        asked = tuple(
            _action(f"{item.id}/{index}" if index else item.id, request, allowed)
            for index, (request, allowed) in enumerate(zip(requests, choices, strict=True))
        )
        return Raised(item.id, asked, lambda taken: {"decisions": list(map(_reviewer, asked, choices, taken))})
    if isinstance(value, Mapping) and value.get("type") == "tool_approval":
        allowed = _kinds_in(getattr(item, "response_schema", None))
        asked = (_action(value.get("tool_call_id") or item.id, value, allowed),)
        return Raised(item.id, asked, lambda taken: _reviewer(asked[0], allowed, taken[0]))
    if (requests := _inbox(value)) is not None:
        asked = tuple(_inbox_interrupt(item.id, request) for request in requests)

        def responses(taken: Sequence[Decision]) -> Any:
            said = list(map(_inbox_response, asked, requests, taken))
            return said if isinstance(value, list | tuple) else said[0]

        return Raised(item.id, asked, responses)
    return Raised(item.id, (_question(item.id, value, tool),), lambda taken: taken[0].answer)


def _action(key: str, request: Mapping[str, Any], allowed: Sequence[str]) -> Interrupt:
    """Return one call that LangChain's HumanInTheLoopMiddleware asks about, and which decisions it allows."""
    # A tool that only a person answers: "respond" is all that is allowed.
    kind = InterruptKind.CALL if "respond" in allowed and "approve" not in allowed else InterruptKind.APPROVAL
    arguments = request.get("args", request.get("arguments"))
    return Interrupt(
        id=key,
        kind=kind,
        tool=str(request.get("name") or ""),
        arguments_json=json_of(arguments) if arguments is not None else "",
        message=str(request.get("description") or ""),
    )


def _kinds_in(schema: object) -> list[str]:
    """Return the types of decisions that the JSON schema of a response names."""
    if isinstance(schema, list):
        return [kind for part in schema for kind in _kinds_in(part)]
    if not isinstance(schema, Mapping):
        return []
    fields = schema.get("properties")
    kind = fields["type"].get("const") if isinstance(fields, Mapping) and "type" in fields else None
    return [kind] if kind else [kind for part in schema.values() for kind in _kinds_in(part)]


def _reviewer(interrupt: Interrupt, allowed: Sequence[str], decision: Decision) -> dict[str, Any]:
    """Return a decision as HumanInTheLoopMiddleware has it.

    Raises:
        UnusableDecisionError: It does not allow such a decision.
    """
    match decision.kind:
        case DecisionKind.DENY:
            said: dict[str, Any] = {"type": "reject", "message": decision.reason}
        case DecisionKind.EDIT:
            said = {"type": "edit", "edited_action": {"name": interrupt.tool, "args": decision.arguments}}
        case DecisionKind.ANSWER:
            value = decision.value
            said = {"type": "respond", "message": value if isinstance(value, str) else json_of(value)}
        case _:
            said = {"type": "approve"}
    if allowed and said["type"] not in allowed:
        raise UnusableDecisionError(
            f"the agent's review of {interrupt.tool} allows {', '.join(allowed)}, not {said['type']}: add it to "
            "`allowed_decisions` of the middleware, or decide otherwise in `approvals`"
        )
    return said


def _inbox(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the requests of an interrupt in the form of LangGraph's prebuilt `HumanInterrupt`; None in any other."""
    requests = list(value) if isinstance(value, list | tuple) else [value]
    if requests and all(
        isinstance(one, Mapping) and isinstance(one.get("action_request"), Mapping) for one in requests
    ):
        return requests
    return None


def _inbox_interrupt(key: str, request: Mapping[str, Any]) -> Interrupt:
    action, config = request["action_request"], request.get("config") or {}
    kind = (
        InterruptKind.APPROVAL if config.get("allow_accept", True) or config.get("allow_edit") else InterruptKind.INPUT
    )
    return Interrupt(
        id=key,
        kind=kind,
        tool=str(action.get("action") or ""),
        arguments_json=json_of(action.get("args") or {}),
        message=str(request.get("description") or ""),
    )


def _inbox_response(interrupt: Interrupt, request: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    match decision.kind:
        case DecisionKind.DENY:
            if (request.get("config") or {}).get("allow_respond"):
                return {"type": "response", "args": decision.reason}
            return {"type": "ignore", "args": None}
        case DecisionKind.EDIT:
            return {"type": "edit", "args": {"action": interrupt.tool, "args": decision.arguments}}
        case DecisionKind.ANSWER:
            return {"type": "response", "args": decision.value}
    return {"type": "accept", "args": None}


def _question(key: str, value: object, tool: ToolRun | None) -> Interrupt:
    """Return an interrupt whose value is the user's own; one in a tool names the tool."""
    message, call = value, None
    if isinstance(value, Mapping):
        message = next((value[name] for name in _QUESTIONS if isinstance(value.get(name), str)), value)
        call = value.get("tool_call")
    name, arguments = (tool.name, tool.arguments) if tool is not None else ("", None)
    if isinstance(call, Mapping) and call.get("name"):
        name, arguments = str(call["name"]), call.get("args")
    return Interrupt(
        id=key,
        kind=InterruptKind.INPUT,
        tool=name,
        arguments_json=json_of(arguments) if arguments is not None else "",
        message=message if isinstance(message, str) else json_of(message),
    )


def _breakpoints(snapshot: Any) -> list[Breakpoint]:
    """Return the nodes before which a graph stopped, those of subgraphs in place of the nodes that they run in."""
    waiting = Counter(snapshot.next)
    for task in snapshot.tasks:
        if task.interrupts:
            waiting[task.name] -= 1
    found: list[Breakpoint] = []
    for task in snapshot.tasks:
        inner = getattr(task.state, "tasks", ())
        if waiting[task.name] <= 0 or task.interrupts or any(each.interrupts for each in inner):
            continue
        if inner:
            found += _breakpoints(task.state)
        elif all(task.name != one.node for one in found):
            found.append(_breakpoint(task.name, snapshot))
    return found


def _breakpoint(node: str, snapshot: Any) -> Breakpoint:
    messages = snapshot.values.get(MESSAGES) if isinstance(snapshot.values, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    where = f"the graph stopped before {node}"
    if isinstance(last, AIMessage) and last.tool_calls:
        calls = tuple(
            Interrupt(call["id"] or "", InterruptKind.APPROVAL, call["name"], json_of(call["args"]), where)
            for call in last.tool_calls
        )
        return Breakpoint(node, snapshot.config, calls, last)
    return Breakpoint(node, snapshot.config, (Interrupt(node, InterruptKind.INPUT, message=where),))


def _reviewed(stop: Breakpoint, message: AIMessage, taken: Sequence[Decision]) -> list[Update]:
    """Return how the calls of tools of a message are edited, or answered in place of the tools that were denied.

    A node runs all calls of the last message, so those that were denied stay behind in a message before it.
    """
    pairs = list(zip(message.tool_calls, taken, strict=True))
    denied = [(call, decision) for call, decision in pairs if decision.kind is DecisionKind.DENY]
    calls = [
        {**call, "args": decision.arguments} if decision.kind is DecisionKind.EDIT else call
        for call, decision in pairs
        if decision.kind is not DecisionKind.DENY
    ]
    answers = [
        ToolMessage(decision.reason, name=call["name"], tool_call_id=call["id"], status="error")
        for call, decision in denied
    ]
    if not calls:
        return [Update(stop.config, {MESSAGES: answers}, stop.node)]
    if denied:
        refused = message.model_copy(update={"tool_calls": [call for call, _ in denied]})
        return [Update(stop.config, {MESSAGES: [refused, *answers, AIMessage("", tool_calls=calls)]})]
    if calls == message.tool_calls:
        return []
    return [Update(stop.config, {MESSAGES: [message.model_copy(update={"tool_calls": calls})]})]


def _written(value: object) -> Any:
    """Return what a person's answer writes to a state: its fields, or a message."""
    return (
        value
        if isinstance(value, dict)
        else {MESSAGES: [HumanMessage(value if isinstance(value, str) else json_of(value))]}
    )
