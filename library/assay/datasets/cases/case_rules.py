"""The rules for a valid case, shared by all readers of datasets and the service that stores them."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.model.answers.agent_response import MalformedAnswerError, response_from_json, response_to_json
from assay.model.answers.approvals import approvals_to_json, read_approvals
from assay.model.answers.response_limits import AnswerTooLargeError, check_bounds
from assay.model.case import MAX_WEIGHT, TOOL_MATCHES, case_to_json
from assay.model.limits import LARGEST_INTEGER, MAX_CASE_BYTES, MAX_CASE_ID_CHARS, MAX_JUDGE_CHARS, MAX_REPEATS
from assay.parsing.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Assertion, Case, RecordedVerdict

_MAX_TURNS = 100
_PLAIN_CHARS = 100_000
_MAX_ENTRIES = 1_000
_LISTS_OF_A_TURN = ("references", "expected_sources", "expected_tools")
_MAX_DEPTH = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OBJECTS = ("variables", "parameters", "expected", "human_labels", "metadata")


def case_problems(case: Case) -> list[Problem]:
    """Return all reasons why a case cannot be stored, read or run; fields are relative to the case.

    Its total size is not checked here: `excess` does that, which takes longer.
    """
    problems = []
    if problem := name_problem(case.case_id, MAX_CASE_ID_CHARS):
        problems.append(Problem(problem, "case_id"))
    if not 1 <= len(case.turns) <= _MAX_TURNS:
        problems.append(Problem(f"must be 1 to {_MAX_TURNS}, not {len(case.turns)}", "turns"))
    if not _is_weight(case.weight):
        problems.append(Problem(f"must be a number from 0 to {MAX_WEIGHT:g}, not {case.weight!r}", "weight"))
    problems += [
        Problem(f"must be a number, not {value!r}", f"thresholds.{name}")
        for name, value in case.thresholds.items()
        if not math.isfinite(value)
    ]
    for name in _OBJECTS:
        value = getattr(case, name)
        if value and (problem := _json_problem(value)):
            problems.append(Problem(problem, name))
    if too_long := list(_list_problems(case)):
        return [*problems, *too_long]  # walking them is expensive
    problems += [*_tool_problems(case), *_approval_problems(case)]
    for index, assertion in enumerate(case.assertions):
        problems += _assertion_problems(assertion, f"assertions[{index}]")
    problems += _recording_problems(case)
    for index, verdict in enumerate(case.verdicts):
        problems += _verdict_problems(verdict, f"verdicts[{index}]")
    return problems


def excess(case: Case) -> str:
    """Return the message for a case that is too large without its recorded answers, or the empty text."""
    size = len(json.dumps(case_to_json(case.without_answers()), ensure_ascii=False).encode())
    if size <= MAX_CASE_BYTES:
        return ""
    return f"is larger than {MAX_CASE_BYTES // 1024**2} MiB: shorten it, or leave fields out"


def _is_weight(weight: float) -> bool:
    return 0 <= weight <= MAX_WEIGHT


def _list_problems(case: Case) -> Iterator[Problem]:
    """Yield the lists that metrics iterate over and that are too long."""
    for name in ("assertions", "verdicts"):
        if len(entries := getattr(case, name)) > _MAX_ENTRIES:
            yield _too_long(entries, name)
    if len(case.recordings) > MAX_REPEATS:
        yield Problem(f"has {len(case.recordings):,} entries, more than {MAX_REPEATS} repeats", "recordings")
    for index, turn in enumerate(case.turns[:_MAX_TURNS]):
        for name in _LISTS_OF_A_TURN:
            if len(entries := getattr(turn, name)) > _MAX_ENTRIES:
                yield _too_long(entries, f"turns[{index}].{name}")


def _too_long(entries: Sized, where: str) -> Problem:
    return Problem(f"has {len(entries):,} entries, more than {_MAX_ENTRIES:,}", where)


def _tool_problems(case: Case) -> Iterator[Problem]:
    for turn_index, turn in enumerate(case.turns):
        for index, tool in enumerate(turn.expected_tools):
            where = f"turns[{turn_index}].expected_tools[{index}]"
            if not tool.name:
                yield Problem("is missing", f"{where}.name")
            if tool.match not in TOOL_MATCHES:
                yield Problem(f"must be one of {', '.join(TOOL_MATCHES)}, not {tool.match[:60]!r}", f"{where}.match")
            if tool.arguments and (problem := _json_problem(tool.arguments)):
                yield Problem(problem, f"{where}.arguments")


def _approval_problems(case: Case) -> list[Problem]:
    if not case.approvals:
        return []
    _, problems = read_approvals(approvals_to_json(case.approvals), times=None)
    return [Problem(problem, f"approvals{part}") for part, problem in problems]


def _assertion_problems(assertion: Assertion, where: str) -> Iterator[Problem]:
    if assertion.threshold is not None and not math.isfinite(assertion.threshold):
        yield Problem(f"must be a number, not {assertion.threshold!r}", f"{where}.threshold")
    if not _is_weight(assertion.weight):
        yield Problem(f"must be a number from 0 to {MAX_WEIGHT:g}, not {assertion.weight!r}", f"{where}.weight")
    if problem := _json_problem(assertion.value):
        yield Problem(problem, f"{where}.value")
        return
    from assay.metrics.assertions import assertion_problem  # imported here: few datasets have checks

    if problem := assertion_problem(assertion):
        yield Problem(problem, where)


def _verdict_problems(verdict: RecordedVerdict, where: str) -> Iterator[Problem]:
    for name in ("rubric", "judge"):
        if problem := name_problem(getattr(verdict, name), MAX_JUDGE_CHARS):
            yield Problem(problem, f"{where}.{name}")
    if not _SHA256.fullmatch(verdict.answer_sha256):
        yield Problem("must be a SHA-256 in hexadecimal", f"{where}.answer_sha256")
    if problem := _json_problem(verdict.verdict):
        yield Problem(problem, f"{where}.verdict")
    if verdict.repeat is not None and not 1 <= verdict.repeat <= MAX_REPEATS:
        yield Problem(f"must be from 1 to {MAX_REPEATS}, not {verdict.repeat}", f"{where}.repeat")


def incomplete(count: int, due: int) -> str:
    """Return the message for a recorded conversation whose number of answers is not that of its turns."""
    return f"has {count} answers to {due} turns: each turn has one, until one is an error"


def _recording_problems(case: Case) -> Iterator[Problem]:
    due = len(case.turns)
    for index, turns in enumerate(case.recordings):
        count = len(turns)
        if count != due and not _may_be_shorter(case, turns):
            yield Problem(incomplete(count, due), f"recordings[{index}].turns")
        for turn_index, response in enumerate(turns[:_MAX_TURNS]):
            problem = _recorded_problem(response)
            if not problem and turn_index < count - 1 and response.is_failed:
                problem = "is an error, and answers follow: a conversation ends there"
            if problem:
                yield Problem(problem, f"recordings[{index}].turns[{turn_index}]")


def _may_be_shorter(case: Case, turns: Sequence[AgentResponse]) -> bool:
    """Return whether a recording ends with an error, or the case records last answers only."""
    if not 0 < len(turns) < len(case.turns):
        return False
    return turns[-1].is_failed or all(len(recording) == 1 for recording in case.recordings)


def _recorded_problem(recorded: AgentResponse) -> str:
    """Return why a recorded answer is invalid, by the rules and limits for an agent's answer."""
    if _is_plain(recorded):
        return ""
    data = response_to_json(recorded)
    try:
        check_bounds(data)
        if data.keys() > {"status", "text"}:
            response_from_json(data)
    except AnswerTooLargeError as problem:
        return f"{problem}: shorten it"
    except MalformedAnswerError as problem:
        return f"is not a valid recorded answer: {problem}"
    return ""


def _is_plain(recorded: AgentResponse) -> bool:
    """Return whether an answer is a short text with valid numbers; most are, and need no second pass."""
    if recorded.is_failed or len(recorded.text) > _PLAIN_CHARS:
        return False
    if recorded.error or recorded.tool_calls or recorded.sources or recorded.retrieved or recorded.attempts:
        return False
    if recorded.output is not None or recorded.metadata or recorded.sql or recorded.finish_reason or recorded.model:
        return False
    usage = recorded.usage
    counts = [recorded.data_rows]
    numbers = [recorded.latency_ms, recorded.reported_latency_ms, recorded.time_to_first_token_ms]
    if usage is not None:
        counts += [usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cache_read_tokens]
        counts += [usage.cache_write_tokens, usage.reasoning_tokens, usage.requests]
        numbers.append(usage.cost_usd)
    return all(count is None or 0 <= count <= LARGEST_INTEGER for count in counts) and all(
        number is None or 0 <= number < math.inf for number in numbers
    )


def _json_problem(value: Any) -> str:
    """Return why a value cannot be written as JSON and read back, or the empty text."""
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return f"is nested more than {_MAX_DEPTH} levels deep"
        if isinstance(item, float):
            if not math.isfinite(item):
                return f"holds {item!r}, which JSON has no number for"
        elif isinstance(item, dict):
            pending += [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list | tuple):
            pending += [(child, depth + 1) for child in item]
    return ""
