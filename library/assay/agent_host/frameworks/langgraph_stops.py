"""LangGraph stops that wait for a person, and the values that resume them."""

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
"""The field of a result that holds a graph's interrupts."""
_QUESTIONS = ("question", "message", "prompt", "description", "text", "query")


@dataclass(frozen=True, slots=True)
class Raised:
    """A call of `interrupt()`.

    Args:
        id: The id by which LangGraph identifies it.
        interrupts: The questions for a person, with one decision each.
        answer: Returns the call's return value for these decisions.
    """

    id: str
    interrupts: tuple[Interrupt, ...]
    answer: Callable[[Sequence[Decision]], Any]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A node that a graph was compiled to stop at (`interrupt_before`, `interrupt_after`).

    Args:
        node: The next node.
        config: The config of its graph, which may be a subgraph.
        interrupts: The questions for a person, with one decision each.
        message: The model's message whose tool calls the node runs; None if it runs none.
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
        config: The graph's config.
        values: The new values.
        node: The node that writes them; None for the last one that ran.
    """

    config: Any
    values: Any
    node: str | None = None


def stops_of(result: object, snapshot: Any, tools: Mapping[str, ToolRun]) -> tuple[Stop, ...]:
    """Return the stops of a graph; empty if it ended.

    Args:
        result: The graph's result.
        snapshot: The graph's state, with those of its subgraphs; None if it keeps none.
        tools: The interrupted tool runs, by the ids of the interrupts.
    """
    raised = result.get(INTERRUPT) or () if isinstance(result, Mapping) else ()
    calls = {item.id: _raised(item, tools.get(item.id)) for item in raised}
    return (*calls.values(), *(_breakpoints(snapshot) if snapshot is not None else ()))


def resumed_with(stops: Sequence[Stop], decisions: Sequence[Decision]) -> tuple[dict[str, Any], list[Update], bool]:
    """Return the values that resume a graph.

    Args:
        stops: All of its stops.
        decisions: One decision per interrupt, in order.

    Returns:
        The return values of its interrupts by id, the state changes to write first, and whether it continues, which it
        does not after a denied breakpoint.
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
    """Return an interrupt, parsed in the form of LangChain's agents, or else as a question in any form."""
    value = item.value
    if isinstance(value, Mapping) and isinstance(requests := value.get("action_requests"), list):
        by_tool = {
            config.get("action_name"): config.get("allowed_decisions") for config in value.get("review_configs") or ()
        }
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
            replies = list(map(_inbox_response, asked, requests, taken))
            return replies if isinstance(value, list | tuple) else replies[0]

        return Raised(item.id, asked, responses)
    return Raised(item.id, (_question(item.id, value, tool),), lambda taken: taken[0].answer)


def _action(key: str, request: Mapping[str, Any], allowed: Sequence[str]) -> Interrupt:
    """Return a call that LangChain's HumanInTheLoopMiddleware asks about, and the decisions it allows."""
    # A tool that only a person answers allows only "respond".
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
    """Return the types of decisions that a response's JSON schema names."""
    if isinstance(schema, list):
        return [kind for part in schema for kind in _kinds_in(part)]
    if not isinstance(schema, Mapping):
        return []
    fields = schema.get("properties")
    kind = fields["type"].get("const") if isinstance(fields, Mapping) and "type" in fields else None
    return [kind] if kind else [kind for part in schema.values() for kind in _kinds_in(part)]


def _reviewer(interrupt: Interrupt, allowed: Sequence[str], decision: Decision) -> dict[str, Any]:
    """Return a decision in the form of HumanInTheLoopMiddleware.

    Raises:
        UnusableDecisionError: It does not allow such a decision.
    """
    match decision.kind:
        case DecisionKind.DENY:
            response: dict[str, Any] = {"type": "reject", "message": decision.reason}
        case DecisionKind.EDIT:
            response = {"type": "edit", "edited_action": {"name": interrupt.tool, "args": decision.arguments}}
        case DecisionKind.ANSWER:
            value = decision.value
            response = {"type": "respond", "message": value if isinstance(value, str) else json_of(value)}
        case _:
            response = {"type": "approve"}
    if allowed and response["type"] not in allowed:
        raise UnusableDecisionError(
            f"the agent's review of {interrupt.tool} allows {', '.join(allowed)}, not {response['type']}: add it to "
            "`allowed_decisions` of the middleware, or decide otherwise in `approvals`"
        )
    return response


def _inbox(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the requests of an interrupt in the form of LangGraph's prebuilt `HumanInterrupt`; None for any other
    form."""
    requests = list(value) if isinstance(value, list | tuple) else [value]
    if requests and all(
        isinstance(item, Mapping) and isinstance(item.get("action_request"), Mapping) for item in requests
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
    """Return an interrupt with the user's own value; an interrupt in a tool names the tool."""
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
    """Return the nodes before which a graph stopped, with subgraphs' nodes instead of the nodes that contain them."""
    waiting = Counter(snapshot.next)
    for task in snapshot.tasks:
        if task.interrupts:
            waiting[task.name] -= 1
    stops: list[Breakpoint] = []
    for task in snapshot.tasks:
        inner = getattr(task.state, "tasks", ())
        if waiting[task.name] <= 0 or task.interrupts or any(subtask.interrupts for subtask in inner):
            continue
        if inner:
            stops += _breakpoints(task.state)
        elif all(task.name != stop.node for stop in stops):
            stops.append(_breakpoint(task.name, snapshot))
    return stops


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
    """Return the edits of a message's tool calls, and the answers that replace denied tools.

    A node runs all calls of the last message, so denied calls stay in a separate message before it.
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
    """Return the state values for a person's answer: its fields, or a message."""
    return (
        value
        if isinstance(value, dict)
        else {MESSAGES: [HumanMessage(value if isinstance(value, str) else json_of(value))]}
    )
