"""The cases of a dataset in the random order of a comparison that may stop early."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from typing import IO, TYPE_CHECKING

from assay.comparison.stopping import shuffled
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.case import case_from_wire, case_to_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from assay.model.case import Case


class ShuffledCases:
    """Cases in random order with their positions in the dataset; can be iterated repeatedly.

    Args:
        file: File with the messages of the cases.
        spans: Start and end of each message, in the order of the dataset.
        order: Positions in the dataset, in the random order.
    """

    def __init__(self, file: IO[bytes], spans: Sequence[tuple[int, int]], order: Sequence[int]) -> None:
        self._file = file
        self._spans = spans
        self._order = order

    def __iter__(self) -> Iterator[Case]:
        """Yield the cases."""
        for place in self._order:
            start, end = self._spans[place]
            self._file.seek(start)
            yield case_from_wire(pb.Case.FromString(self._file.read(end - start)))


@contextlib.contextmanager
def shuffled_cases(cases: Iterable[Case], seed: int) -> Iterator[ShuffledCases]:
    """Yield the cases in the random order of a seed, stored in a temporary file."""
    with tempfile.TemporaryFile(prefix="assay-cases-") as file:
        spans: list[tuple[int, int]] = []
        case_ids: list[str] = []
        for place, case in enumerate(cases):
            start = file.tell()
            file.write(case_to_wire(dataclasses.replace(case, place=place)).SerializeToString())
            spans.append((start, file.tell()))
            case_ids.append(case.case_id)
        yield ShuffledCases(file, spans, shuffled(case_ids, seed))
