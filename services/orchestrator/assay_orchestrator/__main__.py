"""The orchestrator's process: `python -m assay_orchestrator`."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from assay.errors import AssayError, InvalidInputError
from assay.local_stack.install_hint import install_hint
from assay.process.deferred_imports import defer_imports
from assay.process.early_stop import exit_on_early_sigterm
from assay.process.logs import configure_logging
from assay_orchestrator.service import SERVICES
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from assay.identity.audit import Auditor
    from assay.identity.authenticator import Authenticator
    from assay.rpc.server import RpcServer
    from assay.rpc.team_admission import TeamAdmission
    from assay.storage.database import Database

_log = logging.getLogger("assay_orchestrator")

_GARBAGE = 10_000
_RECONNECT_MS = 1_000
_COUNT_TIMEOUT_S = 5.0
_LOUD = ("procrastinate", "alembic")
UNUSED = ("importlib.metadata", "google.protobuf.internal.python_message")
"""SQLAlchemy imports it for plugins, protobuf for machines without its compiled half: a tenth of the start."""


def main() -> None:
    """Serve until a signal arrives; print a setup error as one sentence on stderr and exit with status 3."""
    exit_on_early_sigterm()
    gc.disable()  # imports create no garbage; collecting it meanwhile takes a tenth of the start
    defer_imports(*UNUSED)
    configure_logging()
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("procrastinate.utils").addFilter(_in_one_line)
    try:
        settings = Settings.read(sys.argv[1:], os.environ)
    except InvalidInputError as error:
        for problem in error.problems:
            _fail(str(problem))
        sys.exit(2)
    configure_logging(settings.log)
    try:
        import uvloop

        uvloop.run(serve(settings))
    except AssayError as problem:
        sys.exit(_fail(problem.message))
    except ImportError as problem:
        sys.exit(_fail(f"{problem.name} is not installed: {install_hint('orchestrator')}"))


def _in_one_line(record: logging.LogRecord) -> bool:
    """Keep a record's error and drop its traceback: the job listener fails at each restart of the database."""
    if record.exc_info and (error := record.exc_info[1]) is not None:
        record.msg, record.args = "%s: %s", (record.getMessage(), " ".join(str(error).split()))
        record.exc_info = record.exc_text = None
    return True


async def serve(settings: Settings) -> None:
    """Serve with these settings until a signal arrives or the lease ends."""
    if not (settings.metrics_listen or settings.traces):
        await _serve_calls(settings)
        return
    from assay.process.telemetry import observed  # imported here: the local stack starts without it

    async with observed(settings, role=settings.role, names_teams=settings.metrics_teams):
        await _serve_calls(settings)


async def _serve_calls(settings: Settings) -> None:
    if settings.auth != "none":
        # The database knows the callers, so nothing is served before it is open.
        await _serve(None, settings)
        return
    server = _new_server(settings)
    # Bind before the slow imports: a client can connect at once and is notified of readiness immediately.
    await server.start(settings.listen)
    try:
        await _serve(server, settings)
    finally:
        await server.stop(0)


def _new_server(
    settings: Settings,
    authenticator: Authenticator | None = None,
    log: Auditor | None = None,
    teams: TeamAdmission | None = None,
) -> RpcServer:
    from assay.rpc.server import RpcServer

    own = dataclasses.replace(settings.server_options, authenticator=authenticator, auditor=log, team_admission=teams)
    server = RpcServer(own)
    if settings.role != "worker":
        for name in SERVICES:
            server.add(name)
    return server


def _identified_server(settings: Settings, database: Database, stack: AsyncExitStack) -> RpcServer:
    from assay_orchestrator.identity.audit_log import AuditLog
    from assay_orchestrator.identity.serving import authenticator
    from assay_orchestrator.identity.team_requests import TeamRequests

    log = AuditLog(database)
    stack.push_async_callback(log.aclose)
    return _new_server(settings, authenticator(settings, database), log, TeamRequests(database))


async def _serve(server: RpcServer | None, settings: Settings) -> None:
    from assay.embedder.v1 import embedder_pb2_grpc
    from assay.judge.v1 import judge_pb2_grpc
    from assay.model.scope import LOCAL
    from assay.rpc.channel import open_channel
    from assay.rpc.options import ChannelOptions
    from assay.rpc.server import serve_until_signal
    from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.runs.planner import Planner
    from assay_orchestrator.service.registration import registrations
    from assay_orchestrator.store.database import open_database

    released = asyncio.Event()
    database = open_database(settings)
    _watch_lease(settings, database, asyncio.get_running_loop(), released)
    try:
        async with AsyncExitStack() as stack:
            if server is None:
                server = _identified_server(settings, database, stack)
            embedder = None
            if settings.embedder:
                options = ChannelOptions(tls=settings.services_tls)
                channel = await stack.enter_async_context(open_channel(settings.embedder, options))
                embedder = embedder_pb2_grpc.EmbedderServiceStub(channel)
            judge = None
            if settings.judge:
                # A restarted service is rediscovered at once; the run decides how long it tolerates the outage.
                options = ChannelOptions(reconnect_max_ms=_RECONNECT_MS, tls=settings.services_tls)
                channel = await stack.enter_async_context(open_channel(settings.judge, options))
                judge = judge_pb2_grpc.JudgeServiceStub(channel)
            planner = Planner(settings, embedder, judge)
            manager = RunManager(database, settings, planner, open_dispatcher(settings, database))
            upkeep = None
            if settings.role != "worker":
                scope = LOCAL if settings.auth == "none" else None
                for name, register in registrations(database, manager, settings, server.stopping, scope).items():
                    server.complete(name, register)
                if settings.auth != "none":
                    from assay_orchestrator.identity.serving import add_admin_service
                    from assay_orchestrator.runs.team_runs import TeamRuns
                    from assay_orchestrator.runs.team_services import services_of_teams
                    from assay_orchestrator.runs.upkeep import Upkeep

                    team_runs = TeamRuns(database, manager)
                    upkeep = Upkeep(database, team_runs, services_of_teams(database, settings))
                    stack.push_async_callback(upkeep.aclose)
                    add_admin_service(server, database, team_runs, upkeep)

            if settings.metrics_listen and settings.role != "worker":
                from assay_orchestrator.queries.queue_gauges import QueueGauges  # imported here: only where exported

                await stack.enter_async_context(QueueGauges(database))

            async def begin(address: str) -> None:
                gc.freeze()
                gc.set_threshold(_GARBAGE)  # the rows in progress alone exceed the default threshold of 700 objects
                gc.enable()
                await manager.start()
                if upkeep is not None:
                    upkeep.start()
                _log.info("ready: address=%s role=%s", address, settings.role)

            await serve_until_signal(
                server,
                settings.listen,
                on_ready=begin,
                on_drain=manager.aclose,
                grace_s=settings.grace_s,
                also_stop_on=released,
            )
            await manager.aclose(at_once=True)  # a second signal aborted the drain
    finally:
        database.close()


def _watch_lease(
    settings: Settings, database: Database, loop: asyncio.AbstractEventLoop, released: asyncio.Event
) -> None:
    """Stop with the last user of the local stack, or after an idle time if no run is active: continuing one unseen
    could cost money."""
    from assay.local_stack.lease import watch_lease
    from assay_orchestrator.store.runs import runs

    def has_no_run() -> bool:
        reading = asyncio.run_coroutine_threadsafe(database.read(runs.count_active), loop)
        try:
            return reading.result(_COUNT_TIMEOUT_S) == 0
        except Exception:  # noqa: BLE001 - the boundary of a task: the process stops only when it knows of no run
            _log.warning("cannot count active runs", exc_info=True)
            return False

    if settings.exit_with_lock is not None:
        idle_s = settings.exit_idle_s
        watch_lease(settings.exit_with_lock, loop, released.set, idle_s=idle_s, may_idle=has_no_run)


def _fail(message: str) -> int:
    sys.stderr.write(f"assay orchestrator: {message}\n")
    return 3


if __name__ == "__main__":
    main()
    from assay.rpc.server import exit_now

    exit_now(0)
