from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_embedder.models.encoder import Tokens
from assay_embedder.queues.admission import LEAST_SHARE, Admission, Load
from assay_embedder.queues.fair_queue import FairQueue
from assay_embedder.queues.jobs import Job
from assay_embedder.queues.ready_queue import Piece, ReadyQueue

SIZES = st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=40)


def job(scope: str, tokens: int, text: str = "") -> Job:
    return Job(b"", text, scope, False, tokens, 0.0)


def pieces(lengths: list[int]) -> list[Piece]:
    return [Piece(job("", length), Tokens([0] * length, [0] * length, False)) for length in lengths]


@given(scopes=st.dictionaries(st.sampled_from("abcd"), SIZES, min_size=1), quantum=st.integers(1, 60))
def test_scopes_get_equal_shares_in_order(scopes: dict[str, list[int]], quantum: int) -> None:
    """While two scopes wait, neither is ahead by more than a turn and a text; within a scope the first comes first."""
    queue = FairQueue(quantum)
    added = {scope: [job(scope, size) for size in sizes] for scope, sizes in scopes.items()}
    for jobs in added.values():
        queue.add(jobs)
    served = dict.fromkeys(scopes, 0)
    taken: dict[str, list[Job]] = {scope: [] for scope in scopes}
    while queue:
        turn = queue.take()
        scope = turn[0].scope
        assert {each.scope for each in turn} == {scope}
        taken[scope] += turn
        served[scope] += sum(each.estimated_tokens for each in turn)
        waiting = [served[each] for each in scopes if len(taken[each]) < len(added[each])]
        if len(waiting) > 1:
            assert max(waiting) - min(waiting) <= quantum + 2 * 50
    assert taken == added


def test_scope_pays_for_what_was_estimated_too_low() -> None:
    """Texts whose word pieces are many more than their characters promise do not cheat the other scopes."""
    queue = FairQueue(10)
    for scope in "ab":
        queue.add([job(scope, 10) for _ in range(20)])
    order = []
    for _ in range(8):
        (each,) = queue.take()
        order.append(each.scope)
        queue.charge(each.scope, 20 if each.scope == "a" else 0)  # each of a has 30 in truth
    assert order.count("b") == 3 * order.count("a")


def test_scope_that_comes_back_still_owes() -> None:
    """A scope that submits long texts one by one gets no more than its share."""
    queue, served = FairQueue(10), {"long": 0, "short": 0}
    queue.add([job("short", 10) for _ in range(2_000)])
    queue.add([job("long", 200)])
    for _ in range(1_000):
        (each,) = queue.take()
        served[each.scope] += each.estimated_tokens
        if each.scope == "long":
            queue.add([job("long", 200)])
    assert abs(served["long"] - served["short"]) <= 220


def test_nothing_is_owed_where_no_other_waited() -> None:
    """What a scope took while the queue was its own delays it no more than any other afterwards."""
    queue = FairQueue(10)
    queue.add([job("a", 1_000)])
    assert queue.take()
    queue.add([job("a", 10)])
    queue.add([job("b", 10)])
    assert [queue.take()[0].scope for _ in "ab"] == ["a", "b"]
    assert not queue


def test_removed_job_is_not_taken() -> None:
    """A job abandoned while it waits is removed; a scope without jobs takes no turn."""
    queue = FairQueue(10)
    kept, gone = job("a", 1), job("b", 1)
    queue.add([kept])
    queue.add([gone])
    assert queue.remove(gone)
    assert not queue.remove(gone)
    assert queue.take() == [kept]
    assert not queue
    assert queue.take() == []


@given(lengths=SIZES, budget=st.integers(1, 100), idle=st.integers(1, 4))
def test_packed_runs_are_cut_in_order_within_the_budget(lengths: list[int], budget: int, idle: int) -> None:
    """Every piece once, in order of arrival; no run over the budget; few pieces are divided over the idle workers."""
    queue = ReadyQueue(budget_tokens=budget, packed=True, worker_count=idle)
    queue.add(pieces(lengths))
    first = queue.take(idle)
    assert len(first) == 1 or sum(piece.length for piece in first) <= -(-sum(lengths) // idle)
    runs = [first]
    while queue:
        runs.append(queue.take())
    assert [piece.length for run in runs for piece in run] == lengths
    assert all(len(run) == 1 or sum(piece.length for piece in run) <= budget for run in runs)
    for run, following in pairwise(runs[1:]):
        assert sum(piece.length for piece in run) + following[0].length > budget  # full, as far as texts allow
    assert queue.has_room


@given(lengths=SIZES, budget=st.integers(1, 100))
def test_padded_runs_are_sorted_within_the_budget(lengths: list[int], budget: int) -> None:
    """Every piece once, the longest first; padding counts."""
    queue = ReadyQueue(budget_tokens=budget, packed=False, worker_count=1)
    queue.add(pieces(lengths))
    runs = []
    while queue:
        runs.append([piece.length for piece in queue.take()])
    assert [length for run in runs for length in run] == sorted(lengths, reverse=True)
    assert all(len(run) == 1 or run[0] * len(run) <= budget for run in runs)


def test_abandoned_pieces_cost_no_budget() -> None:
    """Texts whose callers have left make no run smaller."""
    queue = ReadyQueue(budget_tokens=10, packed=True, worker_count=1)
    added = pieces([10, 5, 5])
    added[0].job.abandoned = True
    queue.add(added)
    assert queue.take() == added


LOADS = st.builds(Load, st.integers(1, 600), st.integers(0, 10_000), st.integers(0, 10_000))


@given(requests=st.lists(st.tuples(st.sampled_from("abcdef"), LOADS), max_size=60))
def test_flood_of_one_scope_leaves_room_for_others(requests: list[tuple[str, Load]]) -> None:
    """A scope with nothing waiting is admitted unless all together fill four times the limit; counts return to zero."""
    limit = Load(2_000, 10**6, 10**6)
    admission = Admission(limit)
    admitted = []
    for scope, load in requests:
        if admission.admits(scope, load):
            admission.add(scope, load)
            admitted.append((scope, load))
        elif not admission.waiting(scope).texts:
            assert (admission.total + load).texts > 4 * limit.texts
        else:
            assert (admission.waiting(scope) + load).texts > LEAST_SHARE.texts
    for scope, load in admitted:
        admission.release(scope, load)
    assert admission.total == Load()
    assert not any(admission.waiting(scope).texts for scope in "abcdef")


@pytest.mark.parametrize("load", [Load(1, 101, 0), Load(1, 0, 101), Load(101, 0, 0)])
def test_limit_counts_texts_characters_and_word_pieces(load: Load) -> None:
    """Few long texts fill the queue as many short ones do; the first request of a scope is always taken."""
    admission = Admission(Load(100, 100, 100))
    assert admission.admits("a", load)
    admission.add("a", Load(1, 1, 1))
    assert not admission.admits("a", load - Load(1, 1, 1) if load.texts > 100 else load)
    assert admission.admits("b", load)
