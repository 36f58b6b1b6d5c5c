"""Reading the body of an HTTP reply without trusting its size."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from assay.model.agent_response import MalformedAnswerError
from assay.model.response_limits import AnswerTooLargeError

if TYPE_CHECKING:
    import httpx2

MAX_BODY_BYTES = 4 * 1024 * 1024
_BEGINNING_BYTES = 4096
_DETECT_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(reply: httpx2.Response) -> bytes:
    """Return the whole body, decompressed.

    Raises:
        AnswerTooLargeError: It is larger than 4 MiB, before or after decompression.
        MalformedAnswerError: It is compressed in a way that was not asked for, or its compression is broken.
    """
    body = await _read(reply, MAX_BODY_BYTES + 1)
    if len(body) <= MAX_BODY_BYTES:
        body = _decompressed(body, reply.headers.get("content-encoding", "identity"))
    if len(body) > MAX_BODY_BYTES:
        raise AnswerTooLargeError(f"the reply is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
    return body


async def read_beginning(reply: httpx2.Response) -> bytes:
    """Return the beginning of a body, as an explanation of a failure needs no more."""
    if reply.headers.get("content-encoding", "identity") != "identity":
        return b""
    return await _read(reply, _BEGINNING_BYTES)


async def _read(reply: httpx2.Response, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    # Raw: decoding chunk by chunk would unfold one small chunk into a thousand times its size.
    async for chunk in reply.aiter_raw():
        chunks.append(chunk)
        size += len(chunk)
        if size >= max_bytes:
            break
    return b"".join(chunks)[:max_bytes]


def _decompressed(body: bytes, encoding: str) -> bytes:
    if encoding in ("identity", ""):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise MalformedAnswerError(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
    unpacker = zlib.decompressobj(_DETECT_GZIP_OR_ZLIB)
    try:
        unpacked = unpacker.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as problem:
        raise MalformedAnswerError(f"the reply is not the {encoding} that it says it is: {problem}") from None
    if not unpacker.eof and len(unpacked) <= MAX_BODY_BYTES:
        raise MalformedAnswerError(f"the reply's {encoding} data ends early")
    return unpacked
