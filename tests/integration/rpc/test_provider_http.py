"""The HTTP client under the providers' packages: what it refuses, over a real connection."""

from __future__ import annotations

import pytest

from assay.providers.http_client import ReplyRules
from assay.testing.providers import Reply, ScriptedProvider

GZIP = {"content-encoding": "gzip"}


class UnreadableError(Exception):
    """A reply that cannot be read."""


class TooLongError(Exception):
    """A reply that is too long."""


RULES = ReplyRules(UnreadableError, TooLongError, ascii, max_body_bytes=1024 * 1024)


async def answered(reply: Reply) -> tuple[int, bytes]:
    """Return status and body of one reply."""
    with ScriptedProvider(reply) as provider:
        async with RULES.client(provider.url, 1) as client:
            response = await client.post(provider.url, json={})
            return response.status_code, response.content


@pytest.mark.parametrize(
    ("reply", "refusal", "says"),
    [
        (Reply(raw=b"x" * (1024 * 1024 + 1)), TooLongError, "larger than 1 MiB"),
        (Reply(raw=b"\x1f\x8b", headers=GZIP), UnreadableError, "compressed as 'gzip'"),
    ],
)
async def test_a_reply_that_may_be_endless_is_not_read(reply: Reply, refusal: type[Exception], says: str) -> None:
    """It is cut off where it is too long, and not unfolded where it is compressed."""
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


def test_a_host_is_what_it_seems() -> None:
    """A host that two libraries read differently is refused."""
    with pytest.raises(ValueError, match="plain lower-case ASCII"):
        RULES.client("https://xn--exmple-cua.com", 1)


@pytest.mark.parametrize("body", [b"NaN", b'{"a": Infinity}', b"{", b"\xff", b"[" * 100_000])
def test_a_reply_that_is_no_json_is_refused_with_its_beginning(body: bytes) -> None:
    """What Python reads as a number, or cannot read at all, is no JSON."""
    with pytest.raises(UnreadableError, match="the reply is not JSON: b'"):
        RULES.json_in(body)


def test_the_body_of_an_error_may_be_anything() -> None:
    """JSON is decoded, everything else is shown."""
    assert RULES.error_in(b'{"error": 1}') == {"error": 1}
    assert RULES.error_in(b"<html>") == "b'<html>'"
    assert RULES.error_in(b"") == ""
