"""What watchers of a run are handed from memory."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run import RowResult, RunState, Score, ScoreStatus, StateChanged
from assay.v1 import run_pb2 as pb
from assay.wire.run import event_to_wire
from assay_orchestrator.runs.peers import Peers
from assay_orchestrator.watch.notifier import Notifier

RUN = "r"


def events(*sequences: int) -> list[pb.RunEvent]:
    return [
        event_to_wire(StateChanged(sequence, RunState.RUNNING, "", "2026-01-01T00:00:00Z")) for sequence in sequences
    ]


def large_row(sequence: int, chars: int) -> RowResult:
    score = Score("m", ScoreStatus.ERROR, reason="e", message="\u6570" * chars)
    return RowResult("c", 0, 1, "", AgentStatus.SUCCESS, None, (score,), None, "", sequence=sequence)


@given(
    standing=st.sets(st.integers(1, 40), min_size=1),
    pages=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12))),
    after=st.integers(0, 41),
)
def test_nothing_is_left_out_whatever_was_read(standing: set[int], pages: list[tuple[int, int]], after: int) -> None:
    """Pages come in any order and overlap, and rows may have been set aside: what memory has follows on."""
    notifier = Notifier()
    notifier.subscribe(RUN)
    for start, count in pages:
        notifier.cache_events(RUN, events(*[number for number in sorted(standing) if number > start][:count]))
    sequences = [event.sequence for event in notifier.recent_events(RUN, after, 5)]
    assert sequences == list(range(after + 1, after + 1 + len(sequences)))
    assert standing.issuperset(sequences)


def test_what_was_read_for_one_is_there_for_others() -> None:
    """Memory grows at its end; an older page does not take anything from it, and a newer one begins anew."""
    notifier = Notifier()
    notifier.cache_events(RUN, events(1, 2))  # nobody watches
    assert notifier.recent_events(RUN, 0, 9) == []
    flag = notifier.subscribe(RUN)
    notifier.cache_events(RUN, events(1, 2, 3))
    notifier.cache_events(RUN, events(2, 3, 4, 5))
    notifier.cache_events(RUN, events(4, 5))
    notifier.cache_events(RUN, events(1, 2))
    assert notifier.recent_events(RUN, 0, 9) == events(1, 2, 3, 4, 5)
    assert notifier.recent_events(RUN, 3, 1) == events(4)
    notifier.cache_events(RUN, events(9, 10))
    assert notifier.recent_events(RUN, 3, 9) == []
    assert notifier.recent_events(RUN, 8, 9) == events(9, 10)
    assert notifier.unsubscribe(RUN, flag) is False
    assert notifier.recent_events(RUN, 8, 9) == []


def test_rows_are_kept_with_answers_by_the_bytes_that_they_take() -> None:
    """A page of 500 rows is one message: 2,000 characters of Chinese are 6 kB, and no longer a short answer."""
    notifier = Notifier()
    notifier.subscribe(RUN)
    for number, character in enumerate("x\u6570", 1):
        answer = AgentResponse(text=character * 2_000)
        row = RowResult("c", 0, 1, "", AgentStatus.SUCCESS, True, (), None, "", sequence=number, response=answer)
        notifier.publish(RUN, [row])
    short, long = (event.row_finished for event in notifier.recent_events(RUN, 0, 9))
    assert (short.HasField("response"), long.HasField("response")) == (True, False)


def test_a_page_from_memory_fits_in_a_message_whatever_scores_take() -> None:
    """Rows keep their scores where their answers are too long to be kept: 90 of 81 kB are more than 4 MiB."""
    notifier = Notifier()
    notifier.subscribe(RUN)
    for number in range(1, 91):
        notifier.publish(RUN, [large_row(number, 27_000)])
    seen: list[int] = []
    while page := notifier.recent_events(RUN, len(seen), 500):
        assert pb.WatchRunResponse(events=page).ByteSize() < 4 * 1024**2
        seen += [event.sequence for event in page]
    assert seen == list(range(1, 91))


def test_memory_is_bounded_whatever_scores_take() -> None:
    """Of rows of 81 kB the last 98 are kept, in all 8 MB; a row that is larger is read from the store."""
    notifier = Notifier()
    notifier.subscribe(RUN)
    for number in range(1, 151):
        notifier.publish(RUN, [large_row(number, 27_000)])
    assert notifier.recent_events(RUN, 51, 1) == []
    assert [event.sequence for event in notifier.recent_events(RUN, 52, 1)] == [53]
    notifier.publish(RUN, [large_row(151, 3_000_000)])
    assert notifier.recent_events(RUN, 150, 1) == []


class _Stage:
    """All that is followed: nothing. A wait within it loses the first cancellation, as one for a connection may."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def read(self, _: object) -> list[object]:
        return []

    async def find_lost(self, _: object) -> list[object]:
        self.waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return []

    def local_runs(self) -> set[str]:
        return set()

    def watcher_count(self) -> int:
        return 0


async def test_a_stop_ends_though_a_cancellation_is_lost() -> None:
    """The loop that goes on regardless is told again."""
    stage = cast("Any", _Stage())
    peers = Peers(stage, stage, stage, stage, reconcile_s=1e6)
    peers.start()
    await stage.waits.wait()
    await peers.aclose()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("follow", "look"))]


def test_a_watcher_reads_nothing_when_nothing_can_have_followed() -> None:
    """Published rows that follow on keep the last event known; every other change may have added events unseen."""
    notifier = Notifier()
    notifier.subscribe(RUN)
    assert notifier.has_later(RUN, 0)
    notifier.note_last(RUN, notifier.version(RUN), 3)
    assert not notifier.has_later(RUN, 3)
    notifier.publish(RUN, [large_row(4, 1), large_row(5, 1)])
    assert (notifier.has_later(RUN, 4), notifier.has_later(RUN, 5)) == (True, False)
    notifier.publish(RUN, [large_row(8, 1)])  # another process has stored 6 and 7
    assert notifier.has_later(RUN, 8)
    before = notifier.version(RUN)
    notifier.notify(RUN)
    notifier.note_last(RUN, before, 8)  # read before the change
    assert notifier.has_later(RUN, 8)
