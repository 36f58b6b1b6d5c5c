"""DatasetService on the wire: checks, hashes and stores a dataset as it arrives."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING

from assay.datasets.cases.case_rules import case_problems, excess
from assay.errors import DatasetError, Problem, first_problems
from assay.model.limits import MAX_BYTES_PER_CHAR, MAX_CASE_BYTES
from assay.model.run import DatasetRef
from assay.parsing.names import name_problem
from assay.process.failpoints import failpoint
from assay.v1 import case_pb2, dataset_pb2, dataset_pb2_grpc
from assay.wire.case import case_from_wire
from assay.wire.run import DATASET
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.teams import audit, quotas, tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import sqlalchemy as sa

    from assay.model.case import Case
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database

_UPLOAD_BATCH = 500
_MAX_PROBLEMS = 50
_MAX_DATASET_NAME_CHARS = 4096  # the value is, or once was, a file's path
_MAX_PLAIN_BYTES = MAX_CASE_BYTES // MAX_BYTES_PER_CHAR  # a smaller message stays within the limit as JSON


class DatasetService(dataset_pb2_grpc.DatasetServiceServicer):
    """Stores datasets.

    Args:
        database: The store.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, database: Database, scope: Scope | None) -> None:
        self._database = database
        self._fixed_scope = scope

    async def UploadDataset(
        self, request_iterator: AsyncIterator[dataset_pb2.UploadDatasetRequest], context: Context
    ) -> dataset_pb2.UploadDatasetResponse:
        """Store a dataset."""
        upload = _Upload(self._database, call_scope(self._fixed_scope))
        try:
            async for part in request_iterator:
                if part.HasField("header"):
                    upload.begin(part.header)
                else:
                    await upload.add(part.cases.cases)
            return dataset_pb2.UploadDatasetResponse(dataset=DATASET.to_wire(await upload.finish()))
        finally:
            await upload.aclose()


class _Upload:
    """One upload of a dataset: checked, hashed and stored as it arrives."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._upload_id = datasets.new_upload_id()
        self._header: dataset_pb2.DatasetHeader | None = None
        self._hash = hashlib.sha256()
        self._count = 0
        self._size_bytes = 0
        self._finished = False
        self._storing: asyncio.Future[None] | None = None

    def begin(self, header: dataset_pb2.DatasetHeader) -> None:
        if self._header is not None or self._count:
            raise DatasetError([Problem("must come exactly once, first", "header")])
        names = {"name": header.name, "format": header.format}
        refusals = {
            field: name_problem(name, _MAX_DATASET_NAME_CHARS, required=field == "name")
            for field, name in names.items()
        }
        if problems := [Problem(problem, f"header.{field}") for field, problem in refusals.items() if problem]:
            raise DatasetError(problems)
        self._header = header
        # Equal cases under another name are another dataset: an answer must not reveal another client's name.
        self._hash.update(json.dumps([header.name, header.format]).encode() + b"\n")

    async def add(self, messages: Sequence[case_pb2.Case]) -> None:
        if self._header is None:
            raise DatasetError([Problem("must come before the cases", "header")])
        problems: list[Problem] = []
        # In a thread: checking the schema of one case may take half a second.
        cases = await asyncio.to_thread(_cases, messages, self._count, problems)
        if problems:
            raise DatasetError(first_problems(problems, _MAX_PROBLEMS))
        for start in range(0, len(cases), _UPLOAD_BATCH):
            rows = [(case.case_id, datasets.case_text(case)) for case in cases[start : start + _UPLOAD_BATCH]]
            for _, text in rows:
                self._hash.update(text.encode() + b"\n")
            first = self._count
            # The write completes even if the caller has left; its rows are discarded afterwards.
            self._storing = asyncio.ensure_future(self._database.write(functools.partial(self._add, first, rows)))
            await asyncio.shield(self._storing)
            failpoint("dataset.after_commit")
            self._count += len(rows)
            self._size_bytes += sum(len(text.encode()) for _, text in rows)

    def _add(self, first: int, rows: Sequence[tuple[str, str]], connection: sa.Connection) -> None:
        tokens.require_not_deleted(connection, self._scope.team)
        quotas.require_bytes(connection, self._scope.team, self._size_bytes)
        if not first:
            datasets.begin_upload(connection, self._scope.team, self._upload_id)
        datasets.add_cases(connection, self._upload_id, first, rows)
        failpoint("dataset.before_commit")

    async def finish(self) -> DatasetRef:
        if self._header is None or not self._count:
            raise DatasetError([Problem("must be followed by at least one case", "header")])
        record = DatasetRef(self._hash.hexdigest()[:32], self._header.name, self._header.format, self._count)
        scope = self._scope
        stored = await self._database.write(
            audit.recorded(
                lambda c: self._finish(c, record), scope.call, lambda dataset: (scope.team, dataset.dataset_id)
            )
        )
        failpoint("dataset.finished")
        self._finished = True
        return stored

    def _finish(self, connection: sa.Connection, record: DatasetRef) -> DatasetRef:
        tokens.require_not_deleted(connection, self._scope.team)
        runs.lock_creation(connection)  # of two simultaneous uploads, the second sees the rows of the first
        stored = datasets.finish_upload(connection, self._scope, self._upload_id, record)
        quotas.require_bytes(connection, self._scope.team, 0)
        return stored

    async def aclose(self) -> None:
        """Remove the rows of an interrupted upload."""
        if not self._finished and self._storing is not None:
            await asyncio.shield(self._discard(self._storing))

    async def _discard(self, storing: asyncio.Future[None]) -> None:
        await asyncio.gather(storing, return_exceptions=True)
        await self._database.write(lambda c: datasets.discard_upload(c, self._upload_id))


def _cases(messages: Sequence[case_pb2.Case], first: int, problems: list[Problem]) -> list[Case]:
    return [case for offset, message in enumerate(messages) if (case := _case(message, first + offset, problems))]


def _case(message: case_pb2.Case, index: int, problems: list[Problem]) -> Case | None:
    """Return an uploaded case, or None after adding its problems; `index` is its position, from 0."""
    try:
        case = case_from_wire(message)
    except DatasetError as refusal:
        case_errors = refusal.problems
    else:
        case_errors = case_problems(case)
        if not case_errors and message.ByteSize() > _MAX_PLAIN_BYTES and (problem := excess(case)):
            case_errors = [Problem(problem)]
        if not case_errors:
            return case
    problems += [
        dataclasses.replace(problem, field=f"cases[{index}].{problem.field}".rstrip(".")) for problem in case_errors
    ]
    return None
