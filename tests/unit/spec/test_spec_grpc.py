"""The grpc adapter in a spec: what is refused, all of it at once, and what of it is read from files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.certificates import certificate_for

from assay.errors import SpecError
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.specs.agents import check_agent
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.variables import missing_variables
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.http_hosts import check_host
from assay_orchestrator.runs.admission import check_settings
from assay_orchestrator.runs.planner import Planner, agent_key
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"adapter": "grpc", "target": "agent.example.org:50051"}


def problems_of(**agent: Any) -> list[tuple[str, str]]:
    """Return field and message of what is wrong with a spec that has this agent."""
    try:
        spec_from_mapping({"agent": {**GOOD, **agent}, "metrics": ["latency"]}, needs_dataset=False)
    except SpecError as error:
        return [(problem.field, problem.message) for problem in error.problems]
    return []


def test_every_problem_is_found_at_once() -> None:
    """Target, option names, TLS, metadata and stream are read in one go."""
    problems = problems_of(
        target="http://agent:50051",
        timout="3s",
        tls={"certificate": "x"},
        stream="yes",
        metadata={"Authorization": "x", "authorization": "Bearer word", "trace-bin": "x", "grpc-timeout": "1S",
                  "host": "other", "x-a": [1], "x-b": "\n"},
    )  # fmt: skip
    assert sorted(field for field, _ in problems) == [
        "agent.metadata.Authorization", "agent.metadata.authorization", "agent.metadata.grpc-timeout",
        "agent.metadata.host", "agent.metadata.trace-bin", "agent.metadata.x-a", "agent.metadata.x-b",
        "agent.stream", "agent.target", "agent.timout", "agent.tls.certificate",
    ]  # fmt: skip
    assert "Bearer word" not in str(problems)


@pytest.mark.parametrize(
    "target",
    ["", "agent", "agent:", ":50051", "agent:0", "agent:65536", "agent:50051/x", "unix:/run/o.sock", "unix:1:2",
     "a b:1", "dns:///agent:1", "ipv4:10.0.0.1:80", "xds:agent", "agent:1,other:2", "[::1", "::1:50051", "agent:+1",
     "agent:1\n", "${HOST}:1", "-a:1", "[evil.test]:1"],
)  # fmt: skip
def test_what_is_no_host_and_port_is_refused(target: str) -> None:
    """gRPC has resolvers with names of their own, and one that reads a socket of this machine."""
    assert [field for field, _ in problems_of(target=target)] == ["agent.target"]
    assert check_host(AgentSpec("grpc", target), AgentAccess(["*.example.org"], []))


@pytest.mark.parametrize(
    "target", ["agent.example.org:50051", "127.0.0.1:1", "[::1]:65535", "agent_1:50051", "unix:12"]
)
def test_a_host_and_a_port_are_accepted(target: str) -> None:
    """Names, addresses of both versions; a host may be called unix."""
    assert problems_of(target=target) == []


def test_a_login_in_a_target_is_not_shown() -> None:
    """A login would be stored with the run and shown in its report."""
    ((field, message),) = problems_of(target="user:word@agent:50051")
    assert (field, "word@" in message) == ("agent.target", False)


@pytest.mark.parametrize(
    ("target", "allowed"),
    [("API.example.org:1", True), ("example.org.evil.test:1", False), ("evil.test:1", False), ("[::1]:1", False)],
)
def test_hosts_are_matched_by_pattern(target: str, allowed: bool) -> None:
    """Only the host decides, whatever its case."""
    assert (check_host(AgentSpec("grpc", target), AgentAccess(["*.example.org"], [])) == []) is allowed


def test_limits_are_found_by_host_and_by_target() -> None:
    """An operator limits a service by its host, or by host and port."""
    agent = AgentSpec("grpc", "Agent.test:50051")
    assert [agent_key(agent, {name: 1}) for name in ("agent.test", "Agent.test:50051", "other")] == [
        "agent.test", "Agent.test:50051", ""
    ]  # fmt: skip


async def test_a_process_that_calls_no_agents_checks_hosts_and_dials_nothing(tmp_path: Path) -> None:
    """Only the workers can know whether the service exists."""
    limits = Settings(database=tmp_path / "none.db", database_url="postgresql://db.test/assay", role="api")
    run = RunSpec("r", AgentSpec("grpc", "no-such.test:1"), (MetricSpec("latency"),))
    with pytest.raises(SpecError, match="--http-hosts"):
        check_settings(run, limits)
    assert check_settings(run, dataclasses.replace(limits, http_hosts=("*.test",))).agent == run.agent
    assert not await Planner(limits, None).agent_problems(run, AgentAccess.of_all(limits))


def test_variables_of_metadata_must_be_set() -> None:
    """Before anything is started, as for the headers of http."""
    agent = AgentSpec("grpc", "a:1", options={"metadata": {"authorization": "Bearer ${TOKEN}", "x": "plain"}})
    assert check_agent(agent) == []
    assert [problem.field for problem in missing_variables(agent, {})] == ["agent.metadata.authorization"]
    assert missing_variables(agent, {"TOKEN": "t"}) == []


def test_certificates_are_read_beside_the_spec(tmp_path: Path) -> None:
    """Certificates travel as text: the orchestrator opens no file that a spec names."""
    certificate = certificate_for("localhost")
    (tmp_path / "ca.pem").write_bytes(certificate.certificate_pem)
    spec = tmp_path / "assay.yaml"
    agent = "agent: {adapter: grpc, target: 'localhost:1', tls: {ca: FILE}}\nmetrics: [latency]\ndataset: d.jsonl\n"
    spec.write_text(agent.replace("FILE", "ca.pem"))
    tls = load_spec(spec).settings.agent.options["tls"]
    assert tls == {"ca": "ca.pem", "ca_pem": certificate.certificate_pem.decode()}
    (tmp_path / "key.pem").write_bytes(certificate.certificate_pem + certificate.key_pem)
    (tmp_path / "text.pem").write_text("no certificate")
    (tmp_path / "long.pem").write_bytes(certificate.certificate_pem * 200)
    for name, said in (("none.pem", "no file"), ("key.pem", "private key"), ("text.pem", "PEM"), ("long.pem", "larger"),
                       (".", "cannot be read"), ("3", "file name")):  # fmt: skip
        spec.write_text(agent.replace("FILE", name))
        with pytest.raises(SpecError, match=said) as caught:
            load_spec(spec)
        assert [(problem.field, problem.line) for problem in caught.value.problems] == [("agent.tls.ca", 1)], name
        assert "KEY--" not in str(caught.value)


@pytest.mark.parametrize("tls", [3, "yes", [], {}, {"ca": "x"}])
def test_tls_is_true_false_or_an_authority(tls: object) -> None:
    """Also where the client sent no certificates along."""
    (problem,) = check_agent(AgentSpec("grpc", "a:1", options={"tls": tls}))
    assert problem.field.startswith("agent.tls")
