"""Vectors in bounded memory, by a hash of everything that determines them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_embedder.caches.scope_prefix import SCOPE_BYTES, scope_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay_embedder.caches.disk_cache import DiskCache
    from assay_embedder.queues.jobs import Computed

_ENTRY_BYTES = 640  # of an entry beside its vector: objects of Python, and its place in the map


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """Makes the keys of one model's vectors.

    A key is a hash of all that a vector depends on, and of the scope: a tenant could otherwise learn by the time of an
    answer which texts another one has. It begins with a part that all keys of a scope have, of every model.

    Args:
        model: All that distinguishes the model's vectors, e.g. its revision, precision and engine, and a hash of
            vectors that it computed.
    """

    model: tuple[str, ...]

    def keys(self, texts: Iterable[str], *, scope: str, windowed: bool) -> dict[str, bytes]:
        """Return the key of each text, each different text once."""
        first = hashlib.blake2b(digest_size=32 - SCOPE_BYTES)
        begin = scope_prefix(scope)
        for part in (*self.model, scope, str(windowed)):
            data = part.encode("utf-8", "surrogatepass")
            first.update(len(data).to_bytes(8, "little") + data)
        keys: dict[str, bytes] = {}
        for text in texts:
            if text not in keys:
                digest = first.copy()
                digest.update(text.encode("utf-8", "surrogatepass"))
                keys[text] = begin + digest.digest()
        return keys


class VectorCache:
    """The most recently used vectors. Belongs to one event loop.

    Args:
        limit_bytes: What it may take; 0 keeps nothing.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[bytes, Computed] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of its entries in bytes."""
        return self._size_bytes

    def get(self, key: bytes) -> Computed | None:
        """Return the vector stored under a key, if it is still in memory."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, computed: Computed) -> None:
        """Keep a vector; the least recently used ones make room."""
        if key in self._entries:
            self._remove(key)
        size_bytes = computed.vector.nbytes + _ENTRY_BYTES
        if size_bytes > self._limit_bytes:
            return
        self._entries[key] = computed
        self._size_bytes += size_bytes
        while self._size_bytes > self._limit_bytes:
            self._remove(next(iter(self._entries)))

    def delete_scope(self, scope: str) -> int:
        """Remove the vectors of a scope; return their number."""
        prefix = scope_prefix(scope)
        keys = [key for key in self._entries if key.startswith(prefix)]
        for key in keys:
            self._remove(key)
        return len(keys)

    def _remove(self, key: bytes) -> None:
        self._size_bytes -= self._entries.pop(key).vector.nbytes + _ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class ModelCache:
    """Where the vectors of one model are kept.

    Args:
        keys: Makes their keys.
        memory: Those in memory, beside those of other models.
        disk: Those on disk, beside those of other models; None for none.
    """

    keys: KeyMaker
    memory: VectorCache
    disk: DiskCache | None = None
