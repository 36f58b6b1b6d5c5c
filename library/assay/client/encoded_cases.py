"""Cases in the form in which they are sent, kept from the check of a dataset to its upload."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import TYPE_CHECKING, Self

from assay.client.upload import upload_messages
from assay.errors import SetupError
from assay.v1 import case_pb2, dataset_pb2
from assay.wire.case import case_to_wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from types import TracebackType

    from assay.client.connection import Connection
    from assay.judging.recorded_verdicts import RecordedVerdicts
    from assay.model.case import Case
    from assay.model.stored_dataset import StoredDataset

_IN_MEMORY_BYTES = 1024 * 1024
_SIZE_BYTES = 4


class EncodedCases:
    """The messages of a dataset's cases, in order.

    What was checked is what is sent, without reading the file again. A temporary file takes over at 1 MiB, so that
    memory does not grow with the dataset.

    Args:
        recorded: Recorded verdicts, which are sent with the cases; None if there are none.
        in_memory_bytes: The size beyond which a temporary file holds the messages.
    """

    def __init__(self, recorded: RecordedVerdicts | None = None, *, in_memory_bytes: int = _IN_MEMORY_BYTES) -> None:
        self._recorded = recorded
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - `close` closes it
            max_size=in_memory_bytes, prefix="assay-cases-"
        )
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the messages."""
        self._file.close()

    def add(self, case: Case) -> None:
        """Append a case.

        Raises:
            SetupError: The temporary file cannot be written.
        """
        if self._recorded is not None:
            case = dataclasses.replace(case, verdicts=self._recorded.of(case))
        self._write(case_to_wire(case))

    def __iter__(self) -> Iterator[case_pb2.Case]:
        """Yield the messages, starting from the first one each time."""
        return (message for _, message in self._messages())

    async def upload(self, client: Connection, *, name: str, wanted: asyncio.Event | None = None) -> StoredDataset:
        """Store the cases as a dataset and return it.

        Args:
            client: The connection.
            name: The name of the dataset.
            wanted: Event that completes the upload; None completes it at once.

        Raises:
            DatasetError: A case was refused.
        """
        header = dataset_pb2.DatasetHeader(name=name)
        return await upload_messages(client, lambda: self, header, wanted=wanted)

    def shuffled(self, seed: int) -> EncodedCases:
        """Return the cases in the random order of a seed, each with its position in this order."""
        from assay.comparison.stopping import shuffled

        starts: list[int] = []
        case_ids: list[str] = []
        for start, message in self._messages():
            starts.append(start)
            case_ids.append(message.case_id)
        copy = EncodedCases()
        try:
            for place in shuffled(case_ids, seed):
                message = self._read(starts[place])
                message.place = place
                copy._write(message)
        except BaseException:
            copy.close()
            raise
        return copy

    def _write(self, message: case_pb2.Case) -> None:
        data = message.SerializeToString()
        try:
            self._file.write(len(data).to_bytes(_SIZE_BYTES) + data)
        except OSError as error:
            raise SetupError(
                f"the cases cannot be kept in {tempfile.gettempdir()} ({error.strerror}): free some space there, or "
                "set TMPDIR to another folder"
            ) from None
        self._size += _SIZE_BYTES + len(data)

    def _messages(self) -> Iterator[tuple[int, case_pb2.Case]]:
        start = 0
        while start < self._size:
            message = self._read(start)
            start, before = self._file.tell(), start
            yield before, message

    def _read(self, start: int) -> case_pb2.Case:
        self._file.seek(start)
        size = int.from_bytes(self._file.read(_SIZE_BYTES))
        return case_pb2.Case.FromString(self._file.read(size))
