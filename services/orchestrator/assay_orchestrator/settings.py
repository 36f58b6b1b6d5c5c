"""The orchestrator's settings: flags of the command line and ASSAY_ORCHESTRATOR_* variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.rpc.options import ServerOptions
from assay.runtime.logs import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class ScoringLimits:
    """What scoring may take.

    Args:
        scorers: Most scorer processes.
        timeout_s: Most processor time of one row's scoring, or of reading one reply, in seconds.
        memory_mib: Most memory of one scorer beyond what it needs idle, in MiB.
    """

    scorers: int = 1
    timeout_s: float = 5.0
    memory_mib: int = 1024


def most_scorers() -> int:
    """Return how many scorers leave a core to the event loop: one less than the cores, at least one."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """How one orchestrator process works.

    Args:
        listen: Where to serve: "unix:/path" or "host:port".
        database: The SQLite file that holds everything.
        database_url: The PostgreSQL database that holds everything instead, "postgresql://user@host/name" with
            whatever else libpq's URLs may have; empty for the file. It may hold a password, so it is not shown.
        database_patience_s: How long a PostgreSQL that went away is waited for before runs pause, in seconds.
        embedder: Address of the embedder; empty where there is none.
        embedder_patience_s: How long an unreachable embedder is asked again, in seconds.
        judge: Address of the judge; empty where there is none.
        judge_patience_s: How long an unreachable judge is asked again before judging stops, in seconds.
        recover: Whether the start resumes the runs that a stop interrupted ("auto") or leaves them paused for
            ResumeRun ("on-request").
        http_hosts: Patterns of hosts that http agents may have, e.g. "*.example.org"; "*" allows all.
        agent_env: Patterns of environment variables that a spec may name as ${NAME}; "*" allows all.
        scorers: Most processes that score rows of much work; never more than the cores less one, at least one.
        scoring_timeout_s: Most processor time of scoring one row, or of reading one HTTP reply, in seconds.
        scoring_memory_mib: Most memory of one scorer beyond what it needs idle, in MiB.
        unattended_pause_s: A run whose agent no client has hosted for this long pauses, in seconds.
        active_run_limit: Most pending and running runs; further ones are refused.
        row_try_limit: Attempts at a row: so many results with an error (`retry_errors` archives the earlier ones), or
            so many kills of the process while it works on the row. After that it is a dead letter.
        watch_bookmark_s: Time between bookmarks to a watcher of a run while nothing happens, in seconds.
        watch_stall_s: A watch whose client reads nothing for this long ends; it may resume, in seconds.
        first_message_s: The first message of a client's stream must come within this time, in seconds.
        stream_idle_s: A client's stream from which a message is due ends after this time without one, in seconds.
        grace_s: Grace period of running calls after SIGTERM, in seconds.
        role: What this process does: "api" answers clients, "worker" works on runs, "all" does both. Only processes
            that share a PostgreSQL database divide the work.
        dead_after_s: After how many seconds without a heartbeat others get a process's jobs; where its connection
            to the database has ended too, two seconds will do.
        reconcile_s: Time between searches for shards without a job, in seconds.
        shard_limit: Most shards that this process works on at once.
        team_weights: How much of the workers a team has beside the others, by name; 1 for those not named.
        agent_limits: Most questions in flight over all runs, by agent: the target's host, or the whole target.
        exit_with_lock: Stop when no other process holds this file's shared lock; None to stay.
        reflection: Whether to serve gRPC reflection.
        log: What this process logs.
    """

    listen: str
    database: Path
    database_url: str = field(default="", repr=False)
    database_patience_s: float = 60.0
    embedder: str = ""
    embedder_patience_s: float = 60.0
    judge: str = ""
    judge_patience_s: float = 60.0
    recover: str = "auto"
    http_hosts: tuple[str, ...] = ()
    agent_env: tuple[str, ...] = ()
    scorers: int = 4
    scoring_timeout_s: float = 5.0
    scoring_memory_mib: int = 1024
    unattended_pause_s: float = 1800.0
    active_run_limit: int = 200
    row_try_limit: int = 3
    watch_bookmark_s: float = 15.0
    watch_stall_s: float = 30.0
    first_message_s: float = 10.0
    stream_idle_s: float = 60.0
    grace_s: float = 10.0
    role: str = "all"
    dead_after_s: float = 20.0
    reconcile_s: float = 30.0
    shard_limit: int = 64
    team_weights: Mapping[str, float] = field(default_factory=dict)
    agent_limits: Mapping[str, int] = field(default_factory=dict)
    exit_with_lock: Path | None = None
    reflection: bool = True
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))

    @property
    def server_options(self) -> ServerOptions:
        """How the server behaves towards its clients."""
        return ServerOptions(
            first_message_s=self.first_message_s, stream_idle_s=self.stream_idle_s, reflection=self.reflection
        )

    @property
    def scoring(self) -> ScoringLimits:
        """What scoring may take here."""
        scorers = min(self.scorers, most_scorers())
        return ScoringLimits(scorers, self.scoring_timeout_s, self.scoring_memory_mib)

    def _problems(self) -> Iterator[str]:
        if self.recover not in ("auto", "on-request"):
            yield f"recover must be 'auto' or 'on-request', not {self.recover!r}"
        if self.recover != "auto" and self.database_url:
            yield "recover 'on-request' needs a file: with a shared database, others take over interrupted runs"
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            yield "database_url must begin with postgresql://; for an SQLite file use database"
        for name in ("database_patience_s", "embedder_patience_s", "judge_patience_s", "grace_s"):
            if getattr(self, name) < 0:
                yield f"{name} must not be negative"
        for name in ("watch_bookmark_s", "watch_stall_s", "first_message_s", "stream_idle_s", "unattended_pause_s"):
            if getattr(self, name) <= 0:
                yield f"{name} must be greater than 0"
        if self.role not in ("api", "worker", "all"):
            yield f"role must be 'api', 'worker' or 'all', not {self.role!r}"
        if self.role != "all" and not self.database_url:
            yield f"role {self.role!r} needs a database_url: a file has one process, which does all"
        for name, least in (("dead_after_s", 1), ("active_run_limit", 1), ("row_try_limit", 2)):
            if getattr(self, name) < least:
                yield f"{name} must be at least {least}"
        yield from self._scoring_problems()

    def _scoring_problems(self) -> Iterator[str]:
        if self.scorers < 1:
            yield "scorers must be at least 1"
        if not 0.01 <= self.scoring_timeout_s <= 3600:
            yield "scoring_timeout_s must be from 0.01 to 3600"
        if self.scoring_memory_mib < 64:
            yield "scoring_memory_mib must be at least 64"
