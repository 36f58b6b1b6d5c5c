"""Messages of an upload: a header, then batches of cases within the message limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.v1 import case_pb2, dataset_pb2
from assay.wire.case import case_to_wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterable, Iterator

    from assay.model.case import Case

_BATCH_BYTES = 1024 * 1024
_BATCH_CASES = 1_000


async def upload_parts(
    cases: Iterable[Case],
    header: dataset_pb2.DatasetHeader,
    unreadable: list[Exception],
    wanted: asyncio.Event | None = None,
) -> AsyncIterator[dataset_pb2.UploadDatasetRequest]:
    """Yield the messages.

    Args:
        cases: The cases, read while they are sent.
        header: Description of the dataset.
        unreadable: Collects errors from reading the cases, which gRPC would replace by its own error.
        wanted: Event that completes the upload; None completes it at once.
    """
    yield dataset_pb2.UploadDatasetRequest(header=header)
    batch: list[case_pb2.Case] = []
    size = 0
    for case in _noting_problems(cases, unreadable):
        message = case_to_wire(case)
        if batch and (size + message.ByteSize() > _BATCH_BYTES or len(batch) >= _BATCH_CASES):
            yield dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=batch))
            batch, size = [], 0
        batch.append(message)
        size += message.ByteSize()
    if batch:
        yield dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=batch))
    if wanted is not None:
        await wanted.wait()


def _noting_problems(cases: Iterable[Case], problems: list[Exception]) -> Iterator[Case]:
    try:
        yield from cases
    except Exception as problem:
        problems.append(problem)
        raise
