"""Settings of servers and channels, and the gRPC channel arguments made of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc
    import grpc.aio

    from assay.identity.audit import Auditor
    from assay.identity.authenticator import Authenticator
    from assay.rpc.team_admission import TeamAdmission
    from assay.rpc.tls import ClientFiles, ServerFiles

Arguments = list[tuple[str, int | str]]

MIB = 1024 * 1024
VERSION_KEY = "assay-version"
"""The metadata of an answer to a health check in which a server gives its version of Assay."""
MAX_ATTEMPTS = 5  # gRPC silently clamps a larger number
_MAX_PENDING_CALLS = 50_000
MIN_RETRY_MS = 10  # with pauses of 1 ms gRPC forgets every second retry, and the call hangs


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The limits and timings of a server.

    Args:
        keepalive_time_ms: A quiet connection is probed this often.
        keepalive_timeout_ms: A peer that does not answer a probe for this long is gone.
        min_ping_interval_ms: Clients that probe a quiet connection more often are cut off.
        max_message_bytes: Largest message, both ways.
        connection_age_ms: Connections are renewed after this time, so that new servers get work.
        connection_age_grace_ms: Calls on an aged connection may take this long.
        connection_idle_ms: A connection without calls is closed after this time.
        streams_per_connection: Calls at once on one connection; more wait in the client.
        max_concurrent_calls: Calls with one answer that run at once; more are refused.
        max_open_streams: Calls with a stream either way that run at once; more are refused.
        peer_ratio: One client address may hold this many times as many of either as are free.
        deadline_cap_s: A call with one answer runs no longer than this, whatever the client asked for.
        first_message_s: The first message of a client's stream must come within this time.
        stream_idle_s: A client's stream on which the server waits for a message ends after this time without one.
        write_stall_s: A stream whose client takes no message for this long is ended.
        status_stall_s: A status that a client does not take for this long is left to gRPC, which keeps it for later.
        handshake_s: A new connection must have introduced itself within this time.
        max_connections: Connections at once; more are closed when they come.
        reflection: Whether tools may ask the server for its contracts.
        tls: What the server proves its identity with, over TLS; None for plain connections.
        credentials: The same, made elsewhere.
        interceptors: Further ones, between Assay's own and the handlers; a request reaches them as bytes.
        health_address: A further address that serves health alone, without TLS and tokens; empty for none.
        authenticator: Knows the tokens that callers must have; None where no call needs one.
        auditor: Stores what callers with an identity changed, and what was refused; None where nothing is recorded.
        recheck_s: The token of an open stream is looked up again this often.
        redact: Returns the text of an error without secrets, before it is sent.
        team_admission: Knows how many calls teams may make; None for any number.
        refused_s: Calls of a team that was refused are refused without a look for this long at most.
    """

    keepalive_time_ms: int = 30_000
    keepalive_timeout_ms: int = 10_000
    min_ping_interval_ms: int = 10_000
    max_message_bytes: int = 4 * MIB
    connection_age_ms: int = 1_800_000
    connection_age_grace_ms: int = 300_000
    connection_idle_ms: int = 900_000
    streams_per_connection: int = 256
    max_concurrent_calls: int = 1_000
    max_open_streams: int = 1_000
    peer_ratio: float = 4.0
    deadline_cap_s: float = 600.0
    first_message_s: float = 10.0
    stream_idle_s: float = 60.0
    write_stall_s: float = 60.0
    status_stall_s: float = 5.0
    handshake_s: float = 10.0
    max_connections: int = 10_000
    reflection: bool = True
    tls: ServerFiles | None = None
    credentials: grpc.ServerCredentials | None = None
    interceptors: tuple[grpc.aio.ServerInterceptor, ...] = ()
    health_address: str = ""
    authenticator: Authenticator | None = None
    auditor: Auditor | None = None
    recheck_s: float = 30.0
    redact: Callable[[str], str] = str
    team_admission: TeamAdmission | None = None
    refused_s: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self)


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """The limits and timings of a client.

    Args:
        keepalive_time_ms: A connection with open calls is probed this often; at least the server's
            `min_ping_interval_ms`.
        keepalive_timeout_ms: A server that does not answer a probe for this long is gone.
        max_message_bytes: Largest message, both ways.
        default_timeout_s: Deadline of a call with one request and one answer that names none.
        connect_timeout_ms: A server that does not complete a connection within this time is tried again.
        reconnect_min_ms: First pause before connecting again.
        reconnect_max_ms: Longest pause before connecting again.
        attempts: Attempts in all of an idempotent call that finds its server unavailable, 1 to 5.
        retry_min_ms: First pause before another attempt, at least 10.
        retry_max_ms: Longest pause before another attempt.
        pool_health: Whether calls to the servers behind a name go only to those whose health says that the process as
            a whole serves; for servers that have it.
        authority: The host and port that the server is known by, where the channel names its addresses; TLS demands a
            certificate for it.
        proxy: "http://host:port" of a proxy that connections are made through; empty for none.
        tls: How the server is recognised, over TLS, and the client proves its identity; None for plain connections,
            but to another machine with a token.
        credentials: The same, made elsewhere.
        token: An API token, sent with every call; empty for none. It leaves this machine over TLS alone.
        interceptors: Further ones, after Assay's own.
    """

    keepalive_time_ms: int = 30_000
    keepalive_timeout_ms: int = 10_000
    max_message_bytes: int = 4 * MIB
    default_timeout_s: float = 10.0
    connect_timeout_ms: int = 5_000
    reconnect_min_ms: int = 100
    reconnect_max_ms: int = 5_000
    attempts: int = 4
    retry_min_ms: int = 100
    retry_max_ms: int = 2_000
    pool_health: bool = True
    tls: ClientFiles | None = None
    credentials: grpc.ChannelCredentials | None = None
    authority: str = ""
    proxy: str = ""
    token: str = field(default="", repr=False)
    interceptors: tuple[grpc.aio.ClientInterceptor, ...] = ()

    def __post_init__(self) -> None:
        _require_positive(self)
        if self.attempts > MAX_ATTEMPTS:
            raise ValueError(f"attempts is {self.attempts}; gRPC makes at most {MAX_ATTEMPTS}")
        if self.retry_min_ms < MIN_RETRY_MS:
            raise ValueError(f"retry_min_ms is {self.retry_min_ms}; it must be at least {MIN_RETRY_MS}")
        if self.reconnect_max_ms < self.reconnect_min_ms or self.retry_max_ms < self.retry_min_ms:
            raise ValueError("a longest pause is shorter than its first pause; raise the _max_ms value")


def server_arguments(options: ServerOptions) -> Arguments:
    """Return the channel arguments of a server."""
    return [
        *_shared_arguments(options),
        ("grpc.so_reuseport", 0),  # two servers would otherwise share a port and split its calls
        ("grpc.max_concurrent_streams", options.streams_per_connection),
        ("grpc.max_connection_age_ms", options.connection_age_ms),
        ("grpc.max_connection_age_grace_ms", options.connection_age_grace_ms),
        ("grpc.max_connection_idle_ms", options.connection_idle_ms),
        ("grpc.server_handshake_timeout_ms", int(options.handshake_s * 1000)),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        ("grpc.http2.min_ping_interval_without_data_ms", options.min_ping_interval_ms),
        # Above 1,000 calls that wait for Python, which one client can send, gRPC would cancel calls at random.
        ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MAX_PENDING_CALLS),
    ]


def channel_arguments(options: ChannelOptions, service_config: str) -> Arguments:
    """Return the channel arguments of a client.

    Args:
        options: The client's settings.
        service_config: gRPC service config as JSON.
    """
    return [
        *_shared_arguments(options),
        ("grpc.http2.max_pings_without_data", 0),  # 0: pings continue while nothing is sent
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.initial_reconnect_backoff_ms", options.reconnect_min_ms),
        ("grpc.min_reconnect_backoff_ms", options.connect_timeout_ms),  # in spite of its name
        ("grpc.max_reconnect_backoff_ms", options.reconnect_max_ms),
        *_way_to_the_server(options),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.service_config", service_config),
        # A request larger than this buffer (256 KiB unless set) would silently never be retried.
        ("grpc.per_rpc_retry_buffer_size", options.max_message_bytes),
    ]


def _way_to_the_server(options: ChannelOptions) -> Arguments:
    ways: Arguments = [("grpc.enable_http_proxy", 0)]  # a proxy in the environment breaks even loopback calls
    if options.proxy:
        ways = [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", options.proxy)]
    if options.authority:
        host = options.authority.rpartition(":")[0].strip("[]")
        ways += [("grpc.default_authority", options.authority), ("grpc.ssl_target_name_override", host)]
    return ways


def _shared_arguments(options: ServerOptions | ChannelOptions) -> Arguments:
    return [
        ("grpc.keepalive_time_ms", options.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", options.keepalive_timeout_ms),
        # The keepalive timeout alone has no effect: a dead peer is then noticed after 60 s.
        ("grpc.http2.ping_timeout_ms", options.keepalive_timeout_ms),
        # Growing windows let a reader that stalls buffer megabytes per stream.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
    ]


def _require_positive(options: ServerOptions | ChannelOptions) -> None:
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise ValueError(f"{option.name} is {value}; it must be greater than 0")
