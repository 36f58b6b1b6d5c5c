"""Upload of a dataset: a header, then batches of cases within the message limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from assay.v1 import case_pb2, dataset_pb2, dataset_pb2_grpc
from assay.wire.run import DATASET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from assay.client.connection import Connection
    from assay.model.stored_dataset import StoredDataset

_UPLOAD_TIMEOUT_S = 3600.0
_BATCH_BYTES = 1024 * 1024
_BATCH_CASES = 1_000


async def upload_messages(
    client: Connection,
    read_cases: Callable[[], Iterable[case_pb2.Case]],
    header: dataset_pb2.DatasetHeader,
    *,
    repeatable: bool = True,
    wanted: asyncio.Event | None = None,
) -> StoredDataset:
    """Store a dataset and return it.

    Args:
        client: The connection.
        read_cases: Returns the messages of the cases, from the first one.
        header: Description of the dataset.
        repeatable: Whether the cases can be read again after a lost connection.
        wanted: Event that completes the upload: the dataset is stored once it is set; None stores it at once.

    Raises:
        DatasetError: A case was refused, or the cases cannot be read.
    """
    unreadable: list[Exception] = []

    async def send(stub: dataset_pb2_grpc.DatasetServiceAsyncStub) -> dataset_pb2.UploadDatasetResponse:
        parts = upload_parts(read_cases(), header, unreadable, wanted)
        try:
            return await stub.UploadDataset(parts, timeout=_UPLOAD_TIMEOUT_S)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            if unreadable:  # gRPC reports only a cancelled call
                raise unreadable[0] from None
            raise

    response = await client.call(dataset_pb2_grpc.DatasetServiceStub, send, repeatable=repeatable)
    return DATASET.from_wire(response.dataset)


async def upload_parts(
    cases: Iterable[case_pb2.Case],
    header: dataset_pb2.DatasetHeader,
    unreadable: list[Exception],
    wanted: asyncio.Event | None = None,
) -> AsyncIterator[dataset_pb2.UploadDatasetRequest]:
    """Yield the parts of an upload.

    Args:
        cases: The messages of the cases, read while they are sent.
        header: Description of the dataset.
        unreadable: Collects errors from reading the cases, which gRPC would replace by its own error.
        wanted: Event that completes the upload; None completes it at once.
    """
    yield dataset_pb2.UploadDatasetRequest(header=header)
    batch: list[case_pb2.Case] = []
    size = 0
    for message in _noting_problems(cases, unreadable):
        own = message.ByteSize()
        if batch and (size + own > _BATCH_BYTES or len(batch) >= _BATCH_CASES):
            yield dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=batch))
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=batch))
    if wanted is not None:
        await wanted.wait()


def _noting_problems(cases: Iterable[case_pb2.Case], problems: list[Exception]) -> Iterator[case_pb2.Case]:
    try:
        yield from cases
    except Exception as problem:
        problems.append(problem)
        raise
