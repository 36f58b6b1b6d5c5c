"""Conversion of intervals, as pairs of numbers, to protobuf messages and back."""

from __future__ import annotations

from collections.abc import Sequence

from assay.model.interval import Interval
from assay.v1 import summary_pb2 as pb


class IntervalConverter:
    """Converts a pair of lower and upper end."""

    def to_wire(self, interval: tuple[float, float]) -> pb.Interval:
        """Return the message."""
        return pb.Interval(low=interval[0], high=interval[1])

    def from_wire(self, message: pb.Interval) -> Interval:
        """Return the pair."""
        return Interval(message.low, message.high)

    def from_json(self, value: Sequence[float]) -> Interval:
        """Return the pair from a stored list."""
        return Interval(*value)


INTERVAL = IntervalConverter()
