"""The HTTP client under the providers' packages: what it refuses, over a real connection."""

from __future__ import annotations

import gzip

import pytest

from assay.providers.client import Service
from assay.providers.errors import MalformedReplyError, ReplyTooLargeError
from assay.providers.http_client import connection_to
from assay.testing.providers import Reply, ScriptedProvider

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
