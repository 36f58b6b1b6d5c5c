"""`python -m assay_orchestrator`: the orchestrator as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, InvalidInputError
from assay.local.install_hint import install_hint
from assay.model.run_limits import MAX_RUN_WEIGHT, MIN_RUN_WEIGHT
from assay.runtime.logs import configure_logging
from assay.runtime.settings_flags import SettingsFlags
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger("assay_orchestrator")

_SERVICE = "assay.v1.RunService"
_RECONNECT_MS = 1_000
_LOUD = ("procrastinate", "alembic")


def main() -> None:
    """Serve until a signal; what cannot work is one sentence on stderr and exit status 3."""
    gc.disable()  # nothing that imports make is garbage; collecting meanwhile is a tenth of the start
    configure_logging()
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        settings = read_settings(sys.argv[1:], os.environ)
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


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings that flags and ASSAY_ORCHESTRATOR_* variables give; flags win."""
    text = "Accepts runs, asks agents, computes metrics, stores and streams results."
    flags = SettingsFlags("orchestrator", text, "grace_s", environ)
    _add_flags(flags, home=Path(environ.get("ASSAY_HOME") or Path.home() / ".assay"))
    return flags.read(arguments, _settings)


def _add_flags(flags: SettingsFlags, *, home: Path) -> None:
    def add(flag: str, text: str, shown: str | None = None, also: str = "", **details: Any) -> None:
        name, kind = flag.removeprefix("--").replace("-", "_"), details.get("type", str)
        flags.add(name, text, kind, details["default"], shown=shown, also=also)

    add("--listen", "address: unix:/path or host:port", default="127.0.0.1:7070")
    add("--database", "SQLite file that holds everything", default=str(home / "assay.db"))
    # What it is set to is not shown: it may hold a password.
    text = "PostgreSQL instead: postgresql://user@host/name; also ASSAY_DATABASE_URL, which is safer with a password"
    add("--database-url", text, shown="none", also="ASSAY_DATABASE_URL", default="")
    add("--database-patience-s", "seconds to retry an unreachable PostgreSQL", type=float, default=60.0)
    add("--embedder", "address of the embedder; empty for none", default="")
    add("--embedder-patience-s", "seconds to retry an unreachable embedder", type=float, default=60.0)
    add("--judge", "address of the judge; empty for none", default="")
    add("--judge-patience-s", "seconds to retry an unreachable judge", type=float, default=60.0)
    add("--recover", "interrupted runs at the start: auto or on-request", default="auto")
    add("--http-hosts", "hosts that http agents may have: patterns, comma-separated", default="")
    add("--agent-env", "variables that specs may name as ${NAME}: patterns, comma-separated", default="")
    add("--scorers", "maximum number of scorer processes, at most cores - 1", type=int, default=4)
    add("--scoring-timeout-s", "processor seconds per row, and per HTTP reply", type=float, default=5.0)
    add("--scoring-memory-mib", "memory of one scorer beyond what it needs idle", type=int, default=1024)
    text = "seconds without a client that hosts a run's agent, after which the run pauses"
    add("--unattended-pause-s", text, type=float, default=1800.0)
    add("--active-run-limit", "maximum number of pending and running runs", type=int, default=200)
    add("--row-try-limit", "maximum attempts at a row that fails, at least 2", type=int, default=3)
    add("--watch-bookmark-s", "seconds between bookmarks to an idle watcher", type=float, default=15.0)
    add("--watch-stall-s", "seconds after which a watch ends whose client reads nothing", type=float, default=30.0)
    add("--first-message-s", "deadline for the first message of a client's stream", type=float, default=10.0)
    add("--stream-idle-s", "deadline for each further message that is due on it", type=float, default=60.0)
    add("--grace-s", "grace period of running calls after SIGTERM, in seconds", type=float, default=10.0)
    add("--role", "what this process does: api, worker or all; processes share a PostgreSQL database", default="all")
    add(
        "--dead-after-s",
        "seconds without a heartbeat, after which others get a worker's jobs",
        type=float,
        default=20.0,
    )
    add("--reconcile-s", "seconds between searches for shards without a job", type=float, default=30.0)
    add("--shard-limit", "maximum number of shards (of about 1,000 rows) worked on at once", type=int, default=64)
    add("--agent-limits", "maximum questions in flight over all runs: host=count, comma-separated", default="")
    add("--team-weights", "scheduling weight per team: team=weight, comma-separated; 1 for the rest", default="")
    add("--exit-with-lock", "stop when no other process holds this file's shared lock", default="")
    flags.switch("reflection", "serve gRPC reflection")


def _settings(values: dict[str, Any]) -> Settings:
    given = SimpleNamespace(**values)
    return Settings(
        listen=given.listen,
        database=Path(given.database).expanduser(),
        database_url=given.database_url,
        database_patience_s=given.database_patience_s,
        embedder=given.embedder,
        embedder_patience_s=given.embedder_patience_s,
        judge=given.judge,
        judge_patience_s=given.judge_patience_s,
        recover=given.recover,
        http_hosts=_patterns(given.http_hosts),
        agent_env=_patterns(given.agent_env),
        scorers=given.scorers,
        scoring_timeout_s=given.scoring_timeout_s,
        scoring_memory_mib=given.scoring_memory_mib,
        unattended_pause_s=given.unattended_pause_s,
        active_run_limit=given.active_run_limit,
        row_try_limit=given.row_try_limit,
        watch_bookmark_s=given.watch_bookmark_s,
        watch_stall_s=given.watch_stall_s,
        first_message_s=given.first_message_s,
        stream_idle_s=given.stream_idle_s,
        grace_s=given.grace_s,
        role=given.role,
        dead_after_s=given.dead_after_s,
        reconcile_s=given.reconcile_s,
        shard_limit=given.shard_limit,
        agent_limits=_counts(given.agent_limits),
        team_weights=_weights(given.team_weights),
        exit_with_lock=Path(given.exit_with_lock) if given.exit_with_lock else None,
        reflection=given.reflection,
        log=given.log,
    )


async def serve(settings: Settings) -> None:
    """Serve with these settings until a signal, or until the lease is over."""
    from assay.local.lease import watch_lease
    from assay.rpc.channel import open_channel
    from assay.rpc.options import ChannelOptions
    from assay.rpc.server import RpcServer, serve_until_signal
    from assay.v1 import embedder_pb2_grpc, judge_pb2_grpc, orchestrator_pb2_grpc
    from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.runs.planner import Planner
    from assay_orchestrator.service import RunService
    from assay_orchestrator.store.database import open_database

    released = asyncio.Event()
    if settings.exit_with_lock is not None:
        watch_lease(settings.exit_with_lock, asyncio.get_running_loop(), released.set)
    server = RpcServer(settings.server_options)
    database = open_database(settings)
    try:
        async with AsyncExitStack() as stack:
            embedder = None
            if settings.embedder:
                channel = await stack.enter_async_context(open_channel(settings.embedder))
                embedder = embedder_pb2_grpc.EmbedderServiceStub(channel)
            judge = None
            if settings.judge:
                # One that is started again is found at once: how long it may be away is the runs' matter.
                channel = await stack.enter_async_context(
                    open_channel(settings.judge, ChannelOptions(reconnect_max_ms=_RECONNECT_MS))
                )
                judge = judge_pb2_grpc.JudgeServiceStub(channel)
            planner = Planner(settings, embedder, judge)
            manager = RunManager(database, settings, planner, open_dispatcher(settings, database))
            if settings.role != "worker":
                service = RunService(database, manager, settings, server.stopping)
                server.add(_SERVICE, lambda grpc: orchestrator_pb2_grpc.add_RunServiceServicer_to_server(service, grpc))

            async def begin(address: str) -> None:
                gc.freeze()
                gc.enable()
                await manager.start()
                _log.info("ready: address=%s role=%s", address, settings.role)

            await serve_until_signal(
                server,
                settings.listen,
                on_ready=begin,
                on_drain=manager.aclose,
                grace_s=settings.grace_s,
                also_stop_on=released,
            )
            await manager.aclose()
    finally:
        database.close()


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in _patterns(text):
        name, _, weight = part.rpartition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
        if not MIN_RUN_WEIGHT <= weights[name] <= MAX_RUN_WEIGHT:
            raise ValueError(
                f"team_weights must be team=weight with {MIN_RUN_WEIGHT} to {MAX_RUN_WEIGHT}, not {part!r}"
            )
    return weights


def _counts(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in _patterns(text):
        name, _, count = part.rpartition("=")
        if not name or not count.isdecimal() or not int(count):
            raise ValueError(f"agent_limits must be host=count, not {part!r}")
        counts[name] = int(count)
    return counts


def _fail(message: str) -> int:
    sys.stderr.write(f"assay orchestrator: {message}\n")
    return 3


if __name__ == "__main__":
    main()
    from assay.rpc.server import exit_now

    exit_now(0)
