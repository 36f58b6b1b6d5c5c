"""TLS of servers and clients, and tokens that leave this machine over it alone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.services.certificates import Certificate, certificate_for

from assay.errors import SetupError
from assay.rpc.addresses import is_local
from assay.rpc.options import ChannelOptions, ServerOptions
from assay.rpc.tls import ClientFiles, ServerFiles, channel_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.rpc.conftest import Wire

TOKEN = "assay_0000000000_secret"


async def echo(request: bytes, context: Any) -> bytes:
    """Return the metadata that a handler sees of the token, and how its client proved its identity."""
    given = dict(context.invocation_metadata())
    names = context.auth_context().get("x509_common_name", [])
    return repr((given.get("authorization"), [name.decode() for name in names])).encode()


def stored(folder: Path, name: str, certificate: Certificate) -> tuple[Path, Path]:
    """Store a certificate and its key, each whole in one step; return their paths."""
    paths = (folder / f"{name}.pem", folder / f"{name}.key")
    for path, content in zip(paths, (certificate.certificate_pem, certificate.key_pem), strict=True):
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
    return paths


async def asked(wire: Wire, address: str, options: ChannelOptions) -> str:
    """Return what one call over a channel of its own answers."""
    channel = await wire.channel(address, options)
    method: Any = channel.unary_unary("/assay.test.Service/M")
    return bytes(await method(b"", timeout=30)).decode()


async def served(wire: Wire, options: ServerOptions) -> str:
    """Return the address of a server by the name that its certificate has."""
    address = await wire.serve({"M": ("unary_unary", echo)}, options=options)
    return address.replace("127.0.0.1", "localhost")


async def test_a_server_proves_its_identity_and_takes_a_token(wire: Wire, tmp_path: Path) -> None:
    """A client that trusts its authority reaches it; one that trusts others, and one without TLS, do not."""
    certificate, key = stored(tmp_path, "server", certificate_for("localhost"))
    other, _ = stored(tmp_path, "other", certificate_for("localhost"))
    address = await served(wire, ServerOptions(tls=ServerFiles(certificate, key)))
    tls = ClientFiles(certificate)
    assert await asked(wire, address, ChannelOptions(tls=tls, token=TOKEN)) == f"('Bearer {TOKEN}', [])"
    for refused in (ChannelOptions(tls=ClientFiles(other), attempts=1), ChannelOptions(attempts=1)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(wire, address, refused)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_list_of_addresses_is_reached_over_tls(wire: Wire, tmp_path: Path) -> None:
    """The first address stands for the list: each server has a certificate for it, and one of another is refused."""
    certificate, key = stored(tmp_path, "first", certificate_for("127.0.0.1"))
    other, other_key = stored(tmp_path, "second", certificate_for("127.0.0.2"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(certificate.read_bytes() + other.read_bytes())

    async def on(host: str, files: ServerFiles) -> str:
        server = wire.server({"M": ("unary_unary", echo)}, options=ServerOptions(tls=files))
        address = await server.start(f"{host}:0")
        server.set_serving(True)
        return address

    first = await on("127.0.0.1", ServerFiles(certificate, key))
    second = await on("127.0.0.2", ServerFiles(certificate, key))
    wrong = await on("127.0.0.2", ServerFiles(other, other_key))
    gone = "127.0.0.1:1"  # no port of a server: the next address is used
    options = ChannelOptions(tls=ClientFiles(trusted), token=TOKEN, attempts=1)
    for listed in (first, f"{first},{second}", f"{gone},{second}", f"{gone},{wrong},{second}"):
        assert await asked(wire, f"ipv4:{listed}", options) == f"('Bearer {TOKEN}', [])"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(wire, f"ipv4:{gone},{wrong}", options)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_new_certificate_is_used_without_a_restart(wire: Wire, tmp_path: Path) -> None:
    """New connections get it once both files are replaced; a half-replaced pair leaves the old one in use."""
    first, second = certificate_for("localhost"), certificate_for("localhost")
    certificate, key = stored(tmp_path, "server", first)
    trusted = [stored(tmp_path, name, content)[0] for name, content in (("first", first), ("second", second))]
    address = await served(wire, ServerOptions(tls=ServerFiles(certificate, key)))

    async def reached(number: int) -> bool:
        # Connections are shared by channels of equal settings: each is given one of its own.
        options = ChannelOptions(tls=ClientFiles(trusted[number]), attempts=1, reconnect_max_ms=next(numbers))
        try:
            await asked(wire, address, options)
        except grpc.aio.AioRpcError:
            return False
        return True

    numbers = iter(range(5_000, 6_000))
    assert [await reached(0), await reached(1)] == [True, False]
    certificate.write_bytes(second.certificate_pem)
    assert [await reached(0), await reached(1)] == [True, False]
    key.write_bytes(second.key_pem)
    assert [await reached(0), await reached(1)] == [False, True]
    key.unlink()
    assert [await reached(0), await reached(1)] == [False, True]


async def test_a_server_may_take_known_clients_alone(wire: Wire, tmp_path: Path) -> None:
    """With an authority of clients, one without a certificate of it is not connected."""
    certificate, key = stored(tmp_path, "server", certificate_for("localhost"))
    own, own_key = stored(tmp_path, "client", certificate_for("orchestrator"))
    other, other_key = stored(tmp_path, "other", certificate_for("orchestrator"))
    address = await served(wire, ServerOptions(tls=ServerFiles(certificate, key, client_ca=own)))
    tls = ClientFiles(certificate, own, own_key)
    assert await asked(wire, address, ChannelOptions(tls=tls)) == "(None, ['orchestrator'])"
    for refused in (ClientFiles(certificate), ClientFiles(certificate, other, other_key)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(wire, address, ChannelOptions(tls=refused, attempts=1))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_files_that_cannot_be_used_are_named(wire: Wire, tmp_path: Path) -> None:
    """A server does not start, and a client is not made, with a missing file or a key of another certificate."""
    certificate, key = stored(tmp_path, "server", certificate_for("localhost"))
    _, other = stored(tmp_path, "other", certificate_for("localhost"))
    wrong = {
        ServerFiles(certificate, tmp_path / "none"): "none cannot be read",
        ServerFiles(certificate, other): "is not the private key of the certificate",
        ServerFiles(key, key): "is not the private key of the certificate",
        ServerFiles(certificate, key, tmp_path / "nothing"): "nothing cannot be read",
    }
    for files, message in wrong.items():
        with pytest.raises(SetupError, match=message):
            await served(wire, ServerOptions(tls=files))
    for client in (ClientFiles(tmp_path / "none"), ClientFiles(certificate, certificate, other)):
        with pytest.raises(SetupError):
            channel_credentials(client)


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[str, asyncio.Future[bytes]]]:
    """Yield an address that counts as another machine's, and the first bytes that come there."""
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(65_536)
        if not arrived.done():
            arrived.set_result(data)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"0.0.0.0:{server.sockets[0].getsockname()[1]}", arrived
    finally:
        server.close()


async def test_a_token_leaves_this_machine_over_tls_alone(wire: Wire) -> None:
    """A plain server on another machine gets the beginning of TLS, and never the token; without one, a plain call."""
    for token, first in ((TOKEN, b"\x16\x03"), ("", b"PR")):
        async with listener() as (address, arrived):
            channel = await wire.channel(address, ChannelOptions(token=token, attempts=1))
            method: Any = channel.unary_unary("/assay.test.Service/M")
            with pytest.raises(grpc.aio.AioRpcError):
                await method(b"", timeout=30)
            data = await arrived
            assert data.startswith(first)
            assert b"secret" not in data


async def test_a_token_is_sent_to_this_machine_without_tls(wire: Wire, tmp_path: Path) -> None:
    """Loopback and unix sockets are read by this machine alone."""
    address = await wire.serve({"M": ("unary_unary", echo)})
    assert await asked(wire, address, ChannelOptions(token=TOKEN)) == f"('Bearer {TOKEN}', [])"
    server = wire.server({"M": ("unary_unary", echo)})
    await server.start(f"unix:{tmp_path}/s")
    assert await asked(wire, f"unix:{tmp_path}/s", ChannelOptions(token=TOKEN)) == f"('Bearer {TOKEN}', [])"


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_calls_of_every_kind_carry_the_token_once(wire: Wire, kind: str) -> None:
    """Beside metadata of the call's own; and its options are passed on."""
    seen: list[tuple[str, str]] = []

    async def one(request: Any, context: Any) -> bytes:
        seen.extend((key, value) for key, value in context.invocation_metadata() if key in ("authorization", "x-own"))
        return b""

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await one(request, context)

    address = await wire.serve({"M": (kind, many if kind.endswith("stream") else one)})
    channel = await wire.channel(address, ChannelOptions(token=TOKEN))
    request: Any = iter([b""]) if kind.startswith("stream") else b""
    call: Any = getattr(channel, kind)("/assay.test.Service/M")(request, metadata=(("x-own", "1"),), timeout=30)
    await (call.read() if kind.endswith("stream") else call)
    assert sorted(seen) == [("authorization", f"Bearer {TOKEN}"), ("x-own", "1")]


def test_a_token_is_not_in_the_repr_of_options() -> None:
    """What is logged of a channel shows none."""
    assert TOKEN not in repr(ChannelOptions(token=TOKEN))


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("unix:/tmp/s", True), ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("localhost:1", True),
        ("LOCALHOST.:1", True), ("dns:///localhost:1", True), ("ipv4:127.0.0.1:1", True), ("ipv6:[::1]:1", True),
        ("0.0.0.0:1", False), ("[::]:1", False), (":1", False), ("10.0.0.1:1", False), ("example.com:1", False),
        ("localhost.example.com:1", False), ("127.0.0.1.example.com:1", False), ("[::ffff:10.0.0.1]:1", False),
        ("2130706433:1", False), ("127.1:1", False), ("dns://127.0.0.1/example.com:1", False), ("", False),
    ],
)  # fmt: skip
def test_which_addresses_stay_on_this_machine(address: str, local: bool) -> None:
    """What is not plainly this machine counts as another one; names that only look like it, too."""
    assert is_local(address) is local


@given(st.text(max_size=40))
def test_any_text_is_local_or_not(address: str) -> None:
    """No address is a failure of the check itself."""
    assert is_local(address) in (True, False)
