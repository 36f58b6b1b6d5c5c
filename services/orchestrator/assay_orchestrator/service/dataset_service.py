"""DatasetService on the wire: checks, hashes and stores datasets as they arrive, lists and deletes them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import logging
from typing import TYPE_CHECKING

from assay.datasets.cases.case_rules import case_problems, excess
from assay.errors import DatasetError, Problem, WrongStateError, first_problems
from assay.identity.audit import record_export
from assay.model.labels import MAX_NOTE_CHARS
from assay.model.limits import MAX_BYTES_PER_CHAR, MAX_CASE_BYTES
from assay.model.run import DatasetRef
from assay.model.stored_dataset import MAX_PARENTS, StoredDataset
from assay.parsing.names import name_problem
from assay.process.failpoints import failpoint
from assay.v1 import case_pb2, dataset_pb2, dataset_pb2_grpc
from assay.wire.case import case_from_wire, case_to_wire
from assay.wire.pages import MAX_PAGE_BYTES, first_page
from assay.wire.run import DATASET
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.runs import dataset_versions, datasets, runs
from assay_orchestrator.store.teams import audit, quotas, tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    import sqlalchemy as sa

    from assay.model.case import Case
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.store.page_tokens import PageTokens

_UPLOAD_BATCH = 1_000
_MAX_PROBLEMS = 50
_MAX_DATASET_NAME_CHARS = 4096  # the value is, or once was, a file's path
_MAX_DATASET_ID_CHARS = 64
_READ_CASES = 20  # at once: a case may be as large as a message
_MAX_PLAIN_BYTES = MAX_CASE_BYTES // MAX_BYTES_PER_CHAR  # a smaller message stays within the limit as JSON

_log = logging.getLogger(__name__)


class DatasetService(dataset_pb2_grpc.DatasetServiceServicer):
    """Stores, lists and deletes datasets.

    Args:
        database: The store.
        tokens: Makes and reads page tokens.
        manager: Removes the cases of deleted datasets.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, database: Database, tokens: PageTokens, manager: RunManager, scope: Scope | None) -> None:
        self._database = database
        self._tokens = tokens
        self._manager = manager
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

    async def GetDataset(
        self, request: dataset_pb2.GetDatasetRequest, context: Context
    ) -> dataset_pb2.GetDatasetResponse:
        """Return one dataset."""
        scope = call_scope(self._fixed_scope)
        stored = await self._database.read(lambda c: dataset_versions.get_stored(c, scope, request.dataset_id))
        return dataset_pb2.GetDatasetResponse(dataset=DATASET.to_wire(stored))

    async def ListDatasets(
        self, request: dataset_pb2.ListDatasetsRequest, context: Context
    ) -> dataset_pb2.ListDatasetsResponse:
        """Return a page of versions."""
        scope = call_scope(self._fixed_scope)
        query, count = ("ListDatasets", request.name), min(request.page_size or 50, 500)
        position = await self._tokens.read(scope, query, request.page_token, (str, str, str))
        after = None if position is None else (str(position[0]), str(position[1]), str(position[2]))
        # One more than the page has: whether another page follows.
        stored = await self._database.read(
            lambda c: dataset_versions.list_stored(c, scope, request.name, after, count + 1)
        )
        page = first_page(map(DATASET.to_wire, stored[:count]))
        token = ""
        if len(page) < len(stored):
            last = stored[len(page) - 1]
            token = await self._tokens.make(scope, query, (last.uploaded_at, last.name, last.dataset_id))
        return dataset_pb2.ListDatasetsResponse(datasets=page, next_page_token=token)

    async def ListCases(self, request: dataset_pb2.ListCasesRequest, context: Context) -> dataset_pb2.ListCasesResponse:
        """Return a page of cases."""
        scope, query = call_scope(self._fixed_scope), ("ListCases", request.dataset_id)
        position = await self._tokens.read(scope, query, request.page_token, (int,))
        first, count = (0 if position is None else int(position[0])), min(request.page_size or 200, 1000)
        stored, page = await self._database.read(lambda c: _case_page(c, scope, request.dataset_id, first, count))
        if not request.page_token:
            await record_export(request.dataset_id)
        end = first + len(page)
        token = await self._tokens.make(scope, query, (end,)) if end < stored.case_count else ""
        return dataset_pb2.ListCasesResponse(cases=page, next_page_token=token)

    async def DeleteDataset(
        self, request: dataset_pb2.DeleteDatasetRequest, context: Context
    ) -> dataset_pb2.DeleteDatasetResponse:
        """Remove a dataset."""
        scope = call_scope(self._fixed_scope)
        stored = await self._database.read(lambda c: deletions.require_unused(c, scope, request.dataset_id))
        if not request.validate_only:
            pending = await self._database.write(
                lambda c: deletions.begin_dataset_deletion(c, scope, request.dataset_id)
            )
            _log.info("deleted dataset: dataset=%s cases=%d", request.dataset_id, stored.case_count)
            await self._manager.finish_deletion(pending)
        return dataset_pb2.DeleteDatasetResponse(dataset=DATASET.to_wire(stored))


def _case_page(
    connection: sa.Connection, scope: Scope, dataset_id: str, first: int, count: int
) -> tuple[StoredDataset, list[case_pb2.Case]]:
    """Return a dataset and its cases from a position on: at most `count`, and as many as fit in a message.

    Raises:
        NotFoundError: The scope's team has no such dataset.
        WrongStateError: A stored case cannot be read.
    """
    stored = dataset_versions.get_stored(connection, scope, dataset_id)
    page: list[case_pb2.Case] = []
    size = 0
    while len(page) < count:
        wanted = min(_READ_CASES, count - len(page))
        rows = datasets.read_page(connection, scope, dataset_id, first + len(page), wanted)
        for case_id, text in rows:
            case = datasets.stored_case(case_id, text)
            if case.problem:
                raise WrongStateError(f"case {case_id} cannot be read ({case.problem[:500]}): upload the dataset again")
            message = case_to_wire(case.case)
            size += message.ByteSize()
            if page and size > MAX_PAGE_BYTES:
                return stored, page
            page.append(message)
        if len(rows) < wanted:
            break
    return stored, page


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
        if problems := list(_header_problems(header)):
            raise DatasetError(first_problems(problems, _MAX_PROBLEMS))
        self._header = header

    async def add(self, messages: Sequence[case_pb2.Case]) -> None:
        if self._header is None:
            raise DatasetError([Problem("must come before the cases", "header")])
        # In a thread: checking the schema of one case may take half a second.
        for batch in await asyncio.to_thread(_checked_batches, messages, self._count):
            await self._until_stored()
            # While it is written, the next message is received and checked. The write completes even if the caller has
            # left; its rows are discarded afterwards.
            change = functools.partial(self._add, self._count, self._size_bytes, batch)
            self._storing = asyncio.ensure_future(self._database.write(change))
            self._hash.update(batch.data)
            self._count += len(batch.rows)
            self._size_bytes += len(batch.data) - len(batch.rows)

    async def _until_stored(self) -> None:
        """Wait until the previous batch is stored."""
        if self._storing is not None:
            await asyncio.shield(self._storing)
            failpoint("dataset.after_commit")

    def _add(self, first: int, stored_bytes: int, batch: _Batch, connection: sa.Connection) -> None:
        tokens.require_not_deleted(connection, self._scope.team)
        quotas.require_bytes(connection, self._scope.team, stored_bytes)
        if not first:
            datasets.begin_upload(connection, self._scope.team, self._upload_id)
        datasets.add_cases(connection, self._upload_id, first, batch.rows, batch.questions)
        failpoint("dataset.before_commit")

    async def finish(self) -> StoredDataset:
        if self._header is None or not self._count:
            raise DatasetError([Problem("must be followed by at least one case", "header")])
        await self._until_stored()
        header, scope = self._header, self._scope
        stored = await self._database.write(
            audit.recorded(
                lambda c: self._finish(c, header), scope.call, lambda dataset: (scope.team, dataset.dataset_id)
            )
        )
        failpoint("dataset.finished")
        self._finished = True
        return stored

    def _finish(self, connection: sa.Connection, header: dataset_pb2.DatasetHeader) -> StoredDataset:
        tokens.require_not_deleted(connection, self._scope.team)
        runs.lock_creation(connection)  # of two simultaneous uploads, the second sees the rows of the first
        record = DatasetRef(self._hash.hexdigest()[:32], header.name, self._count)
        datasets.finish_upload(
            connection,
            self._scope,
            self._upload_id,
            record,
            size_bytes=self._size_bytes,
            note=header.note,
            parent_ids=header.parent_ids,
        )
        quotas.require_bytes(connection, self._scope.team, 0)
        return dataset_versions.get_stored(connection, self._scope, record.dataset_id)

    async def aclose(self) -> None:
        """Remove the rows of an interrupted upload."""
        if not self._finished and self._storing is not None:
            await asyncio.shield(self._discard(self._storing))

    async def _discard(self, storing: asyncio.Future[None]) -> None:
        await asyncio.gather(storing, return_exceptions=True)
        await self._database.write(lambda c: datasets.discard_upload(c, self._upload_id))


def _header_problems(header: dataset_pb2.DatasetHeader) -> Iterator[Problem]:
    if problem := name_problem(header.name, _MAX_DATASET_NAME_CHARS):
        yield Problem(problem, "header.name")
    note = header.note.replace("\n", " ").replace("\t", " ")
    if problem := name_problem(note, MAX_NOTE_CHARS, required=False):
        yield Problem(problem, "header.note")
    if len(header.parent_ids) > MAX_PARENTS:
        yield Problem(f"has {len(header.parent_ids):,} ids, more than {MAX_PARENTS}", "header.parent_ids")
    for index, parent_id in enumerate(header.parent_ids):
        if problem := name_problem(parent_id, _MAX_DATASET_ID_CHARS):
            yield Problem(problem, f"header.parent_ids[{index}]")


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    """Cases of an upload, as they are hashed and stored.

    Args:
        rows: The id and the JSON text of each case.
        questions: The questions of each case.
        data: The JSON texts, each with a line feed, in UTF-8.
    """

    rows: Sequence[tuple[str, str]]
    questions: Sequence[str]
    data: bytes


def _checked_batches(messages: Sequence[case_pb2.Case], first: int) -> list[_Batch]:
    """Return uploaded cases, of which the first has position `first`, from 0.

    Raises:
        DatasetError: Cases are invalid; holds every problem, at most _MAX_PROBLEMS.
    """
    problems: list[Problem] = []
    checked = [_case(message, first + offset, problems) for offset, message in enumerate(messages)]
    if problems:
        raise DatasetError(first_problems(problems, _MAX_PROBLEMS))
    cases = [case for case in checked if case is not None]
    return [_batch(cases[start : start + _UPLOAD_BATCH]) for start in range(0, len(cases), _UPLOAD_BATCH)]


def _batch(cases: Sequence[Case]) -> _Batch:
    rows = [(case.case_id, datasets.case_text(case)) for case in cases]
    data = "".join([f"{text}\n" for _, text in rows]).encode()
    return _Batch(rows, list(map(datasets.question_text, cases)), data)


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
