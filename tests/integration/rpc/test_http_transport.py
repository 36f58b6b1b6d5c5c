"""HTTP: connections, TLS, addresses, limits and ends of the transport, and what the providers' client refuses."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from tests.support.processes.waiting import until

from assay.http.transport import HttpTransport
from assay.providers.client import Service
from assay.providers.errors import MalformedReplyError, ReplyTooLargeError
from assay.providers.http_client import connection_to
from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


CERTIFICATE = Path(__file__).with_name("localhost.pem")  # self-signed, valid for 100 years, known to this test alone
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Sends one reply per request; counts connections."""

    def __init__(self, reply: bytes = REPLY) -> None:
        self.reply = reply
        self.connection_count = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connection_count += 1
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                writer.write(self.reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has hung up, as it may
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server, *, tls: bool = False) -> AsyncIterator[int]:
    """Listen, and return the port."""
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context, limit=2**22)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@asynccontextmanager
async def client_of(concurrency: int = 4, *, trusted: bool = True) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client; it trusts the certificate of these tests, or that of no one here."""
    transport = HttpTransport(concurrency)
    if trusted:
        transport._context = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_tls_connections_are_kept_and_checked(host: str) -> None:
    """A certificate is checked for the host that was asked for, and one connection serves request after request."""
    server = Server()
    async with serving(server, tls=True) as port, client_of() as client, client_of(trusted=False) as stranger:
        for _ in range(10):
            assert (await client.post(f"https://{host}:{port}/", content=b"x")).text == "ok"
        assert server.connection_count <= 2, "session tickets of TLS 1.3 may cost one connection"
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await stranger.get(f"https://{host}:{port}/")


async def test_surplus_within_tls_is_no_reply() -> None:
    """Bytes that the socket no longer holds, as they were decrypted with the reply, are seen as well."""
    server = Server(REPLY + REPLY.replace(b"ok", b"no"))
    async with serving(server, tls=True) as port, client_of() as client:
        for _ in range(10):
            assert (await client.get(f"https://127.0.0.1:{port}/")).text == "ok"
    assert server.connection_count == 10


async def test_a_name_whose_first_address_refuses_is_still_reached() -> None:
    """`localhost` is two addresses on most machines, of which this server has one."""
    async with serving(Server()) as port, client_of() as client:
        assert (await client.get(f"http://localhost:{port}/")).text == "ok"


async def test_a_port_that_is_closed_and_a_name_that_is_not_known() -> None:
    """Both are failures to connect: nothing was sent."""
    async with serving(Server()) as port:
        pass
    async with client_of() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/")
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://name.invalid/")
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/")


async def test_a_large_body_arrives_whole_and_only_as_fast_as_it_is_read() -> None:
    """20 MiB pass in both directions; a server whose reply is not read keeps the rest of it until reading resumes."""
    size = 20 * 1024 * 1024
    server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
    async with serving(server) as port, client_of() as client:
        assert len((await client.post(f"http://127.0.0.1:{port}/", content=b"y" * size)).content) == size
        async with client.stream("GET", f"http://127.0.0.1:{port}/") as reply:
            chunks = reply.aiter_raw()
            first = await anext(chunks)
            wire = next(iter(client._transport._wires))  # type: ignore[attr-defined]  # what no caller needs to know
            sending = server.writers[0].transport
            # A client that reads ahead takes everything.
            await until(lambda: not wire._transport.is_reading() or not sending.get_write_buffer_size())
            assert sending.get_write_buffer_size() > 0, "the client took all that the server sends"
            assert len(wire.unread) < 1024 * 1024
            assert len(first) + sum([len(chunk) async for chunk in chunks]) == size
        assert server.connection_count == 1


async def test_no_more_than_the_allowed_requests_are_under_way() -> None:
    """Further ones wait; ones that are cancelled while they wait or run give their place back."""
    going = 0
    most = 0
    free = asyncio.Event()

    class Slow(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal going, most
            going += 1
            most = max(most, going)
            await free.wait()
            going -= 1
            await super().handle(reader, writer)

    async with serving(Slow()) as port, client_of(2) as client:
        tasks = [asyncio.create_task(client.get(f"http://127.0.0.1:{port}/")) for _ in range(8)]
        await until(lambda: going >= 2)
        for task in tasks[:6]:
            task.cancel()
        await asyncio.gather(*tasks[:6], return_exceptions=True)
        free.set()
        assert [reply.text for reply in await asyncio.gather(*tasks[6:])] == ["ok", "ok"]
    assert most <= 4, "two at once, and the two after them"


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """A server that drops idle connections costs a new connection, not a question."""
    server = Server()
    async with serving(server) as port, client_of() as client:
        for _ in range(5):
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "ok"
            server.writers[-1].close()
            await server.writers[-1].wait_closed()
    assert server.connection_count == 5


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"", "closed the connection without a reply"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "without sending complete message body"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "too long"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "without a pending proposal"),
    ],
)
async def test_what_is_no_reply_is_a_protocol_error(reply: bytes, says: str) -> None:
    """Each breaks its own request, in httpx2's words or ours, and nothing else."""

    class Broken(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            writer.close()

    async with serving(Broken()) as port, client_of() as client:
        with pytest.raises(httpx2.RemoteProtocolError, match=says):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_a_body_that_ends_with_the_connection_is_read() -> None:
    """Servers of HTTP/1.0 announce no length."""

    class Old(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nold")
            await writer.drain()
            writer.close()

    async with serving(Old()) as port, client_of() as client:
        assert [(await client.get(f"http://127.0.0.1:{port}/")).text for _ in range(3)] == ["old"] * 3


GZIP, BROTLI = ({"content-encoding": encoding} for encoding in ("gzip", "br"))


async def answered(reply: Reply) -> tuple[int, bytes]:
    """Return status and body of one reply, through a client that reads 1 MiB."""
    with ScriptedProvider(reply) as provider:
        async with connection_to(Service(provider.url), 1, 1024 * 1024) as client:
            response = await client.post(provider.url, json={})
            return response.status_code, response.content


@pytest.mark.parametrize(
    ("reply", "refusal", "says"),
    [
        (Reply(raw=b"x" * (1024 * 1024 + 1)), ReplyTooLargeError, "larger than 1 MiB"),
        (Reply(raw=gzip.compress(b"x" * (1024 * 1024 + 1)), headers=GZIP), ReplyTooLargeError, "larger than 1 MiB"),
        (Reply(raw=b"\x0b\x00\x80\x03", headers=BROTLI), MalformedReplyError, "compressed as 'br'"),
    ],
)
async def test_a_reply_that_may_be_endless_is_not_read(reply: Reply, refusal: type[Exception], says: str) -> None:
    """It is cut off where it is too long, packed or not; what cannot be unpacked in pieces is not read."""
    with pytest.raises(refusal, match=says):
        await answered(reply)


async def test_a_reply_of_the_size_that_is_allowed_is_whole() -> None:
    """The bound itself is still allowed."""
    assert await answered(Reply(raw=b"x" * 1024 * 1024)) == (200, b"x" * 1024 * 1024)


async def test_a_compressed_error_still_has_its_status() -> None:
    """Whether to ask again depends on the status, which needs no body."""
    assert await answered(Reply(raw=b"\x1f\x8b", status=503, headers=GZIP)) == (503, b"")


async def test_a_redirection_is_not_followed() -> None:
    """A key goes to the host that it is for and no further."""
    status, _ = await answered(Reply(raw=b"", status=307, headers={"location": "http://127.0.0.1:1/"}))
    assert status == 307


async def test_a_cookie_does_not_come_back() -> None:
    """No question depends on the answer to another one."""
    with ScriptedProvider(Reply("yes", headers={"set-cookie": "session=1; Path=/"})) as provider:
        async with connection_to(Service(provider.url), 1) as client:
            for _ in range(2):
                await client.post(f"{provider.url}/v1/messages", json={})
    assert ["cookie" in request.headers for request in provider.requests] == [False, False]


def test_a_host_is_what_it_seems() -> None:
    """A host that two libraries read differently is refused."""
    with pytest.raises(ValueError, match="plain lower-case ASCII"):
        connection_to(Service("https://xn--exmple-cua.com"), 1)
