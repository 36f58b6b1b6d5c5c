"""A cache of messages to watchers: the watchers of a run receive the same messages, which are built once."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from assay.v1 import orchestrator_pb2 as pb
from assay.wire.run import RUN, without_answer

if TYPE_CHECKING:
    from assay.model.run import Run
    from assay_orchestrator.watch.watches import Step

_MAX_MESSAGES = 16

K = TypeVar("K")
V = TypeVar("V")


class WatchMessageCache:
    """The latest messages to watchers; watchers at the same snapshot or page of events share one message."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[str, tuple[Run, pb.WatchRunResponse]] = OrderedDict()
        self._events: OrderedDict[tuple[str, int, int, int], pb.WatchRunResponse] = OrderedDict()

    def message(self, run_id: str, step: Step, *, with_answers: bool) -> pb.WatchRunResponse:
        """Return the message of a step of a watch."""
        if step.snapshot is not None:
            return self._snapshot(run_id, step.snapshot)
        if not step.events:
            return pb.WatchRunResponse(bookmark_sequence=step.before)
        if with_answers:
            return pb.WatchRunResponse(events=step.events)
        key = (run_id, step.before, step.events[-1].sequence, len(step.events))
        message = self._events.pop(key, None) or pb.WatchRunResponse(events=map(without_answer, step.events))
        _remember(self._events, key, message)
        return message

    def _snapshot(self, run_id: str, run: Run) -> pb.WatchRunResponse:
        cached_run, message = self._snapshots.pop(run_id, (None, None))
        if message is None or cached_run is not run:
            message = pb.WatchRunResponse(snapshot=RUN.to_wire(run))
        _remember(self._snapshots, run_id, (run, message))
        return message


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    if len(cache) > _MAX_MESSAGES:
        cache.popitem(last=False)
