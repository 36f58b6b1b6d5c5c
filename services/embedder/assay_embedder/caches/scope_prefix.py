"""The prefix that all keys of a scope share, by which a deleted team's vectors are located."""

from __future__ import annotations

import hashlib

SCOPE_BYTES = 8


def scope_prefix(scope: str) -> bytes:
    """Return the first bytes of the keys of a scope."""
    return hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=SCOPE_BYTES).digest()
