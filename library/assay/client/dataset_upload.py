"""Upload of a run's dataset, started while the orchestrator is still starting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.errors import UnavailableError
from assay.judging.recorded_verdicts import CasesWithVerdicts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.client.client import Client
    from assay.datasets import Dataset, DatasetInfo
    from assay.model.case import Case
    from assay.model.stored_dataset import StoredDataset
    from assay.specs.model import Spec


class DatasetUpload:
    """Sends the cases as soon as a connection exists, and completes the upload on request.

    An incomplete upload leaves no dataset: the orchestrator discards what it has stored.

    Args:
        spec: Spec of the run.
        dataset: The checked cases, which are read again while they are sent.
        info: Description of the dataset.
    """

    def __init__(self, spec: Spec, dataset: Dataset, info: DatasetInfo) -> None:
        recorded = spec.recorded_verdicts
        self.cases: Iterable[Case] = dataset if recorded is None else CasesWithVerdicts(dataset, recorded)
        self._info = info
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[StoredDataset] | None = None

    def begin(self, client: Client) -> None:
        """Start sending in the background."""
        self._task = asyncio.create_task(self._send(client))

    async def finish(self, client: Client) -> StoredDataset:
        """Complete the upload and return the stored dataset; restart an upload that failed or never started.

        Raises:
            DatasetError: A case was refused, or the cases cannot be read.
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
        """Abort an incomplete upload."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self, client: Client) -> StoredDataset:
        return await client.upload_dataset(self.cases, name=self._info.name, wanted=self._wanted)
