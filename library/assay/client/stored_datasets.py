"""Datasets on an orchestrator: get, list, read and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.connection import PAGE_TIMEOUT_S
from assay.errors import NotFoundError
from assay.v1 import dataset_pb2 as pb
from assay.v1.dataset_pb2_grpc import DatasetServiceStub
from assay.wire.case import case_from_wire
from assay.wire.run import DATASET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.client.connection import Connection
    from assay.model.case import Case
    from assay.model.stored_dataset import StoredDataset

_PAGE_SIZE = 500
_DELETE_TIMEOUT_S = 600.0


async def get_dataset(client: Connection, dataset_id: str) -> StoredDataset:
    """Return a dataset; see `Client.get_dataset`."""
    request = pb.GetDatasetRequest(dataset_id=dataset_id)
    return DATASET.from_wire((await client.call(DatasetServiceStub, lambda stub: stub.GetDataset(request))).dataset)


async def list_datasets(client: Connection, limit: int, name: str) -> list[StoredDataset]:
    """Return datasets; see `Client.list_datasets`."""
    stored: list[StoredDataset] = []
    token = ""
    while len(stored) < limit:
        request = pb.ListDatasetsRequest(name=name, page_size=min(_PAGE_SIZE, limit - len(stored)), page_token=token)
        page = await client.call(DatasetServiceStub, lambda stub: stub.ListDatasets(request))  # noqa: B023
        stored += map(DATASET.from_wire, page.datasets)
        token = page.next_page_token
        if not token:
            break
    return stored


async def list_cases(client: Connection, dataset_id: str) -> AsyncIterator[Case]:
    """Yield the cases of a dataset; see `Client.list_cases`."""
    token = ""
    while True:
        request = pb.ListCasesRequest(dataset_id=dataset_id, page_size=_PAGE_SIZE, page_token=token)
        page = await client.call(
            DatasetServiceStub,
            lambda stub: stub.ListCases(request, timeout=PAGE_TIMEOUT_S),  # noqa: B023
        )
        for message in page.cases:
            yield case_from_wire(message)
        token = page.next_page_token
        if not token:
            return


async def delete_dataset(client: Connection, dataset_id: str, *, validate_only: bool) -> StoredDataset:
    """Delete a dataset; see `Client.delete_dataset`."""
    stored = await _delete(client, dataset_id, validate_only=True)
    if validate_only:
        return stored
    try:
        return await _delete(client, dataset_id, validate_only=False)
    except NotFoundError:
        return stored  # an earlier attempt, whose response was lost, or another client has deleted it


async def _delete(client: Connection, dataset_id: str, *, validate_only: bool) -> StoredDataset:
    request = pb.DeleteDatasetRequest(dataset_id=dataset_id, validate_only=validate_only)
    response = await client.call(
        DatasetServiceStub, lambda stub: stub.DeleteDataset(request, timeout=_DELETE_TIMEOUT_S)
    )
    return DATASET.from_wire(response.dataset)
