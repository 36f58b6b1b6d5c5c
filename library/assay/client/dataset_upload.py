"""The upload of a run's dataset, begun while the orchestrator still starts."""

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
    from assay.model.run import DatasetRef
    from assay.specs.model import Spec


class DatasetUpload:
    """Sends the cases as soon as a connection is there, and ends the upload once they are wanted.

    Until then the orchestrator keeps no dataset: it discards what an upload that breaks off has stored.

    Args:
        spec: The spec of the run.
        dataset: Its cases, checked; they are read again while they are sent.
        info: What the dataset is.
    """

    def __init__(self, spec: Spec, dataset: Dataset, info: DatasetInfo) -> None:
        recorded = spec.recorded_verdicts
        self.cases: Iterable[Case] = dataset if recorded is None else CasesWithVerdicts(dataset, recorded)
        self._info = info
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[DatasetRef] | None = None

    def begin(self, client: Client) -> None:
        """Begin to send, without waiting for anything."""
        self._task = asyncio.create_task(self._send(client))

    async def finish(self, client: Client) -> DatasetRef:
        """Return the stored dataset, sent from the beginning where that has not begun, or broke off.

        Raises:
            DatasetError: A case was refused, or the cases cannot be read.
        """
        self._wanted.set()
        begun, self._task = self._task, None
        if begun is not None:
            try:
                return await begun
            except UnavailableError:
                pass  # the orchestrator ended while it started, and was started again
        return await self._send(client)

    async def aclose(self) -> None:
        """Break off an upload that was not finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self, client: Client) -> DatasetRef:
        name, format_name = self._info.name, self._info.format
        return await client.upload_dataset(self.cases, name=name, format=format_name, wanted=self._wanted)
