"""The orchestrator's settings: command-line flags and ASSAY_ORCHESTRATOR_* variables."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.http.addresses import read_service_address
from assay.http.egress import Egress, IPNetwork, own_networks, read_networks, read_proxy
from assay.model.limits import MAX_RUN_WEIGHT, MIN_RUN_WEIGHT
from assay.process.logs import redacted
from assay.process.secret_stores import folder_problem, read_secret_variables
from assay.process.settings import ServiceSettings, listed, number, path, setting
from assay.rpc.options import ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from assay.parsing.secret_references import SecretReference
    from assay.rpc.tls import ClientFiles


@dataclass(frozen=True, slots=True)
class ScoringLimits:
    """Resource limits of scoring.

    Args:
        scorers: Maximum number of scorer processes.
        timeout_s: Maximum processor time for scoring one row or reading one reply, in seconds.
        memory_mib: Maximum memory of one scorer beyond its idle use, in MiB.
    """

    scorers: int = 1
    timeout_s: float = 5.0
    memory_mib: int = 1024


def most_scorers() -> int:
    """Return the maximum number of scorers: one less than the cores (the event loop needs one), at least one."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in listed(text):
        name, _, weight = part.rpartition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
        if not MIN_RUN_WEIGHT <= weights[name] <= MAX_RUN_WEIGHT:
            raise ValueError(f"must be team=weight with {MIN_RUN_WEIGHT} to {MAX_RUN_WEIGHT}, not {part!r}")
    return weights


def _counts(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in listed(text):
        name, _, count = part.rpartition("=")
        if not name or not count.isdecimal() or not int(count):
            raise ValueError(f"must be host=count, not {part!r}")
        counts[name] = int(count)
    return counts


@dataclass(frozen=True, kw_only=True)
class Settings(ServiceSettings):
    """The settings of an orchestrator process."""

    service = "orchestrator"
    description = "Accepts runs, asks agents, computes metrics, stores and streams results."

    listen: str = setting("127.0.0.1:7070", "address to serve at: unix:/path or host:port")
    database: Path = setting(
        MISSING,
        "SQLite file that stores everything; the flag overrides ASSAY_DATABASE_URL",
        read=path,
        home="assay.db",
        in_place_of="database_url",
    )
    database_url: str = setting(
        "",
        "PostgreSQL database to use instead of the file: postgresql://user@host/name, with any parameters of "
        "libpq; also ASSAY_DATABASE_URL, safer with a password",
        also="ASSAY_DATABASE_URL",
        is_secret=True,
    )
    database_patience_s: float = setting(60.0, "seconds to retry an unreachable PostgreSQL before runs pause", least=0)
    migrations: str = setting(
        "apply",
        "whether a start applies missing migrations to PostgreSQL, or waits for `assay admin migrate` "
        "as long as it would for an unreachable database",
        choices=("apply", "wait"),
    )
    embedder: str = setting("", "address of the embedder; empty for none", read=read_service_address)
    embedder_patience_s: float = setting(60.0, "seconds to retry an unreachable embedder", least=0)
    judge: str = setting("", "address of the judge; empty for none", read=read_service_address)
    judge_patience_s: float = setting(60.0, "seconds to retry an unreachable judge before judging stops", least=0)
    recover: str = setting(
        "auto",
        "whether a start resumes interrupted runs or leaves them paused",
        choices=("auto", "on-request"),
    )
    http_hosts: tuple[str, ...] = setting(
        (), "hosts that agents in specs may use: patterns, comma-separated; * allows all", read=listed
    )
    egress_networks: tuple[IPNetwork, ...] | None = setting(
        (),
        "networks these hosts may be in besides the public internet: CIDR, comma-separated; * allows every address",
        read=read_networks,
    )
    egress_proxy: str = setting(
        "", "HTTP proxy for agent calls, http://host:port; the proxy resolves names", read=read_proxy
    )
    agent_env: tuple[str, ...] = setting(
        (),
        "variables that specs may name as ${NAME}: patterns, comma-separated, with the hosts that may receive them, "
        "as in OPENAI_API_KEY@api.openai.com; * allows all",
        read=listed,
    )
    secrets: Path | None = setting(
        None,
        "folder of the secrets that specs may name as secret://TEAM/NAME: one file TEAM/NAME per secret",
        read=path,
    )
    secret_variables: Mapping[SecretReference, str] = setting(
        {}, "variables that hold such secrets: TEAM/NAME=VARIABLE, comma-separated", read=read_secret_variables
    )
    scorers: int = setting(4, "maximum number of scorer processes, never more than the cores less one", least=1)
    scoring_timeout_s: float = setting(
        5.0, "processor seconds for scoring one row or reading one HTTP reply", least=0.01, most=3600
    )
    scoring_memory_mib: int = setting(1024, "memory of one scorer beyond its idle use, in MiB", least=64)
    unattended_pause_s: float = setting(
        1800.0, "seconds without a client to host a run's agent before the run pauses", above=0
    )
    active_run_limit: int = setting(
        200, "maximum number of pending and running runs; further ones are refused", least=1
    )
    row_try_limit: int = setting(
        3, "maximum attempts at a row that fails or kills its process; the row is then a dead letter", least=2
    )
    watch_bookmark_s: float = setting(15.0, "seconds between bookmarks to a watcher while no event occurs", above=0)
    watch_stall_s: float = setting(30.0, "seconds before a watch ends if its client reads nothing", above=0)
    first_message_s: float = setting(10.0, "deadline for the first message of a client's stream, in seconds", above=0)
    stream_idle_s: float = setting(
        60.0, "deadline for each further message expected on a client's stream, in seconds", above=0
    )
    role: str = setting(
        "all",
        "role of this process among those that share its PostgreSQL database",
        choices=("api", "worker", "all"),
    )
    dead_after_s: float = setting(
        20.0, "seconds without a heartbeat before other workers get a worker's shards", least=1
    )
    reconcile_s: float = setting(30.0, "seconds between searches for shards without a job")
    shard_limit: int = setting(64, "maximum number of shards (of about 1,000 rows) run at once")
    agent_limits: Mapping[str, int] = setting(
        {},
        "maximum questions in flight across all runs, per host or target: host=count, comma-separated",
        read=_counts,
    )
    auth: str = setting(
        "none",
        "how callers authenticate: none makes every caller the team `local`, tokens needs tokens from `assay admin`",
        choices=("none", "tokens"),
    )
    oidc: Path | None = setting(
        None, "YAML file of issuers whose JSON Web Tokens are accepted besides tokens from `assay admin`", read=path
    )
    services_ca: Path | None = setting(
        None, "certificate authorities of the embedder and the judge, PEM; turns on TLS to both", read=path
    )
    services_cert: Path | None = setting(
        None, "client certificate of this process for the embedder and the judge, PEM", read=path
    )
    services_key: Path | None = setting(None, "private key of --services-cert, PEM", read=path)
    traced_cases: float | None = setting(
        None,
        "share of a traced run's cases whose calls are traced, from 0 to 1; by default enough for 50 rows",
        read=number,
        least=0,
        most=1,
    )
    metrics_teams: bool = setting(False, "name teams in metrics: one series per team, visible to every reader")
    team_weights: Mapping[str, float] = setting(
        {}, "scheduling weight per team: team=weight, comma-separated; default 1", read=_weights
    )

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of values that do not fit together, each with its flag."""
        if self.recover != "auto" and self.database_url:
            yield Problem(
                "on-request needs a file: with a shared database, others take over interrupted runs", "--recover"
            )
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            yield Problem("must begin with postgresql://; for an SQLite file use --database", "--database-url")
        if self.migrations == "wait" and not self.database_url:
            yield Problem(
                "wait needs --database-url: a file has one process, which applies the migrations", "--migrations"
            )
        if self.role in ("api", "worker") and not self.database_url:
            yield Problem(f"{self.role} needs --database-url: a file has one process, which has every role", "--role")
        unbound = [entry for entry in self.agent_env if "@" not in entry] if self.auth == "tokens" else []
        if unbound:
            yield Problem(
                f"{unbound[0]} needs a host, as in {unbound[0]}@api.example.org: without it, any team could send the "
                "variable anywhere",
                "--agent-env",
            )
        yield from folder_problem(self.secrets)
        if self.oidc is not None and self.auth != "tokens":
            yield Problem("needs --auth tokens", "--oidc")
        if (self.services_cert is None) != (self.services_key is None):
            missing = "--services-cert" if self.services_cert is None else "--services-key"
            yield Problem("is missing: set certificate and key together", missing)
        elif self.services_cert is not None and self.services_ca is None:
            yield Problem("is missing: without it, calls to the services do not use TLS", "--services-ca")

    caller_settings = "identities (--auth tokens)"

    @property
    def is_exposed(self) -> bool:
        """Whether the process serves more than health; a worker serves no RPCs."""
        return self.role != "worker"

    @property
    def knows_callers(self) -> bool:
        """Whether every caller has an identity."""
        return self.auth == "tokens" or self.tls_client_ca is not None

    @property
    def services_tls(self) -> ClientFiles | None:
        """The TLS files for calls to the embedder and the judge; None for plain connections."""
        if self.services_ca is None:
            return None
        from assay.rpc.tls import ClientFiles  # imported here: local services do not need it

        return ClientFiles(self.services_ca, self.services_cert, self.services_key)

    @property
    def egress(self) -> Egress:
        """The rules for outgoing agent calls; an address named in `http_hosts` is allowed by that."""
        networks = self.egress_networks
        return Egress(None if networks is None else networks + own_networks(self.http_hosts), self.egress_proxy)

    @property
    def server_options(self) -> ServerOptions:
        """The server's options."""
        return ServerOptions(
            first_message_s=self.first_message_s,
            stream_idle_s=self.stream_idle_s,
            reflection=self.reflection,
            tls=self.server_tls,
            health_address=self.health_listen,
            redact=redacted,
            streams_per_connection=128,  # a flood starts with this many calls at once
        )

    @property
    def scoring(self) -> ScoringLimits:
        """The resource limits of scoring in this process."""
        scorers = min(self.scorers, most_scorers())
        return ScoringLimits(scorers, self.scoring_timeout_s, self.scoring_memory_mib)
