"""Redaction of secret values from texts, in any spelling."""

from __future__ import annotations

import base64
import json
import re
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECOGNISABLE_CHARS = 8
"""A value of fewer characters may be an ordinary word as well."""
REDACTED = "[redacted]"
"""What stands in place of a value."""
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
_SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:key|apikey|token|secret|password|passwd|passphrase|credentials?)$")


class Redactor:
    """Removes values from texts.

    Args:
        values: The values; none is empty.
        secrets: Pure secrets: their parts at either end of a text, as in the pieces of a stream, are removed too. A
            part of another value, such as a URL, may be an ordinary word.
    """

    def __init__(self, values: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        secrets = frozenset(secrets)
        # The longest first, as one may hold another.
        self._values = [_Value(text) for text in sorted({*values, *secrets}, key=len, reverse=True)]
        self._long_values = [known for known in self._values if len(known.text) >= RECOGNISABLE_CHARS]
        self._secrets = [known for known in self._long_values if known.text in secrets]

    def redact(self, text: str) -> str:
        """Return a message without the values, and without the beginning of a value at a cut end."""
        for value in self._values:
            text = value.redact(text)
        for value in self._values:
            text = _without_beginnings(text, value.beginnings)
        return text

    def redact_long(self, text: str) -> str:
        """Return a text without the values of 8 characters or more, and without a part of a secret at its ends."""
        if len(text) >= RECOGNISABLE_CHARS:
            for value in self._long_values:
                text = value.redact(text)
            for secret in self._secrets:
                for spelling in secret.beginnings:
                    text = _without_parts(text, spelling)
        return text

    def redact_line(self, text: str) -> str:
        """Return a log line without values of 8 characters or more, and without beginnings of secrets."""
        for value in self._long_values:
            text = value.redact(text)
        for secret in self._secrets:
            text = _without_beginnings(text, secret.beginnings)
        return text


def is_secret_name(name: str) -> bool:
    """Return whether a variable's name marks a key, token or password, e.g. OPENAI_API_KEY."""
    return _SECRET_NAME.search(name) is not None


def secret_values(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names mark keys, tokens or passwords, e.g. OPENAI_API_KEY.

    Values of fewer than 8 characters are omitted, because they may be ordinary words.
    """
    return frozenset(
        value for name, value in environ.items() if len(value) >= RECOGNISABLE_CHARS and is_secret_name(name)
    )


class _Value:
    """One value in all its spellings: plain, in a URL, in JSON, in HTML, or encoded among other text."""

    def __init__(self, text: str) -> None:
        self.text = text
        # The environment may hold bytes that are no UTF-8.
        in_urls = {quote(text, safe=safe, errors="surrogatepass") for safe in ("/", "")}
        self.beginnings = {text, *in_urls, json.dumps(text)[1:-1]}
        # What no spelling changes: a text without it need not be searched.
        self._core = max(re.findall(r"[A-Za-z0-9_.~-]*", text), key=len)
        self._pattern = re.compile("".join(map(_spellings, text)))
        self._encoded: set[str] = set()
        if len(text) >= RECOGNISABLE_CHARS:
            plain = text.encode("utf-8", "surrogatepass")
            base64s = {_as_base64(plain, before) for before in range(3)}
            self._encoded = base64s | {encoded.replace("+", "-").replace("/", "_") for encoded in base64s}
            self._encoded |= {plain.hex(), plain.hex().upper()}

    def redact(self, text: str) -> str:
        if self._core in text:
            text = self._pattern.sub(REDACTED, text)
        for encoded in self._encoded:
            if encoded in text:
                text = text.replace(encoded, REDACTED)
        return text


def _spellings(char: str) -> str:
    """Return the pattern of one character, escaped or not; JSON within JSON has several backslashes."""
    plain = re.escape(char)
    if char.isascii() and (char.isalnum() or char in "_.~-"):
        return plain
    in_url = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    in_json = re.escape(json.dumps(char)[1:-1].lstrip("\\") or char)
    in_html = {_HTML.get(char, char), f"&#{ord(char)};", f"&#x{ord(char):x};"} - {char}
    forms = [r"\\{0,8}" + plain, f"(?i:{in_url})", rf"\\{{1,8}}(?i:{in_json})", *map(re.escape, in_html)]
    return f"(?:{'|'.join([*forms, r'[+]'] if char == ' ' else forms)})"


def _as_base64(value: bytes, before: int) -> str:
    """Return the base64 characters that encode only the value, after 0 to 2 bytes of its first group."""
    code = base64.b64encode(b"\0" * before + value).decode().rstrip("=")
    first = -(-before * 8 // 6)
    last = (before + len(value)) * 8 // 6
    return code[first:last]


def _without_beginnings(text: str, spellings: set[str]) -> str:
    """Return a text without beginnings of a value; the longest matching spelling counts."""
    long = [spelling for spelling in spellings if len(spelling) > RECOGNISABLE_CHARS]
    after = 0
    while positions := [at for spelling in long if (at := text.find(spelling[:RECOGNISABLE_CHARS], after)) >= 0]:
        start = min(positions)
        end = start + max(_shared_chars(text, start, spelling) for spelling in long)
        text = text[:start] + REDACTED + text[end:]
        after = start + len(REDACTED)
    return text


def _shared_chars(text: str, start: int, value: str) -> int:
    """Return how many characters from a position on match the beginning of a value."""
    there = text[start : start + len(value)]
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(there, value, strict=False)))


def _without_parts(text: str, secret: str) -> str:
    """Return a text that is not part of a secret, does not end with its beginning or begin with its end.

    Parts of fewer than 8 characters stay.
    """
    if len(text) < RECOGNISABLE_CHARS or len(secret) <= RECOGNISABLE_CHARS:
        return text
    if text in secret:
        return REDACTED
    start = text.find(secret[:RECOGNISABLE_CHARS], max(0, len(text) - len(secret)))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[:RECOGNISABLE_CHARS], start + 1)
    if start >= 0:
        text = text[:start] + REDACTED
    end = text.rfind(secret[-RECOGNISABLE_CHARS:], 0, len(secret)) + RECOGNISABLE_CHARS
    while end >= RECOGNISABLE_CHARS and not secret.endswith(text[:end]):
        end = text.rfind(secret[-RECOGNISABLE_CHARS:], 0, end - 1) + RECOGNISABLE_CHARS
    return REDACTED + text[end:] if end >= RECOGNISABLE_CHARS else text
