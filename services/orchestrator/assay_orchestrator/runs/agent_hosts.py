"""Agent hosts: clients that answer for runs through this process, which then takes the jobs of these runs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import PHASES_AT_REST, Phase

if TYPE_CHECKING:
    from assay.storage.database import Database
    from assay_orchestrator.agents.hosted import Attachment
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.engine.worker import ShardWorker
    from assay_orchestrator.runs.planner import Planner

_ENDED_PHASES = frozenset(PHASES_AT_REST) - {Phase.PAUSED}
_REATTACH_GRACE_S = 3.0
"""How long the last client of a run may be detached before its shards go to other processes with clients."""

_log = logging.getLogger(__name__)


class AgentHosts:
    """Attaches clients to runs.

    Every process that a run's client is attached to can work on the run, several at once.

    Args:
        database: The store.
        planner: Owns the brokers between runs and clients.
        dispatcher: Delivers the jobs of attended runs.
        worker: Works on them.
    """

    def __init__(self, database: Database, planner: Planner, dispatcher: Dispatcher, worker: ShardWorker) -> None:
        self._database = database
        self._planner = planner
        self._dispatcher = dispatcher
        self._worker = worker
        self._leaving: dict[str, asyncio.TimerHandle] = {}

    async def attach(self, run_id: str, concurrency: int) -> Attachment:
        """Attach a client that answers up to `concurrency` of a run's questions at once."""
        leaving = self._leaving.pop(run_id, None)
        if leaving is not None:
            leaving.cancel()
        attachment = self._planner.hosted_agent(run_id).attach(concurrency)
        self._dispatcher.attend(run_id)
        _log.info("client hosts the agent: run=%s concurrency=%d", run_id, concurrency)
        try:
            # After attaching: a run that ends from now on detaches the client itself.
            await self._forget_ended(run_id)
        except BaseException:
            self.detach(run_id, attachment)
            raise
        return attachment

    async def _forget_ended(self, run_id: str) -> None:
        """Detach the clients of a run that ended before they were attached."""
        with suppress(StorageError):
            phase = await self._database.read(lambda c: runs.read_phase(c, run_id))
            if phase is None or phase in _ENDED_PHASES:
                self.forget(run_id, "the run has ended")

    def detach(self, run_id: str, attachment: Attachment) -> None:
        """Detach a client; without any left here, the run may still have clients in another process."""
        attachment.close()
        if not self._dispatcher.alone and self._planner.is_unattended(run_id) and run_id not in self._leaving:
            loop = asyncio.get_running_loop()
            self._leaving[run_id] = loop.call_later(_REATTACH_GRACE_S, self._leave, run_id)

    def forget(self, run_id: str, message: str) -> None:
        """Detach the clients of a run that has ended or paused."""
        self._planner.forget(run_id, message)
        self._dispatcher.leave(run_id)

    def hold(self, run_id: str) -> None:
        """Let the questions of a run in flight end, and ask no more of its questions in this process."""
        session = self._worker.sessions.of(run_id)
        if session is not None:
            session.stop_asking()
            self._planner.hold(run_id)

    def aclose(self) -> None:
        """Cancel the timers of detached clients."""
        for handle in self._leaving.values():
            handle.cancel()

    def _leave(self, run_id: str) -> None:
        del self._leaving[run_id]
        if self._planner.is_unattended(run_id):
            self.hold(run_id)
            self._planner.retire(run_id)
            self._dispatcher.leave(run_id)
