"""Creation of runs: once each, divided into shards, with the first jobs enqueued, in one transaction."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.errors import ConflictError, OverloadedError, Problem, SpecError
from assay.metrics import without_defaults
from assay.model.cluster_key import missing_cluster
from assay.process.failpoints import failpoint
from assay.storage.times import now
from assay.telemetry.tracing import traceparent
from assay.version import __version__
from assay.wire.run import SETTINGS
from assay_orchestrator.runs.planner import agent_key
from assay_orchestrator.store.rows import stops
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.shards import shards
from assay_orchestrator.store.teams import audit, quotas, tokens

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.model.run import DatasetRef, RunSpec
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.engine.worker import ShardWorker
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.runs.runs import RunRecord
    from assay_orchestrator.store.shards.shards import ShardJob

_log = logging.getLogger(__name__)


class Creation:
    """Creates runs.

    Args:
        database: The store.
        worker: Enqueues the first jobs.
        settings: How many runs may be active at once.
    """

    def __init__(self, database: Database, worker: ShardWorker, settings: Settings) -> None:
        self._database = database
        self._worker = worker
        self._settings = settings

    async def create(
        self, scope: Scope, request_id: str, settings: RunSpec, dataset: DatasetRef, asked: RunSpec
    ) -> str:
        """Create a run and return its id; a repeated request returns the id of the first.

        Args:
            scope: The scope of the run's team.
            request_id: The id of the request.
            settings: Checked and completed settings.
            dataset: The run's dataset.
            asked: The settings as the request has them: versions complete them differently.

        Raises:
            ConflictError: The request id was used for something else.
            OverloadedError: Too many runs are active, or the team has reached a quota.
            SpecError: The run does not fit its group, or its dataset differs from that of its stopping settings.
        """
        request_hash = _request_hash(asked, dataset)
        if scope.call is not None:
            scope.call.settle()  # a repeated request creates nothing
        existing = await self._database.read(lambda c: runs.get_by_request(c, scope, request_id))
        if existing is None:
            existing = await self._accept(scope, request_id, request_hash, settings, dataset)
        if existing.request_hash != request_hash and not _is_same(existing, settings, dataset):
            raise ConflictError(f"request id {request_id!r} was used for another spec or dataset: use a new request id")
        return existing.run_id

    async def _accept(
        self, scope: Scope, request_id: str, request_hash: str, settings: RunSpec, dataset: DatasetRef
    ) -> RunRecord:
        agent = settings.agent
        if settings.stopping is not None and settings.stopping.cases != dataset.case_count:
            raise SpecError(
                [Problem(f"must be {dataset.case_count}, the number of cases in the dataset", "stopping.cases")]
            )
        record = runs.RunRecord(
            run_id=_new_run_id(settings.name),
            request_id=request_id,
            request_hash=request_hash,
            spec=dataclasses.asdict(settings),
            dataset_id=dataset.dataset_id,
            dataset_name=dataset.name,
            total_count=dataset.case_count * settings.repeats,
            assay_version=__version__,
            created_at=now(),
            team=scope.team,
            agent_key=agent_key(agent, self._settings.agent_limits),
            concurrency=agent.concurrency,
            hosted=settings.needs_host,
            fair_share=settings.team,
            weight=settings.weight,
            group_id=settings.group_id,
            traceparent=traceparent(),
        )
        stored, is_new = record, False

        def accept(connection: sa.Connection) -> list[ShardJob]:
            nonlocal stored, is_new
            # Looked up again in the transaction: the same request may have arrived twice at once.
            if (existing := runs.get_by_request(connection, scope, request_id)) is not None:
                stored = existing
                return []
            self._require_room(connection)
            tokens.require_enabled(connection, scope.team)
            quotas.require_run(connection, scope.team)
            stops.require_group(connection, record, settings)
            if settings.cluster and not datasets.has_cluster(connection, scope, dataset.dataset_id, settings.cluster):
                raise SpecError([Problem(missing_cluster(settings.cluster), "cluster")])
            stored, is_new = runs.create_run(connection, record)
            if not is_new:
                return []
            rows = _shard_rows(settings)
            shards.create_shards(connection, stored.run_id, dataset.case_count, settings.repeats, rows=rows)
            jobs = self._worker.next_jobs(connection, stored.run_id)
            # Last: it locks the team's audit until the commit.
            audit.record(connection, scope.call, team=scope.team, resource=stored.run_id)
            failpoint("run.before_commit")
            return jobs

        await self._worker.enqueue(accept)
        failpoint("run.after_commit")
        if is_new:
            _log.info(
                "accepted run: run=%s name=%s rows=%d agent=%s team=%s fair_share=%s",
                stored.run_id,
                settings.name,
                stored.total_count,
                agent.adapter,
                scope.team,
                settings.team or "none",
            )
        return stored

    def _require_room(self, connection: sa.Connection) -> None:
        """Raise unless another run may be active; until the commit no other process creates one.

        Raises:
            OverloadedError: The limit of active runs is reached.
        """
        runs.lock_creation(connection)
        active, limit = runs.count_active(connection), self._settings.active_run_limit
        if active >= limit:
            raise OverloadedError(
                f"{active} runs are active, which is the limit: retry when a run has ended", retry_after_s=10.0
            )


def _shard_rows(settings: RunSpec) -> int:
    """Return the maximum rows of a shard: few if a run must not get far ahead of the other run of its group."""
    if not settings.group_id:
        return shards.SHARD_ROWS
    if settings.stopping is None:
        return shards.GROUP_SHARD_ROWS
    return min(shards.GROUP_SHARD_ROWS, max(shards.STOPPING_SHARD_ROWS, settings.agent.concurrency))


def _new_run_id(name: str) -> str:
    """Return a readable id that is unique and safe as a file name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"
    return f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _is_same(existing: RunRecord, settings: RunSpec, dataset: DatasetRef) -> bool:
    """Return whether a stored run matches a request; client versions spell out different parts of the same spec."""
    if existing.dataset_id != dataset.dataset_id:
        return False
    stored, requested = (without_defaults(run_spec) for run_spec in (SETTINGS.from_json(existing.spec), settings))
    return _request_hash(stored, dataset) == _request_hash(requested, dataset)


def _request_hash(settings: RunSpec, dataset: DatasetRef) -> str:
    content = json.dumps([dataclasses.asdict(settings), dataset.dataset_id], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
