"""API tokens, `assay_ID_SECRETCHECK`; a server keeps only their hashes.

The id has 10 characters and names the token in lists and logs. The secret has 256 random bits in 43 characters. The
check has 6 characters, a CRC-32 of everything before it, so that a cut or mistyped token is recognised without a
database lookup. All are base 62: a double click selects a token, and secret scanners find it by its prefix.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass, field

PREFIX = "assay_"
TOKEN_PATTERN = re.compile(PREFIX + r"([0-9A-Za-z]{10})_[0-9A-Za-z]{43}([0-9A-Za-z]{6})", re.ASCII)

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARS, _SECRET_CHARS, _CHECK_CHARS = 10, 43, 6
_SECRET_BITS = 256


@dataclass(frozen=True, slots=True)
class Token:
    """A well-formed token, which no server need accept.

    Args:
        token_id: Its public part.
        text: The whole token; repr omits it.
    """

    token_id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 as hexadecimal digits: 256 random bits need no slow hash."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def has_digest(self, digest: str) -> bool:
        """Return whether a token matches a stored hash, in constant time."""
        return hmac.compare_digest(self.digest, digest)


def new_token() -> Token:
    """Return a new random token."""
    token_id = _base62(secrets.randbelow(len(_DIGITS) ** _ID_CHARS), _ID_CHARS)
    body = f"{PREFIX}{token_id}_{_base62(secrets.randbits(_SECRET_BITS), _SECRET_CHARS)}"
    return Token(token_id, body + _check(body))


def parse_token(text: str) -> Token | None:
    """Parse a token; return None if its form or its check is wrong."""
    match = TOKEN_PATTERN.fullmatch(text)
    if match is None or not hmac.compare_digest(match[2], _check(text[:-_CHECK_CHARS])):
        return None
    return Token(match[1], text)


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
