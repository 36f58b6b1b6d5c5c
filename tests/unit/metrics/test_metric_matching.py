"""Matching of sources and tool calls: the same results as comparing every pair, without comparing every pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core import call_matching, source_matching
from assay.metrics.core.score import Row
from assay.metrics.core.source_matching import first_match
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall
from assay.model.case import Case, ExpectedTool, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.metrics.core.score import Metric

_NAMES = st.sampled_from(
    [
        "", " ", "Tender 42", "tender_42", "TENDER  42", "b", "http://a.org/b", "https://www.a.org/b/", "a.org/b",
        "http://a.org/x/Tender%2042", "http://c.org/b?q=1", "http://[draft]", "http://a.org", "http://a.org:8080/b",
    ]
)  # fmt: skip
_VALUES = st.sampled_from([1, 1.0, True, 0, False, None, "1", [1], [True], {"x": 1}, {"x": 1.0}])
_ARGUMENTS = st.dictionaries(st.sampled_from("ab"), _VALUES, max_size=2)
_TEXTS = st.sampled_from(
    ["", "{}", '{"a": 1}', '{"a": true}', '{"a": 1.0, "b": 1}', '{"b": [1]}', "[1]", "no JSON", '{"b": {"x": 1}}']
)
_CALLS = st.lists(st.builds(ToolCall, name=st.sampled_from("fg"), arguments_json=_TEXTS), max_size=8)
_EXPECTED = st.lists(
    st.builds(
        ExpectedTool,
        name=st.sampled_from("fg"),
        arguments=st.none() | _ARGUMENTS,
        match=st.sampled_from(["name", "subset", "exact", "unordered"]),
    ),
    min_size=1,
    max_size=8,
)


def _first_match_by_pairs(expected: Sequence[str], retrieved: Sequence[Source], k: int | None) -> int | None:
    """Return what `first_match` did when it compared every pair."""

    def same(first: source_matching._Key, second: source_matching._Key) -> bool:
        if first.address and second.address:
            return first.address == second.address
        return first.text != "" and first.text == second.text

    keys = [source_matching._key(name) for name in expected]
    for position, source in enumerate(retrieved[:k], 1):
        names = [source_matching._key(name) for name in (source.title, source.uri, source.id) if name]
        if any(same(name, key) for name in names for key in keys):
            return position
    return None


def is_expected(call: call_matching.Call, expected: ExpectedTool) -> bool:
    """Return whether a call is the expected one."""
    return call.name == expected.name and call_matching.argument_test(expected)(call)


def _matched_by_pairs(calls: Sequence[call_matching.Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return what the matching in any order was when it compared every pair."""
    holder: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for position, call in enumerate(calls):
            if position in tried or not is_expected(call, expected[index]):
                continue
            tried.add(position)
            if position not in holder or place(holder[position], tried):
                holder[position] = index
                return True
        return False

    return {index for index in range(len(expected)) if place(index, set())}


def _in_order_by_pairs(calls: Sequence[call_matching.Call], expected: Sequence[ExpectedTool]) -> set[int]:
    """Return what the matching in order was when it compared every pair twice."""
    matches = is_expected
    rows = [[0] * (len(calls) + 1) for _ in range(len(expected) + 1)]
    for i in range(len(expected) - 1, -1, -1):
        for j in range(len(calls) - 1, -1, -1):
            skipped = max(rows[i + 1][j], rows[i][j + 1])
            rows[i][j] = max(skipped, 1 + rows[i + 1][j + 1]) if matches(calls[j], expected[i]) else skipped
    made, i, j = set(), 0, 0
    while i < len(expected) and j < len(calls):
        if matches(calls[j], expected[i]) and rows[i][j] == 1 + rows[i + 1][j + 1]:
            made.add(i)
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return made


@given(
    expected=st.lists(_NAMES, max_size=5),
    retrieved=st.lists(st.builds(Source, id=_NAMES, title=_NAMES, uri=_NAMES), max_size=5),
    k=st.none() | st.integers(1, 6),
)
def test_sources_match_as_by_comparing_every_pair(expected: list[str], retrieved: list[Source], k: int | None) -> None:
    """Looking names up gives the position that comparing every pair gave."""
    assert first_match(expected, retrieved, k) == _first_match_by_pairs(expected, retrieved, k)


@given(calls=_CALLS, expected=_EXPECTED)
def test_calls_match_as_by_comparing_every_pair(calls: list[ToolCall], expected: list[ExpectedTool]) -> None:
    """Matching kinds of calls gives the expected calls that matching single ones gave, in any order and in order."""
    read = [call_matching.Call(call) for call in calls]
    assert call_matching.matched(read, expected) == _matched_by_pairs(read, expected)
    assert call_matching.matched_in_order(read, expected) == _in_order_by_pairs(read, expected)


class _Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return str.__eq__(self, other)


def test_names_are_looked_up_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of 500 expected and 500 retrieved sources: 250,000 comparisons became a look-up each."""
    real = source_matching._folded
    monkeypatch.setattr(source_matching, "_folded", lambda text: _Counted(real(text)))
    source_matching._remembered_key.cache_clear()
    _Counted.compared = 0

    assert first_match([f"e{i}" for i in range(500)], [Source(title=f"s{i}") for i in range(500)]) is None

    source_matching._remembered_key.cache_clear()
    assert _Counted.compared < 5_000


@pytest.mark.parametrize("trajectory", call_matching.TRAJECTORIES)
def test_equal_calls_are_compared_once(
    trajectory: str, metric: Callable[..., Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand equal expectations and five hundred equal calls are one pair: comparing all was 10 s."""
    compared: list[call_matching.Call] = []
    real = call_matching.argument_test

    def argument_test(expected: ExpectedTool) -> Callable[[call_matching.Call], bool]:
        test = real(expected)

        def counted(call: call_matching.Call) -> bool:
            compared.append(call)
            return test(call)

        return counted

    monkeypatch.setattr(call_matching, "argument_test", argument_test)
    tool = ExpectedTool("f", {"a": 1}, "subset")
    case = Case("c", (Turn("q", expected_tools=(tool,) * 1000),))
    response = AgentResponse(tool_calls=(ToolCall("f", arguments_json='{"a": 1, "b": 2}'),) * 500)

    score = metric("tool_calls", trajectory=trajectory).score(Row(case, response))

    assert score.value == 0.5
    # Where the order is wrong, the sentence about it matches the calls in any order, too.
    assert len(compared) == (2 if trajectory in call_matching.IN_ORDER else 1)


def test_a_long_chain_of_moves_is_made(metric: Callable[..., Metric]) -> None:
    """Making room for the last expected call moves all others by one."""
    count = 400
    calls = [ToolCall("f", arguments_json=f'{{"a{i}": 1, "a{i + 1}": 1}}') for i in range(count)]
    calls.append(ToolCall("f", arguments_json=f'{{"a{count}": 1}}'))
    expected = tuple(ExpectedTool("f", {f"a{i}": 1}, "subset") for i in range(count, -1, -1))
    case = Case("c", (Turn("q", expected_tools=expected),))

    score = metric("tool_calls").score(Row(case, AgentResponse(tool_calls=tuple(calls))))

    assert score.value == 1.0
