from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.admin.v1 import admin_pb2
from assay.agent.v1 import agent_pb2
from assay.embedder.v1 import embedder_pb2
from assay.identity.rights import Right
from assay.judge.v1 import judge_pb2
from assay.rpc.methods import METHODS, MethodRule, Name, Slots, service_config
from assay.rpc.options import ChannelOptions, ServerOptions, channel_arguments, server_arguments
from assay.rpc.server import RpcServer, rules_of
from assay.v1 import calibration_pb2, comparison_pb2, dataset_pb2, host_pb2, run_pb2, server_pb2

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    admin_pb2,
    agent_pb2,
    calibration_pb2,
    comparison_pb2,
    dataset_pb2,
    embedder_pb2,
    host_pb2,
    judge_pb2,
    run_pb2,
    server_pb2,
)
FACTORY = re.compile(r"\baio\.server\(|\bgrpc\.server\(|\b(in)?secure_channel\(")


def test_every_method_has_a_rule_that_fits_it() -> None:
    """A method added to a contract fails this test, and keeps its server from starting, until it has a rule."""
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            rules = METHODS[service.full_name]
            assert set(rules) == set(service.methods_by_name)
            assert len(rules_of(service.full_name, rules)) == len(rules)


def test_unary_methods_are_retried_as_their_contracts_say() -> None:
    """The option `idempotency_level` of a contract and the retries of a channel are the same statement."""
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                rule = METHODS[service.full_name][method.name]
                if not rule.client_streams and not rule.server_streams:
                    assert rule.idempotent == bool(method.GetOptions().idempotency_level), method.full_name


def test_no_stream_is_retried() -> None:
    """gRPC cannot replay a stream whose messages were seen; callers resume streams themselves."""
    rules = [rule for methods in METHODS.values() for rule in methods.values()]
    assert not [rule for rule in rules if rule.idempotent and (rule.client_streams or rule.server_streams)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"WatchRun": None}, r"assay\.v1\.RunService\.WatchRun has no rule"),
        ({"WatchRun": MethodRule(Slots.CALLS)}, r"the rule of assay\.v1\.RunService\.WatchRun is for another kind"),
        ({"GetRun": MethodRule(Slots.CALLS)}, r"the rule of assay\.v1\.RunService\.GetRun has no right"),
        (
            {"DeleteRun": MethodRule(Slots.CALLS, right=Right.RUN, names={"run_id": Name.SCOPED})},
            r"the rule of assay\.v1\.RunService\.DeleteRun has no audit",
        ),
        (
            {"GetRun": MethodRule(Slots.CALLS, right=Right.READ)},
            r"RunService\.GetRun and its request differ in the fields that name something: run_id;",
        ),
        (
            {"GetRun": MethodRule(Slots.CALLS, right=Right.READ, names={"run_id": Name.SCOPED, "team": Name.TEAM})},
            r"RunService\.GetRun and its request differ in the fields that name something: team;",
        ),
    ],
)
def test_a_method_without_a_fitting_rule_keeps_the_server_from_starting(
    changes: dict[str, MethodRule | None], says: str
) -> None:
    """Nothing is served of which it was not decided what it needs."""
    rules = {**METHODS["assay.v1.RunService"], **changes}
    with pytest.raises(RuntimeError, match=says):
        RpcServer().add(
            "assay.v1.RunService", lambda server: None, {name: rule for name, rule in rules.items() if rule is not None}
        )


def test_a_service_without_contract_and_rules_is_refused() -> None:
    """Also what has no descriptor is served by its rules alone."""
    with pytest.raises(RuntimeError, match=r"other\.Service has no rules"):
        RpcServer().add("other.Service", lambda server: None)


def test_one_attempt_means_no_retry() -> None:
    """gRPC refuses a policy of one attempt; none at all is what is meant."""
    assert service_config(ChannelOptions(attempts=1), pool=False) == "{}"


def test_nothing_else_makes_servers_or_channels() -> None:
    """The settings that were learnt from failures hold everywhere because there is one factory."""
    sources = [path for folder in ("library", "services", "cli", "examples") for path in (ROOT / folder).rglob("*.py")]
    makers = {
        str(path.relative_to(ROOT))
        for path in sources
        if "v1" not in path.parts and FACTORY.search(path.read_text(encoding="utf-8"))
    }
    assert makers == {"library/assay/rpc/server.py", "library/assay/rpc/channel.py"}


def test_client_side_stays_light() -> None:
    """A client loads neither the servers of health and reflection nor anything heavy; gRPC is quiet."""
    code = (
        "import sys, os, assay.rpc.channel\n"
        "print(os.environ['GRPC_VERBOSITY'], [name for name in sys.modules if name.startswith("
        "('grpc_health.v1.health', 'grpc_reflection.', 'numpy', 'torch')) and not name.endswith('_pb2')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout.strip() == "ERROR []"


@pytest.mark.parametrize("options", [ServerOptions, ChannelOptions])
@pytest.mark.parametrize("field", ["keepalive_time_ms", "keepalive_timeout_ms", "max_message_bytes"])
def test_impossible_setting_is_named(options: type, field: str) -> None:
    """A setting of 0 would mean something surprising to gRPC; it is refused by name."""
    with pytest.raises(ValueError, match=f"{field} is 0; it must be greater than 0"):
        options(**{field: 0})


def test_impossible_combinations_are_named() -> None:
    """What gRPC would clamp or ignore silently is refused."""
    with pytest.raises(ValueError, match="at most 5"):
        ChannelOptions(attempts=6)
    with pytest.raises(ValueError, match="longest pause is shorter"):
        ChannelOptions(retry_min_ms=500, retry_max_ms=100)
    with pytest.raises(ValueError, match="at least 10"):
        ChannelOptions(retry_min_ms=1)


def test_dead_peers_are_noticed_on_both_sides() -> None:
    """The ping timeout goes with every keepalive: without it the keepalive timeout has no effect."""
    server = dict(server_arguments(ServerOptions(keepalive_timeout_ms=1234)))
    client = dict(channel_arguments(ChannelOptions(keepalive_timeout_ms=1234), "{}"))
    assert server["grpc.http2.ping_timeout_ms"] == client["grpc.http2.ping_timeout_ms"] == 1234
    assert server["grpc.so_reuseport"] == 0
    assert client["grpc.enable_http_proxy"] == 0
    assert server["grpc.http2.bdp_probe"] == client["grpc.http2.bdp_probe"] == 0


def test_default_client_is_welcome_at_a_default_server() -> None:
    """A client that probes more often than its server allows would be cut off."""
    assert ChannelOptions().keepalive_time_ms >= ServerOptions().min_ping_interval_ms
