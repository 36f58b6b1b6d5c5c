"""Reads the body of an HTTP reply without trusting its size."""

from __future__ import annotations

import asyncio
import zlib
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import MalformedAnswerError
from assay.model.answers.response_fields import excerpt
from assay.model.answers.response_limits import AnswerTooLargeError

if TYPE_CHECKING:
    import httpx2

MAX_BODY_BYTES = 4 * 1024 * 1024
_BEGINNING_BYTES = 4096
_THREADED_BYTES = 64 * 1024
_DETECT_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_CHUNK_BYTES = 4096
"""How much of the rest is copied for each member of a body."""
_CHARSETS = frozenset({
    "utf_16", "utf_16_le", "utf_16_be", "utf_32", "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932",
    "euc_jp", "iso2022_jp", "euc_kr", "cp949", "koi8_r", "koi8_u", "mac_roman", "cp437", "cp850", "cp852", "cp866",
    "cp874", "tis_620", "latin_1",
    *(f"cp{number}" for number in range(1250, 1259)),
    *(f"iso8859_{number}" for number in (*range(2, 12), 13, 14, 15, 16)),
})  # fmt: skip
"""Python's names of text encodings besides UTF-8; its other codecs decompress, or decode something else."""


async def read_body(reply: httpx2.Response) -> bytes:
    """Return the whole body, decompressed; a text is returned as UTF-8 from any known charset.

    Raises:
        AnswerTooLargeError: It is larger than 4 MiB, before or after decompression.
        MalformedAnswerError: Its compression was not requested or is broken, or it is not in its charset.
    """
    body = await _read(reply, MAX_BODY_BYTES + 1)
    encoding, charset = content_encoding(reply), _charset(reply)
    if len(body) <= MAX_BODY_BYTES and (encoding or charset):
        is_large = len(body) > _THREADED_BYTES
        args = body, encoding, charset
        body = await asyncio.to_thread(_in_utf8, *args) if is_large else _in_utf8(*args)
    if len(body) > MAX_BODY_BYTES:
        raise AnswerTooLargeError(f"the reply is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
    return body


def content_encoding(reply: httpx2.Response) -> str:
    """Return how a body is compressed, in lower case; the empty text if it is not."""
    encoding: str = reply.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


async def read_beginning(reply: httpx2.Response) -> bytes:
    """Return the beginning of a body, enough to explain a failure."""
    if content_encoding(reply):
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


def _charset(reply: httpx2.Response) -> str:
    """Return Python's name of a text's declared charset; the empty text for UTF-8, or if the charset is unknown.

    JSON is UTF-8 by its standard, whatever its headers say.
    """
    kind, _, parameters = reply.headers.get("content-type", "").partition(";")
    if not kind.strip().lower().startswith("text/"):
        return ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            # Without `codecs.lookup`, which tries to import a module of any name and caches it.
            charset = normalize_encoding(value.strip().strip("\"'").lower())
            charset = aliases.get(charset, charset)
            return charset if charset in _CHARSETS else ""
    return ""


def _in_utf8(body: bytes, encoding: str, charset: str) -> bytes:
    if encoding:
        body = _decompressed(body, encoding)
    if not charset or len(body) > MAX_BODY_BYTES:
        return body
    try:
        return body.decode(charset).encode()
    except UnicodeError:
        raise MalformedAnswerError(f"the reply is not valid {charset}, its declared charset: {excerpt(body)}") from None


def _decompressed(body: bytes, encoding: str) -> bytes:
    """Return a decompressed body; for a body over the limit, one byte too many."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise MalformedAnswerError(f"the reply is compressed as {encoding[:40]!r}, which was not requested")
    pieces: list[bytes] = []
    room, start = MAX_BODY_BYTES + 1, 0
    unpacker = zlib.decompressobj(_DETECT_GZIP_OR_ZLIB)
    try:
        while room and not (unpacker.eof and start == len(body)):
            if unpacker.eof and encoding == "deflate":
                raise MalformedAnswerError("more follows after the end of the reply's deflate data")
            if start == len(body):
                raise MalformedAnswerError(f"the reply's {encoding} data ends early")
            if unpacker.eof:  # gzip may have several members, each of which has its own beginning and end
                unpacker = zlib.decompressobj(_DETECT_GZIP_OR_ZLIB)
            chunk = body[start : start + _CHUNK_BYTES]
            pieces.append(unpacker.decompress(chunk, room))
            start += len(chunk) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
            room -= len(pieces[-1])
    except zlib.error as problem:
        raise MalformedAnswerError(f"the reply is not valid {encoding}, its declared encoding: {problem}") from None
    return b"".join(pieces)
