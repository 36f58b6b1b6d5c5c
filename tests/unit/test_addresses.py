"""Addresses that no client can connect to are refused wherever one is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.judge_specs import judge_of

from assay.errors import InvalidInputError
from assay.http.addresses import dial_problem, host_problem
from assay.model.run import AgentSpec
from assay.specs.agents import check_agent
from assay.specs.judging import JudgePlace, check_judge
from assay_cli.options.shared import check_address
from assay_judge.judges import JudgeChoice
from assay_orchestrator.settings import Settings as OrchestratorSettings

if TYPE_CHECKING:
    from collections.abc import Callable

UNUSABLE = [
    "http://256.1.1.1:9/v1", "http://0177.0.0.1/v1", "http://1.2.3.4.5/v1", "http://256.1.1/", "http://h.0x/",
    "http://[::g]/v1", "http://[::1/v1", "http://[1.2.3.4]/v1", "http://[v1.x]/v1",
    "http://h:0/v1", "http://h:99999/v1", "http://h:abc/v1", "http://h:-1/v1",
    "http://a..b/v1", "http://.a/v1", "http://./v1", f"http://{'a' * 64}.example/v1", f"http://{'a.' * 127}de/v1",
    "http://h/v\n1", "http://é_/v1", "http://b\u00fc cher.de/v1", "http://-\u4e2d.de/v1", "http://\u4e2d-/v1",
]  # fmt: skip
USABLE = [
    "http://127.0.0.1:9/v1", "http://127.1/v1", "http://2130706433/v1", "http://0x7f.0.0.1/v1", "http://[::1]:8/v1",
    "http://h", "https://api.example.org.:443/v1", "http://my_service:1/v1", "http://h:/v1", "http://xn--bcher-kva.de/",
    "http://1.example/v1", "http://a-1/v1",
]  # fmt: skip


@pytest.mark.parametrize("url", UNUSABLE)
def test_an_address_that_no_client_can_dial_is_refused(url: str) -> None:
    """By the spec's judge and agents, and by the judge service, before anything is paid."""
    assert dial_problem(url)
    judge = judge_of("openai", "m", url)
    assert [problem.field for problem in check_judge(judge, JudgePlace.in_spec(judge, "judge"))] == ["judge.base_url"]
    assert [each.field for each in JudgeChoice("openai", "m", url).problems("judge.")] == ["judge.base_url"]
    for adapter in ("http", "a2a", "adk"):
        assert {problem.field for problem in check_agent(AgentSpec(adapter, url))} >= {"agent.target"}
    options = {"base_url": url}
    assert [each.field for each in check_agent(AgentSpec("openai", "m", options=options))] == ["agent.base_url"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("256.1.1.1:7070", "no IPv4 address"),
        ("a..b:7070", "which is no name"),
        ("[::g]:7070", "no IPv6 address"),
        ("dns:///256.1.1.1:7070", "no IPv4 address"),
        ("ipv4:10.0.0.1:7070,256.1.1.1:7070", "no IPv4 address"),
        ("ipv6:[::g]", "no IPv6 address"),
        ("h:0", "must be host:port"),
        ("h", "must be host:port"),
        ("h:99999", "must be host:port"),
        ("http://h:1", "is a URL: write host:port, such as h:1"),
        *((usable, "") for usable in (
            "h:1", "10.0.0.1:7070", "[::1]:7070", "[fe80::1%eth0]:7070", "my_judge:7071", "unix:/run/j.sock",
            "dns:///judge.svc:7071", "dns:///judge.svc", "ipv4:10.0.0.1,10.0.0.2:7070", "ipv6:[::1]:7070", "",
        )),
    ],
)  # fmt: skip
def test_an_address_of_a_service_that_cannot_be_dialled_is_refused(address: str, message: str) -> None:
    """By each option with a service's address, and in the settings of the orchestrator."""
    context, option = click.Context(click.Command("c")), click.Option(["--server"])
    reads: tuple[Callable[[], object], ...] = (
        lambda: check_address(context, option, address),
        lambda: OrchestratorSettings.read(["--judge", address], {}).judge,
        lambda: OrchestratorSettings.read(["--embedder", address], {}).embedder,
    )
    for read in reads:
        if not message:
            assert read() == address
            continue
        with pytest.raises(InvalidInputError, match=message):
            read()


@pytest.mark.parametrize("url", USABLE)
def test_an_address_that_is_accepted_is_one_for_the_client(url: str) -> None:
    """The client's own URL class reads what the check lets through; it need not be installed for the check."""
    assert dial_problem(url) == ""
    httpx2.URL(url)


@given(st.text(alphabet="019abx.:[]-_%@/?#\\ \u00e9\u4e2d", max_size=12))
def test_no_address_is_refused_by_the_client_alone(place: str) -> None:
    """What the check lets through is a URL of the client's, whatever stands between the slashes."""
    url = f"http://{place}"
    if not dial_problem(url):
        httpx2.URL(url)


@pytest.mark.parametrize(("target", "is_usable"), [("256.1.1.1:9", False), ("[::g]:9", False), ("127.0.0.1:9", True)])
def test_targets_of_grpc_are_checked_alike(target: str, is_usable: bool) -> None:
    """A gRPC target's host is a name or an address too."""
    assert bool(check_agent(AgentSpec("grpc", target))) is not is_usable


def test_the_message_names_the_host() -> None:
    """The message names the host, so that a typo can be found."""
    assert (
        host_problem("256.1.1.1") == "names the host '256.1.1.1', which is no IPv4 address (four numbers from 0 to 255)"
    )
