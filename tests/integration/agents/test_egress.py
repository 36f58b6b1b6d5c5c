"""No spelling of an address, no name that changes and no proxy lets an agent of a spec reach a forbidden address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.services.certificates import certificate_for

from assay.agent_host.agent_server import agent_server
from assay.errors import InvalidInputError
from assay.http.egress import EVERYWHERE, Egress, own_networks, read_networks, read_proxy
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.grpc import GrpcAgent
from assay_orchestrator.agents.grpc_preflight import service_problems
from assay_orchestrator.agents.http import HttpAgent
from assay_orchestrator.agents.prompt import PromptAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

PUBLIC_ONLY = Egress(())
CASE = Case("c", (Turn("q"),))
LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "127.000.000.001", "2130706433", "0x7f000001", "0X7F000001", "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1", "0177.1", "017700000001", "00000177.0.0.1",
    "127.0.0.2", "127.127.127.127", "127.255.255.254", "0",
    "0.0.0.0", "0x0", "00", "0.0", "localhost", "LOCALHOST", "LocalHost", "localhost.", "ip6-localhost", "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::0001]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::FFFF:7F00:0001]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::7f00:1]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:0001::1]",
    "①②⑦.0.0.1", "127。0。0。1", "１２７.0.0.1", "127%2e0%2e0%2e1",
]  # fmt: skip
INSIDE = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]", "[fd00:ec2::254]",
    "100.100.100.200", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.0.8", "192.88.99.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "[fec0::1]", "[fc00::1]", "[fe80::1]", "[ff02::1]", "[2001::1]",
    "[2001:db8::1]", "[2002:a00:1::]",
]  # fmt: skip


def access_to(egress: Egress, *hosts: str) -> AgentAccess:
    """Return what an operator allows who allows every host, and addresses by `egress` alone."""
    return AgentAccess(hosts or ("*",), (), {}, egress)


def asked() -> AgentRequest:
    """Return a question."""
    return AgentRequest("id#0", "r", "c", "q", timeout_s=20.0)


class Canary:
    """A server at every address of this machine that counts who connects."""

    def __init__(self) -> None:
        self.hits = 0
        self.port = 0

    async def _hit(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hits += 1
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Canary]:
        """Listen while the block runs."""
        v4 = await asyncio.start_server(self._hit, "0.0.0.0", 0)
        self.port = v4.sockets[0].getsockname()[1]
        servers = [v4]
        if socket.has_ipv6:
            servers.append(await asyncio.start_server(self._hit, "::", self.port, family=socket.AF_INET6))
        try:
            yield self
        finally:
            for server in servers:
                server.close()


def http_agent(place: str, access: AgentAccess) -> HttpAgent:
    """Return an agent behind HTTP."""
    return HttpAgent(AgentSpec("http", f"http://{place}/ask"), access)


def prompt_agent(place: str, access: AgentAccess) -> PromptAgent:
    """Return a model behind a compatible service."""
    options = {"base_url": f"http://{place}/v1", "prompt": "{{input}}"}
    return PromptAgent(AgentSpec("openai", "m", options=options), access)


def grpc_agent(place: str, access: AgentAccess) -> GrpcAgent:
    """Return an AgentService."""
    return GrpcAgent(AgentSpec("grpc", place), access)


async def response_of(make: Callable[[str, AgentAccess], Any], place: str, access: AgentAccess) -> AgentResponse | None:
    """Return the answer of an agent; None where its place is refused before anything is asked."""
    try:
        agent = make(place, access)
    except InvalidInputError:
        return None
    try:
        response: AgentResponse = await agent.answer(asked(), CASE)
        return response
    finally:
        await agent.aclose()


@pytest.mark.parametrize("make", [http_agent, prompt_agent, grpc_agent])
async def test_no_spelling_of_a_forbidden_address_is_connected_to(make: Callable[..., Any]) -> None:
    """Seventy spellings of loopback, private, metadata and special addresses reach a server at them zero times."""
    assert len({*LOOPBACK, *INSIDE}) >= 60
    async with Canary().listening() as canary:
        for host in (*LOOPBACK, *INSIDE):
            response = await response_of(make, f"{host}:{canary.port}", access_to(PUBLIC_ONLY))
            assert response is None or (response.error and response.error.kind is AgentErrorKind.UNREACHABLE), host
        assert canary.hits == 0
        await response_of(make, f"127.0.0.1:{canary.port}", access_to(EVERYWHERE))
        assert canary.hits > 0  # it would have noticed


def rebinding(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str]) -> list[str]:
    """Make the name agent.test have another address each time it is resolved; return the names that were resolved."""
    loop, waiting, resolved = asyncio.get_running_loop(), list(addresses), list[str]()

    async def getaddrinfo(host: str, port: int, **_kind: Any) -> list[Any]:
        if own_networks([host]):  # an address: it stays what it is
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        resolved.append(host)
        address = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(type(loop), "getaddrinfo", lambda _self, host, port, **kind: getaddrinfo(host, port, **kind))
    return resolved


@pytest.mark.parametrize("make", [http_agent, prompt_agent, grpc_agent])
async def test_a_name_that_changes_after_the_check_leads_nowhere(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver names an allowed address and then a forbidden one: connections go to what was checked."""
    async with Canary().listening() as canary:
        resolved = rebinding(monkeypatch, ["127.0.0.2", "127.0.0.3"])
        only_second = Egress((ipaddress.ip_network("127.0.0.2"),))
        agent = make(f"agent.test:{canary.port}", access_to(only_second))
        try:
            await agent.answer(asked(), CASE)
            connected = canary.hits
            assert connected > 0  # at the address that was allowed
            response = await agent.answer(asked(), CASE)
        finally:
            await agent.aclose()
        assert canary.hits == connected
    assert response.error is not None
    assert not response.error.retryable  # it would be refused again
    assert "--egress-networks" in response.error.message
    assert "127.0.0" not in response.error.message  # what a name is inside of a network stays there
    assert set(resolved) == {"agent.test"}


async def test_one_forbidden_address_among_several_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of its addresses answers first is not the caller's to choose, so all of them have to be allowed."""
    loop = asyncio.get_running_loop()

    async def both(*_given: Any, **_kind: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 9)) for each in ("203.0.113.9", "10.0.0.1")]

    monkeypatch.setattr(type(loop), "getaddrinfo", both)
    response = await response_of(http_agent, "agent.test:9", access_to(PUBLIC_ONLY))
    assert response is not None
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.UNREACHABLE, False)


async def test_a_service_with_tls_is_known_by_its_name_at_the_address_that_was_checked() -> None:
    """The certificate must be for the host of the spec although gRPC is given an address, and for no other host."""
    own, other = certificate_for("localhost"), certificate_for("localhost")
    credentials = grpc.ssl_server_credentials([(own.key_pem, own.certificate_pem)])
    loopback = Egress(read_networks("127.0.0.0/8, ::1"))
    with agent_server(lambda question: f"{question}!", credentials=credentials) as server:
        target = server.address.replace("127.0.0.1", "localhost")
        for authority, expected in ((own, "q!"), (other, "")):
            tls = {"ca": "ca.pem", "ca_pem": authority.certificate_pem.decode()}
            agent = GrpcAgent(AgentSpec("grpc", target, options={"tls": tls}), access_to(loopback))
            assert bool(await service_problems(agent)) is not bool(expected)
            assert (await agent.answer(asked(), CASE)).text == expected
            await agent.aclose()


async def test_calls_go_through_the_proxy_of_the_operator() -> None:
    """The proxy gets the name as it is; what it refuses is the row's error, and literal addresses stay forbidden."""
    seen: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        place = head.split()[1].decode()
        seen.append(place)
        if place.startswith("agent.test:"):
            writer.write(b"HTTP/1.1 200 OK\r\nvia: proxy\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"text": "yes"}')
        else:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(proxy, "127.0.0.1", 0)
    egress = Egress((), read_proxy(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
    async with listener:
        answered = await response_of(http_agent, "agent.test:80", access_to(egress))
        refused = await response_of(http_agent, "other.test:81", access_to(egress))
        assert await response_of(http_agent, "10.0.0.1:80", access_to(egress)) is None
        await response_of(grpc_agent, "grpc.test:50051", access_to(egress))
    assert answered is not None
    assert answered.text == "yes"
    assert refused is not None
    assert refused.error is not None
    assert "HTTP 403" in refused.error.message
    assert seen[:2] == ["agent.test:80", "other.test:81"]
    assert set(seen[2:]) == {"grpc.test:50051"}


@given(st.ip_addresses(v=4))
def test_what_stands_for_an_ipv4_address_is_allowed_as_that_address_is(address: ipaddress.IPv4Address) -> None:
    """Mapped, compatible, translated and tunnelled forms: none of them is a way around a network that is forbidden."""
    number = int(address)
    forms = [
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1)),
    ]
    if number > 1:
        forms.append(str(ipaddress.IPv6Address(number)))
    assert {PUBLIC_ONLY.allows(form) for form in forms} == {PUBLIC_ONLY.allows(str(address))}


def test_networks_of_the_operator_are_allowed_but_for_metadata() -> None:
    """An operator who allows a whole private range does not hand out the credentials of the machine."""
    egress = Egress(read_networks("10.0.0.0/8,169.254.0.0/16,fd00::/8,100.64.0.0/10"))
    assert [egress.allows(each) for each in ("10.1.2.3", "fd00::7", "169.254.1.1", "8.8.8.8")] == [True] * 4
    forbidden = (
        "169.254.169.254", "::ffff:169.254.169.254", "::ffff:0:169.254.169.254", "fd00:ec2::254", "fd20:ce::254",
        "100.100.100.200", "169.254.170.2", "169.254.170.23", "fd00:ec2::23", "168.63.129.16", "::ffff:0:168.63.129.16",
        "192.168.1.1", "::ffff:0:192.168.1.1",
    )  # fmt: skip
    assert [each for each in forbidden if egress.allows(each)] == []
    assert egress.allows("::ffff:0:8.8.8.8")
    assert read_networks("10.0.0.0/8, *") is None
