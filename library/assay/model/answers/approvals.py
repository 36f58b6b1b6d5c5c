"""Scripted approvals: decisions of a case, or of a spec for all cases, for agents that stop to wait for a person."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.model.answers.interrupts import DecisionKind, Interrupt
from assay.model.answers.response_fields import MalformedAnswerError, clean_text, json_value, shown
from assay.parsing.names import kind_of, name_problem, unknown_name

MAX_APPROVALS = 100
"""Maximum number of items in a list of approvals."""
MAX_APPROVALS_CHARS = 200_000
"""Maximum characters of a list as JSON; every request carries it."""
MAX_TIMES = 10_000
"""Maximum `times` of an item."""

_MAX_TOOL_CHARS = 200
_MAX_REASON_CHARS = 4000
_UNLIMITED = "unlimited"


_KEYS = ("tool", *(kind.value for kind in DecisionKind), "times")
_FITTING = (
    {"approval": {DecisionKind.APPROVE, DecisionKind.DENY, DecisionKind.EDIT},
     "call": {DecisionKind.ANSWER}, "input": {DecisionKind.ANSWER}},
    # "May I?" in free text gets yes or no. An item with an answer fits such a question best.
    {"input": {DecisionKind.APPROVE, DecisionKind.DENY}},
)  # fmt: skip
"""The decisions that fit each kind of interrupt, best first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's scripted decision on an interrupt.

    Args:
        kind: The kind of decision.
        reason: Why a call is denied; empty for other kinds.
        arguments: The arguments that replace those of an edited call; None for other kinds.
        value: The answer to a call or question, any JSON value; None for other kinds.
    """

    kind: DecisionKind
    reason: str = ""
    arguments: dict[str, Any] | None = None
    value: Any = None

    @property
    def answer(self) -> Any:
        """The answer to a question of kind `input`: the value; true for an approval, false for a denial."""
        return self.value if self.kind is DecisionKind.ANSWER else self.kind is DecisionKind.APPROVE


@dataclass(frozen=True, slots=True)
class Approval:
    """An item of a list of approvals.

    Args:
        decision: The decision.
        tool: The tool whose interrupts it applies to; empty for every interrupt.
        times: How often it may be used in one case and repeat, over all turns; None for no limit.
    """

    decision: Decision
    tool: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class UnusedApproval:
    """A tool named in approvals at which no row stopped.

    Args:
        tool: The tool's name.
        case_count: Number of cases whose own approvals name it; 0 if the spec's approvals do.
        first_case: The id of the first such case.
    """

    tool: str
    case_count: int = 0
    first_case: str = ""


class ScriptedApprovals:
    """Decides the interrupts of a turn and records the decisions.

    An interrupt takes the first unused item that fits its tool and kind.

    Args:
        approvals: The items, in the order in which they are tried.
    """

    def __init__(self, approvals: Sequence[Approval] = ()) -> None:
        self._approvals = approvals
        self._uses = [0] * len(approvals)
        self._decided: list[Interrupt] = []
        self._waiting: list[Interrupt] = []

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """All interrupts so far: first the decided ones, then those still waiting."""
        return (*self._decided, *self._waiting)

    @property
    def decided(self) -> tuple[Interrupt, ...]:
        """The interrupts with a decision."""
        return tuple(self._decided)

    @property
    def waiting(self) -> tuple[Interrupt, ...]:
        """The interrupts without a decision."""
        return tuple(self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Whether any interrupt waits for a decision."""
        return bool(self._waiting)

    def decide(self, interrupt: Interrupt) -> Decision | None:
        """Return the decision on the next interrupt; None if no item fits."""
        for fitting in _FITTING:
            for index, approval in enumerate(self._approvals):
                if (
                    approval.decision.kind in fitting.get(interrupt.kind, ())
                    and approval.tool in ("", interrupt.tool)
                    and (approval.times is None or self._uses[index] < approval.times)
                ):
                    self._uses[index] += 1
                    self._decided.append(dataclasses.replace(interrupt, decision=approval.decision.kind.value))
                    return approval.decision
        self._waiting.append(interrupt)
        return None

    def remaining(self) -> tuple[Approval, ...]:
        """Return the items that may still be used, with their remaining times."""
        return tuple(
            approval if approval.times is None else dataclasses.replace(approval, times=approval.times - uses)
            for approval, uses in zip(self._approvals, self._uses, strict=True)
            if approval.times is None or uses < approval.times
        )


def remaining_approvals(approvals: Sequence[Approval], interrupts: Sequence[Interrupt]) -> tuple[Approval, ...]:
    """Return the approvals that remain for the next turn.

    Args:
        approvals: The approvals at the start of the conversation.
        interrupts: The interrupts of its earlier turns, in order.
    """
    if not approvals:
        return ()
    script = ScriptedApprovals(approvals)
    for interrupt in interrupts:
        if interrupt.decision:
            script.decide(interrupt)
    return script.remaining()


def read_approvals(items: object, *, times: int | None) -> tuple[tuple[Approval, ...], list[tuple[str, str]]]:
    """Return the approvals in a user's list.

    Args:
        items: A list of mappings with `tool`, one of `DecisionKind`, and `times`.
        times: How often an item without `times` may be used; None for no limit.

    Returns:
        The approvals that can be read, and all problems as pairs: the field, as the end of a path, and the problem.
    """
    if not isinstance(items, list | tuple):
        return (), [("", f"must be a list of decisions, not {kind_of(items)}")]
    if len(items) > MAX_APPROVALS:
        return (), [("", f"has {len(items):,} items, more than {MAX_APPROVALS}")]
    approvals: list[Approval] = []
    problems: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        approval, wrong = _read_item(item, times)
        problems += [(f"[{index}]{part}", problem) for part, problem in wrong]
        if approval is not None and not wrong:
            approvals.append(approval)
    size = len(json.dumps(approvals_to_json(approvals), ensure_ascii=False))
    if size > MAX_APPROVALS_CHARS:
        problems.append(("", f"has {size:,} characters as JSON, more than {MAX_APPROVALS_CHARS:,}: shorten the values"))
    return tuple(approvals), problems


def approvals_to_json(approvals: Sequence[Approval]) -> list[dict[str, Any]]:
    """Return approvals as JSON that `read_approvals` reads the same whatever its default of `times`."""
    return [_item_to_json(approval) for approval in approvals]


def approvals_from_json(items: Sequence[Mapping[str, Any]]) -> tuple[Approval, ...]:
    """Return approvals from the JSON of `approvals_to_json`.

    Raises:
        MalformedAnswerError: The JSON is not of that form.
    """
    approvals, problems = read_approvals(items, times=None)
    if problems:
        part, problem = problems[0]
        raise MalformedAnswerError(f"approvals{part}: {problem}")
    return approvals


def unstopped_tools(approvals: Sequence[Approval], interrupts: Sequence[Interrupt]) -> tuple[str, ...]:
    """Return tools that approvals name but no interrupt does: they are misspelled or were never called."""
    stopped = {interrupt.tool for interrupt in interrupts}
    return tuple(
        dict.fromkeys(approval.tool for approval in approvals if approval.tool and approval.tool not in stopped)
    )


def _item_to_json(approval: Approval) -> dict[str, Any]:
    decision = approval.decision
    content: Any = True
    if decision.kind is DecisionKind.DENY:
        content = decision.reason
    elif decision.kind is DecisionKind.EDIT:
        content = decision.arguments
    elif decision.kind is DecisionKind.ANSWER:
        content = decision.value
    data: dict[str, Any] = {"tool": approval.tool} if approval.tool else {}
    return data | {decision.kind.value: content, "times": _UNLIMITED if approval.times is None else approval.times}


def _read_item(item: object, times: int | None) -> tuple[Approval | None, list[tuple[str, str]]]:
    if not isinstance(item, Mapping):
        return None, [("", f"must be a mapping with one of {', '.join(DecisionKind)}, not {shown(item)}")]
    problems = [(f".{key}", unknown_name("field of an approval", key, _KEYS)) for key in item if key not in _KEYS]
    tool = item.get("tool", "")
    if "tool" in item and (problem := _tool_problem(tool)):
        problems.append((".tool", problem))
    kinds = [kind for kind in DecisionKind if kind in item]
    decision: Decision | None = None
    if len(kinds) == 1:
        decision, problem = _read_decision(kinds[0], item[kinds[0]])
        if problem:
            problems.append((f".{kinds[0]}", problem))
    elif kinds:
        problems.append(("", f"decides {' and '.join(kinds)}: write one decision an item"))
    else:
        problems.append(("", f"decides nothing: write one of {', '.join(DecisionKind)}"))
    if "times" in item:
        times, problem = _read_times(item["times"])
        if problem:
            problems.append((".times", problem))
    if decision is None or problems:
        return None, problems
    return Approval(decision, tool.strip(), times), []


def _tool_problem(tool: object) -> str:
    if not isinstance(tool, str) or not tool.strip():
        return f"must be a tool's name, not {shown(tool)}; leave it out for every interrupt"
    return name_problem(tool.strip(), _MAX_TOOL_CHARS)


def _read_decision(kind: DecisionKind, content: object) -> tuple[Decision | None, str]:
    match kind:
        case DecisionKind.APPROVE:
            if content is not True:
                return None, f"must be true, not {shown(content)}; to refuse a call write deny: REASON"
            return Decision(kind), ""
        case DecisionKind.DENY:
            if not isinstance(content, str) or not content.strip():
                return None, f"must be the reason, a text, not {shown(content)}"
            if len(content) > _MAX_REASON_CHARS:
                return None, f"has {len(content):,} characters, more than {_MAX_REASON_CHARS:,}"
            return Decision(kind, reason=clean_text(content)), ""
    if kind is DecisionKind.EDIT and not isinstance(content, Mapping):
        return None, f"must be a mapping of the call's arguments, not {shown(content)}"
    try:
        value = json_value(content, kind.value)
    except MalformedAnswerError as problem:
        return None, str(problem)
    return (Decision(kind, arguments=value) if kind is DecisionKind.EDIT else Decision(kind, value=value)), ""


def _read_times(times: object) -> tuple[int | None, str]:
    if times == _UNLIMITED:
        return None, ""
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= MAX_TIMES:
        return None, f"must be a whole number from 1 to {MAX_TIMES:,}, or {_UNLIMITED}, not {shown(times)}"
    return times, ""
