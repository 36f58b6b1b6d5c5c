"""Upload of a run's dataset, started while the orchestrator is still starting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.errors import UnavailableError

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.client.encoded_cases import EncodedCases
    from assay.datasets import DatasetInfo
    from assay.model.stored_dataset import StoredDataset


class DatasetUpload:
    """Sends the cases as soon as a connection exists, and completes the upload on request.

    An incomplete upload leaves no dataset: the orchestrator discards what it has stored.

    Args:
        cases: The checked cases; `aclose` closes them.
        info: Description of the dataset.
    """

    def __init__(self, cases: EncodedCases, info: DatasetInfo) -> None:
        self.cases = cases
        self._info = info
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[StoredDataset] | None = None

    def begin(self, client: Client) -> None:
        """Start sending in the background."""
        self._task = asyncio.create_task(self._send(client))

    async def finish(self, client: Client) -> StoredDataset:
        """Complete the upload and return the stored dataset; restart an upload that failed or never started.

        Raises:
            DatasetError: A case was refused.
        """
        self._wanted.set()
        begun, self._task = self._task, None
        if begun is not None:
            try:
                return await begun
            except UnavailableError:
                pass  # the orchestrator exited during its start and was restarted
        return await self._send(client)

    async def aclose(self) -> None:
        """Abort an incomplete upload, and delete the encoded cases."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.cases.close()

    async def _send(self, client: Client) -> StoredDataset:
        return await self.cases.upload(client, name=self._info.name, wanted=self._wanted)
