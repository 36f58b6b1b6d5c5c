"""The checks of an answer that a case may have, by type; the types have promptfoo's names.

A check grades an answer from 0 to 1 and says whether it holds. A check without its input, such as a latency that was
not measured, is not made.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from assay.metrics.checks.json_values import json_in, json_values
from assay.metrics.checks.patterns import MAX_TEXT_CHARS, compile_pattern, pattern_problem, pattern_size, search_work
from assay.metrics.checks.schema_validation import schema_complaints, schema_problem, schema_validator, validation_work
from assay.metrics.core.explanations import count_of, differing, listed, quoted
from assay.metrics.rouge import rouge, rouge_work
from assay.model.answers.possible_usage import possible_cost
from assay.statistics.thresholds import exceeds, meets
from assay.text.edit_distance import edit_distance, edit_work
from assay.text.equality import composed, folded_case, is_blank, json_equal, same_text
from assay.text.unsafe_text import shorten
from assay.text.word_tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Assertion
    from assay.model.judgement import Judgement

_DEFAULT_EDITS = 5.0
_DEFAULT_ROUGE = 0.75
_WORK_PER_CHECK = 2_000
_LONGEST_READ_AT_ONCE = 200
_UNREPORTED = "the answer does not report its tool calls"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a check.

    Args:
        holds: Whether it holds; None if it was not made.
        score: In [0, 1]; None if it was not made.
        reason: Why it does not hold, as a sentence with the expected and the actual; or why it was not made, in the
            same words for all rows. Empty if it holds.
        is_error: Whether it was not made because of a failure on Assay's side, which a retry may fix.
        detail: Further fields.
        judgements: The verdicts behind it.
    """

    holds: bool | None
    score: float | None
    reason: str = ""
    is_error: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A type of check.

    Args:
        summary: Its purpose in a few words.
        takes: The type of its value: "any", "text", "texts", "pattern", "schema", "limit" (a threshold), "count",
            "tools" or "steps" (of a trajectory).
        make: Makes the check on an answer.
    """

    summary: str
    takes: str
    make: Callable[[Assertion, AgentResponse], Outcome]


def value_problem(check: Check, assertion: Assertion) -> str:
    """Return the problem of a check's value, as the end of a sentence, or the empty string."""
    value = assertion.value
    match check.takes:
        case "any" if value is None:
            return "needs a value"
        case "text" if not _is_scalar(value) or str(value) == "":
            return "needs a text as its value"
        case "texts" if not _texts(value):
            return "needs a list of strings as its value"
        case "pattern":
            return pattern_problem(value) if isinstance(value, str) and value else "needs a pattern as its value"
        case "schema" if value is not None:
            schema = _schema(value)
            return "needs a JSON schema as its value" if schema is None else schema_problem(schema)
        case "limit" if assertion.threshold is None:
            return "needs a threshold"
        case "count" if _count_range(value) is None:
            return "needs a number of words as its value, or {min, max}"
        case "tools" if _tool_uses(value) is None:
            return "needs a tool's name as its value, a list of names, or {name, min, max}"
        case "steps" if _steps(value) is None:
            return "needs a list of tools' names as its value, or {mode: in_order or exact, steps: [...]}"
    return ""


def check_work(assertion: Assertion, response: AgentResponse) -> float:
    """Return an upper bound of the work of a check; see `row_work`."""
    text, value = response.text, assertion.value
    plain = _WORK_PER_CHECK + 2 * len(text)
    if isinstance(value, str | dict | list):
        plain += 20 * len(str(value))
    check = CHECKS.get(assertion.type)
    match check.takes if check is not None else "":
        case "pattern":
            return plain + _pattern_work(value, len(text))
        case "schema":
            searched = text if assertion.type == "contains-json" or response.output is None else response.output
            schema_text = "true" if value is None else value if isinstance(value, str) else json.dumps(value)
            starts = min(text.count("{") + text.count("["), 200) if assertion.type == "contains-json" else 1
            return plain + starts * len(text) + validation_work(schema_text, searched)
    match assertion.type:
        case "levenshtein":
            return plain + edit_work(text, str(value))
        case "rouge-n":
            return plain + rouge_work(text, str(value))
    return plain + (len(text) * len(value) if isinstance(value, list) else 0)


def _pattern_work(pattern: object, chars: int) -> float:
    if not isinstance(pattern, str) or len(pattern) > _LONGEST_READ_AT_ONCE or "{" in pattern:
        return math.inf  # compiling it is part of the work
    try:
        return search_work(pattern_size(pattern), chars)
    except ValueError:
        return 0


def _outcome(holds: bool | None, reason: str = "") -> Outcome:
    return Outcome(holds, None if holds is None else float(holds), "" if holds else reason)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts(value: object) -> list[str]:
    """Return the texts of a list, or of a text that separates them by commas."""
    if isinstance(value, str):
        rows = csv.reader([value.replace("\r", " ").replace("\n", " ")], skipinitialspace=True)
        return [text.strip() for text in next(rows, []) if text.strip()]
    if isinstance(value, list) and all(_is_scalar(item) and str(item) for item in value):
        return [_plain(item) for item in value]
    return [_plain(value)] if _is_scalar(value) else []


def _schema(value: object) -> dict[str, Any] | bool | None:
    if isinstance(value, str):
        try:
            value = json_in(value)
        except ValueError:
            return None
    return value if isinstance(value, dict | bool) else None


def _json_of(response: AgentResponse) -> Any:
    """Return the answer's structured output, else its text parsed as JSON; raises ValueError without either."""
    return json_in(response.text) if response.output is None else response.output


def _equals(assertion: Assertion, response: AgentResponse) -> Outcome:
    expected = assertion.value
    if isinstance(expected, dict | list):
        try:
            value = _json_of(response)
        except ValueError as problem:
            return _outcome(False, f"{_no_json(response, problem)}; expected {quoted(_plain(expected))}")
        answer, due = differing(_plain(value), _plain(expected))
        return _outcome(json_equal(value, expected), f"the answer is {answer}, expected {due}")
    answer, due = differing(response.text.strip(), _plain(expected).strip())
    return _outcome(same_text(response.text, _plain(expected), numbers=True), f"the answer is {answer}, expected {due}")


def _occurs(quantity: Callable[[list[bool]], bool], *, folded: bool = False, several: bool = True) -> Any:
    """Return the check that an answer contains all or any of some texts."""

    def make(assertion: Assertion, response: AgentResponse) -> Outcome:
        texts = _texts(assertion.value) if several else [_plain(assertion.value)]
        form = folded_case if folded else composed
        answer = form(response.text)
        occurrences = [form(text) in answer for text in texts]
        missing = [quoted(text) for text, is_found in zip(texts, occurrences, strict=True) if not is_found]
        return _outcome(quantity(occurrences), f"missing {listed(missing)} in the answer {quoted(response.text)}")

    return make


def _begins(assertion: Assertion, response: AgentResponse) -> Outcome:
    expected = _plain(assertion.value)
    complaint = f"the answer {quoted(response.text)} does not begin with {quoted(expected)}"
    return _outcome(composed(response.text).startswith(composed(expected)), complaint)


def _matches(assertion: Assertion, response: AgentResponse) -> Outcome:
    match = compile_pattern(composed(assertion.value)).search(composed(response.text[:MAX_TEXT_CHARS]))
    complaint = f"the pattern {quoted(assertion.value)} is not found in the answer {quoted(response.text)}"
    return _outcome(match is not None, complaint)


def _complaints(value: Any, assertion: Assertion) -> list[str]:
    if assertion.value is None:
        return []
    return schema_complaints(value, schema_validator(json.dumps(_schema(assertion.value))))


def _is_json(assertion: Assertion, response: AgentResponse) -> Outcome:
    try:
        value = _json_of(response)
    except ValueError as problem:
        return _outcome(False, _no_json(response, problem))
    complaints = _complaints(value, assertion)
    complaint = f"the answer {quoted(_plain(value))} does not fit the schema: {shorten('; '.join(complaints[:2]), 300)}"
    return _outcome(not complaints, complaint)


def _no_json(response: AgentResponse, problem: ValueError) -> str:
    return f"the answer {quoted(response.text)} is not JSON ({problem})"


def _holds_json(assertion: Assertion, response: AgentResponse) -> Outcome:
    is_valid = any(not _complaints(value, assertion) for value in json_values(response.text[:MAX_TEXT_CHARS]))
    schema = "" if assertion.value is None else f" that fits the schema {quoted(_plain(assertion.value))}"
    return _outcome(is_valid, f"the answer {quoted(response.text)} holds no JSON{schema}")


def _is_near(assertion: Assertion, response: AgentResponse) -> Outcome:
    most = _DEFAULT_EDITS if assertion.threshold is None else assertion.threshold
    expected, text = composed(_plain(assertion.value)), composed(response.text)
    answer, due = differing(text, expected)
    texts = f"from {due}; the answer is {answer}"
    if exceeds(abs(len(expected) - len(text)), most):
        return _outcome(False, f"more than {most:g} edits away {texts}")
    edits = edit_distance(text, expected)
    if edits is None:
        return _outcome(None, "texts too long")
    return _outcome(not exceeds(edits, most), f"{edits} edits, more than {most:g}, away {texts}")


def _overlaps(assertion: Assertion, response: AgentResponse) -> Outcome:
    least = _DEFAULT_ROUGE if assertion.threshold is None else assertion.threshold
    overlaps = rouge(tokenize(response.text), tokenize(_plain(assertion.value)))
    if overlaps is None:
        return _outcome(None, "texts too long")
    f1 = overlaps["rouge1"].f1
    holds = meets(f1, least)
    complaint = f"ROUGE-1 {f1:.3g} with {quoted(_plain(assertion.value))}, expected at least {least:g}"
    return Outcome(holds, f1, "" if holds else f"{complaint}; the answer is {quoted(response.text)}")


def _is_fast(assertion: Assertion, response: AgentResponse) -> Outcome:
    latency_ms = response.latency_ms
    if latency_ms is not None and latency_ms < 0:
        return _outcome(None, f"a latency of {latency_ms:g} ms was reported")
    return _within(latency_ms, assertion.threshold, "no latency was measured", "ms")


def _is_cheap(assertion: Assertion, response: AgentResponse) -> Outcome:
    cost = response.usage.cost_usd if response.usage is not None else None
    if cost is not None and possible_cost(cost) is None:
        return _outcome(None, f"a cost of {cost:g} USD was reported")
    return _within(cost, assertion.threshold, "no cost was reported", "USD")


def _within(value: float | None, most: float | None, unknown: str, unit: str) -> Outcome:
    if value is None or most is None:
        return _outcome(None, unknown)
    return _outcome(not exceeds(value, most), f"{value:g} {unit}, expected at most {most:g} {unit}")


def _has_words(assertion: Assertion, response: AgentResponse) -> Outcome:
    bounds = _count_range(assertion.value)
    if bounds is None:
        return _outcome(None, "no number of words")
    words = sum(not is_blank(word) for word in response.text.split())
    low, high = bounds
    due = f"at least {low:,}" if high == math.inf else f"{low:,} to {high:,}" if low < high else f"{low:,}"
    return _outcome(low <= words <= high, f"{count_of(words, 'word')}, expected {due}")


def _has_reason(assertion: Assertion, response: AgentResponse) -> Outcome:
    if not response.finish_reason:
        return _outcome(None, "no finish reason was reported")
    complaint = f"the model stopped for {quoted(response.finish_reason)}, expected {quoted(str(assertion.value))}"
    return _outcome(response.finish_reason == str(assertion.value), complaint)


def _called(response: AgentResponse) -> list[str] | None:
    """Return the names of the called tools; None if the answer does not report its calls."""
    return None if response.tool_calls is None else [composed(call.name) for call in response.tool_calls]


def _uses_tools(assertion: Assertion, response: AgentResponse) -> Outcome:
    called, uses = _called(response), _tool_uses(assertion.value)
    if called is None or uses is None:
        return _outcome(None, _UNREPORTED)
    counts = Counter(called)
    used = [name for name, least, most in uses if least <= counts[name] <= most]
    # As in promptfoo, the negation of a list demands that none of the tools is used.
    holds = bool(used) if assertion.negate else len(used) == len(uses)
    wrong = [
        f"{name[:40]} called {count_of(counts[name], 'time')}, expected {_times(least, most)}"
        for name, least, most in uses
        if name not in used
    ]
    return _outcome(holds, f"{'; '.join(wrong[:3])} (called {_names(called)})")


def _calls_in_sequence(assertion: Assertion, response: AgentResponse) -> Outcome:
    called, steps = _called(response), _steps(assertion.value)
    if called is None or steps is None:
        return _outcome(None, _UNREPORTED)
    mode, names = steps
    calls = iter(called)
    holds = called == names if mode == "exact" else all(name in calls for name in names)
    how = "exactly" if mode == "exact" else "in this order"
    return _outcome(holds, f"called {_names(called)}, expected {how}: {listed(names)}")


def _calls_tools(assertion: Assertion, response: AgentResponse) -> Outcome:
    called = _called(response)
    if called is None:
        return _outcome(None, _UNREPORTED)
    tools, due = set(called), {composed(name) for name in _texts(assertion.value)}
    f1 = 2 * len(tools & due) / (len(tools) + len(due))
    least = 1.0 if assertion.threshold is None else assertion.threshold
    holds = meets(f1, least)
    complaint = f"F1 {f1:.3g}, expected at least {least:g}: called {_names(called)}, expected {listed(sorted(due))}"
    return Outcome(holds, f1, "" if holds else complaint)


def _names(called: Sequence[str]) -> str:
    return listed(called) or "no tool"


def _times(least: float, most: float) -> str:
    if most == math.inf:
        return f"at least {count_of(least, 'time')}"
    return f"at most {count_of(most, 'time')}" if least <= 0 else f"{least:g} to {most:g} times"


def _tool_uses(value: object) -> list[tuple[str, float, float]] | None:
    """Return tools with their least and most calls; None if the value has neither."""
    if isinstance(value, dict):
        name, least, most = value.get("name"), value.get("min", 1), value.get("max", math.inf)
        are_counts = all(isinstance(count, int | float) and not isinstance(count, bool) for count in (least, most))
        is_known = value.keys() <= {"name", "min", "max"} and are_counts
        return [(name, least, most)] if is_known and isinstance(name, str) and name else None
    names = [value] if isinstance(value, str) else value
    return [(name, 1, math.inf) for name in names] if _are_names(names) else None


def _steps(value: object) -> tuple[str, list[str]] | None:
    """Return a mode and the names of tools in order; None if the value is no such sequence."""
    mode, names = "in_order", value
    if isinstance(value, dict):
        mode, names = value.get("mode", mode), value.get("steps")
        if not value.keys() <= {"mode", "steps"} or mode not in ("in_order", "exact"):
            return None
    return (mode, names) if _are_names(names) else None


def _are_names(names: object) -> TypeGuard[list[str]]:
    return isinstance(names, list) and bool(names) and all(isinstance(name, str) and name.strip() for name in names)


def _count_range(value: object) -> tuple[float, float] | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value, value
    if isinstance(value, dict) and value.keys() <= {"min", "max"} and value:
        low, high = value.get("min", 0), value.get("max", math.inf)
        if all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high)):
            return low, high
    return None


CHECKS: Mapping[str, Check] = {
    "equals": Check("the answer is this text or JSON value", "any", _equals),
    "contains": Check("this text is in the answer", "text", _occurs(all, several=False)),
    "icontains": Check("the same without regard to case", "text", _occurs(all, folded=True, several=False)),
    "contains-all": Check("all of these texts are", "texts", _occurs(all)),
    "contains-any": Check("any of these texts is", "texts", _occurs(any)),
    "icontains-all": Check("all of these texts are, without regard to case", "texts", _occurs(all, folded=True)),
    "icontains-any": Check("any of these texts is, without regard to case", "texts", _occurs(any, folded=True)),
    "starts-with": Check("the answer begins with this text", "text", _begins),
    "regex": Check("this pattern (RE2's) is found in the answer", "pattern", _matches),
    "is-json": Check("the answer is JSON, and valid against a schema", "schema", _is_json),
    "contains-json": Check("the answer holds JSON, valid against a schema", "schema", _holds_json),
    "levenshtein": Check("at most `threshold` (5) edits make the answer this text", "text", _is_near),
    "rouge-n": Check("ROUGE-1 with this text is at least `threshold` (0.75)", "text", _overlaps),
    "latency": Check("the agent took at most `threshold` milliseconds", "limit", _is_fast),
    "cost": Check("the answer cost at most `threshold` US dollars", "limit", _is_cheap),
    "word-count": Check("the answer has this many words, or from `min` to `max`", "count", _has_words),
    "trajectory:tool-used": Check("this tool was called, or all of these", "tools", _uses_tools),
    "trajectory:tool-sequence": Check("these tools were called in this order", "steps", _calls_in_sequence),
    "tool-call-f1": Check("the F1 of the tools called and these is at least `threshold` (1)", "texts", _calls_tools),
    "finish-reason": Check("the model stopped for this reason", "text", _has_reason),
}
"""The checks of this module, by type."""
