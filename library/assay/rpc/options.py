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
        keepalive_time_ms: Interval of probes on a quiet connection.
        keepalive_timeout_ms: How long a probe may stay unanswered before the peer counts as gone.
        min_ping_interval_ms: Clients that probe a quiet connection more often are disconnected.
        max_message_bytes: Maximum size of a message in either direction.
        connection_age_ms: Connections are renewed after this time, so that new servers get calls.
        connection_age_grace_ms: How long calls on an aged connection may still take.
        connection_idle_ms: How long a connection without calls stays open.
        streams_per_connection: Maximum concurrent calls per connection; more wait in the client.
        max_concurrent_calls: Maximum concurrent unary calls; more are refused.
        max_open_streams: Maximum concurrent streaming calls; more are refused.
        peer_ratio: A client address may hold at most this multiple of the free slots, of either kind.
        deadline_cap_s: Maximum duration of a unary call, whatever deadline the client sets.
        first_message_s: Within this time the first message of a client stream must arrive.
        stream_idle_s: How long a client stream may be silent while the server waits for a message.
        write_stall_s: How long the client of a stream may read nothing before the stream is ended.
        status_stall_s: How long to wait until a client reads a status; then gRPC keeps it for later.
        handshake_s: Within this time a new connection must complete its handshake.
        max_connections: Maximum concurrent connections; more are closed at once.
        reflection: Whether tools may query the server's contracts.
        tls: The server's identity for TLS; None for plain connections.
        credentials: The same, made elsewhere.
        interceptors: Further interceptors between Assay's own and the handlers; they see requests as bytes.
        health_address: A further address that serves only health, without TLS and tokens; empty for none.
        authenticator: Identifies the tokens of callers; None if calls need none.
        auditor: Stores audit entries for changes and refusals; None to record nothing.
        recheck_s: Interval of checks of an open stream's token.
        redact: Removes secrets from the text of an error before it is sent.
        team_admission: Limits the calls of teams; None for no limit.
        refused_s: How long at most calls of a refused team are refused without a check.
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
        keepalive_time_ms: Interval of probes on a connection with open calls; at least the server's
            `min_ping_interval_ms`.
        keepalive_timeout_ms: How long a probe may stay unanswered before the server counts as gone.
        max_message_bytes: Maximum size of a message in either direction.
        default_timeout_s: Deadline of a unary call without one.
        connect_timeout_ms: Timeout of an attempt to connect.
        reconnect_min_ms: First pause before reconnecting.
        reconnect_max_ms: Longest pause before reconnecting.
        attempts: Maximum attempts at an idempotent call whose server is unavailable, 1 to 5.
        retry_min_ms: First pause before another attempt, at least 10.
        retry_max_ms: Longest pause before another attempt.
        pool_health: Whether calls to several servers behind a name go only to those that report the whole process as
            healthy; for servers that report health.
        authority: The server's own host and port if the channel names its addresses; TLS requires a certificate for it.
        proxy: The proxy for connections, "http://host:port"; empty for none.
        tls: The trusted authorities and the client's identity for TLS; None for plain connections, except to another
            machine with a token.
        credentials: The same, made elsewhere.
        token: An API token, sent with every call; empty for none. It leaves this machine only over TLS.
        interceptors: Further interceptors after Assay's own.
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
