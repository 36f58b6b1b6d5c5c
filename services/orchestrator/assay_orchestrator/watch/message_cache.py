"""Messages to watchers: watchers of a run are sent the same ones, which are made once."""

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
    """The latest messages to watchers: those that are sent the same snapshot or page of events share one message."""

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
        made = self._events.pop(key, None) or pb.WatchRunResponse(events=map(without_answer, step.events))
        _remember(self._events, key, made)
        return made

    def _snapshot(self, run_id: str, run: Run) -> pb.WatchRunResponse:
        known, made = self._snapshots.pop(run_id, (None, None))
        if made is None or known is not run:
            made = pb.WatchRunResponse(snapshot=RUN.to_wire(run))
        _remember(self._snapshots, run_id, (run, made))
        return made


def _remember(made: OrderedDict[K, V], key: K, value: V) -> None:
    made[key] = value
    if len(made) > _MAX_MESSAGES:
        made.popitem(last=False)
