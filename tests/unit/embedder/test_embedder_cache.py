from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.embedder.word_counter import WordCounter, embeddings_of
from tests.support.processes.child_process import child_process
from tests.support.processes.waiting import until, wait_until

from assay.errors import SetupError
from assay_embedder.caches.disk_cache import DiskCache
from assay_embedder.caches.vector_cache import KeyMaker, VectorCache
from assay_embedder.embeddings import EmbedOptions
from assay_embedder.queues.jobs import Computed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1024 * 1024


def computed(seed: int, dimension: int = 8) -> Computed:
    vector = np.random.default_rng(seed).normal(size=dimension).astype(np.float32)
    return Computed(vector, seed, 1, bool(seed % 2))


def same(found: Computed | None, expected: Computed) -> bool:
    if found is None:
        return False
    rest = (found.token_count, found.window_count, found.truncated)
    return found.vector.tobytes() == expected.vector.tobytes() and rest == (
        expected.token_count,
        expected.window_count,
        expected.truncated,
    )


PARTS = st.text(st.sampled_from("ab\x00\ud800 é"), max_size=4)


@given(st.lists(st.tuples(PARTS, PARTS, PARTS, st.booleans()), min_size=2, max_size=2, unique=True))
def test_key_differs_with_all_that_a_vector_depends_on(made_of: list[tuple[str, str, str, bool]]) -> None:
    """Model, scope, text and windowing each change the key, wherever one part ends and the next begins."""
    first, second = (
        KeyMaker((model,)).keys([text], scope=scope, windowed=windowed)[text]
        for model, scope, text, windowed in made_of
    )
    assert first != second


@given(keys=st.lists(st.integers(0, 30), max_size=200), room=st.integers(0, 10))
def test_memory_is_bounded_and_the_last_used_stay(keys: list[int], room: int) -> None:
    """The cache never takes more than its limit; what it has is exactly what was put, the last used."""
    cache = VectorCache(room * (32 + 640))
    used: list[int] = []
    for key in keys:
        vector = cache.get(bytes([key]))
        assert vector is None or same(vector, computed(key))
        assert (vector is not None) == (key in used[-room:] if room else False)
        if vector is None:
            cache.put(bytes([key]), computed(key))
        used = [*(each for each in used if each != key), key]
        assert cache.size_bytes <= room * (32 + 640)
        assert len(cache) == min(room, len(used))


async def test_cached_vector_is_the_computed_one() -> None:
    """A cached text costs nothing and has the same bits; another scope cannot see it."""
    encoder = WordCounter()
    embeddings = embeddings_of(encoder, cache_bytes=MIB)
    first = await embeddings.embed(["a b c"], EmbedOptions("one"))
    again = await embeddings.embed(["a b c"], EmbedOptions("one"))
    other = await embeddings.embed(["a b c"], EmbedOptions("two"))
    windowed = await embeddings.embed(["a b c"], EmbedOptions("one", windowed=True))
    await embeddings.aclose()
    assert [each.timing.cache_hits for each in (first, again, other, windowed)] == [0, 1, 0, 0]
    assert len({each.vectors["a b c"].tobytes() for each in (first, again, other)}) == 1
    assert encoder.seen == [[3], [3], [3]]
    assert not again.vectors["a b c"].flags.writeable


async def test_identical_texts_cost_one_inference() -> None:
    """Twenty thousand requests for one text at once, of one scope, run the model once."""
    encoder = WordCounter()
    embeddings = embeddings_of(encoder)  # no cache: those in flight share the work
    answers = await asyncio.gather(*(embeddings.embed(["the reference"] * 10) for _ in range(2_000)))
    await embeddings.aclose()
    assert encoder.seen == [[2]]
    assert sum(answer.timing.shared_texts for answer in answers) == 1_999


async def test_memory_does_not_grow_with_the_texts() -> None:
    """Thousands of different texts leave nothing but the bounded cache."""
    encoder = WordCounter(packed=True)
    embeddings = embeddings_of(encoder, cache_bytes=64 * 1024, queue_limit=10_000, batch_tokens=1024)
    for round_ in range(20):
        await embeddings.embed([f"{round_} {number}" for number in range(200)], EmbedOptions(str(round_)))
    await embeddings.aclose()
    assert embeddings._cache.memory.size_bytes <= 64 * 1024
    batcher = embeddings._batcher
    assert (len(embeddings._flights), len(embeddings._turns), len(batcher._queue._lanes)) == (0, 0, 0)
    assert (batcher._ready._tokens, len(batcher._admission._waiting)) == (0, 0)
    assert encoder.seen


def test_disk_gives_back_what_was_stored(tmp_path: Path) -> None:
    """Entries outlive the process, bit for bit; the file is its user's alone."""
    cache = DiskCache(tmp_path / "cache", 64 * MIB)
    entries = [(bytes([number]) * 32, computed(number, 384)) for number in range(100)]
    cache.store(entries)
    cache.close()
    again = DiskCache(tmp_path / "cache", 64 * MIB)
    vectors = again.find([*(key for key, _ in entries), b"missing"])
    again.close()
    assert len(vectors) == 100
    assert all(same(vectors[key], each) for key, each in entries)
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "cache").iterdir()} == {0}


def test_nothing_of_a_deleted_scope_is_left(tmp_path: Path) -> None:
    """Vectors of one scope are gone from memory and file, those too that wait to be written; others stay."""
    memory, disk = VectorCache(MIB), DiskCache(tmp_path, MIB)
    texts = [f"t{number}" for number in range(200)]
    keys = {
        scope: [
            key for model in ("m", "n") for key in KeyMaker((model,)).keys(texts, scope=scope, windowed=False).values()
        ]
        for scope in ("a", "b")
    }
    entries = {
        scope: [(key, computed(number + len(scope) * 1000)) for number, key in enumerate(of_scope)]
        for scope, of_scope in keys.items()
    }
    try:
        for of_scope in entries.values():
            for key, value in of_scope:
                memory.put(key, value)
            disk.store(of_scope)
        wait_until(lambda: len(disk.find(keys["b"])), lambda count: count == 400)
        disk.store(entries["a"])  # waits to be written, or is being written
        assert memory.delete_scope("a") == 400
        assert disk.delete_scope("a") == (400, 0)
        assert disk.find(keys["a"]) == {}
        assert len(disk.find(keys["b"])) == 400
        assert [memory.get(key) for key in keys["a"]] == [None] * 400
        assert same(memory.get(keys["b"][0]), entries["b"][0][1])
    finally:
        disk.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not [key for key in keys["a"] if key in kept]
    assert [key for key in keys["b"] if key in kept]


def test_disk_is_bounded(tmp_path: Path) -> None:
    """The oldest entries make room; the file does not grow beyond the limit."""
    cache = DiskCache(tmp_path, MIB)
    for number in range(4_000):
        cache.store([(number.to_bytes(32, "big"), computed(number, 384))])
        if number % 50 == 0:
            while not cache._waiting.empty():  # a list of entries more than it can write is dropped
                cache.find([b""])
    cache.close()
    again = DiskCache(tmp_path, MIB)
    kept = again.find([number.to_bytes(32, "big") for number in range(4_000)])
    again.close()
    assert 100 < len(kept) < 700
    assert min(int.from_bytes(key, "big") for key in kept) > 3_000
    assert (tmp_path / "vectors.sqlite").stat().st_size < 2 * MIB


def test_a_file_that_cannot_be_written_is_still_read(tmp_path: Path) -> None:
    """If nothing can be deleted, as on a full disk, stored vectors are still read."""
    cache = DiskCache(tmp_path, 64 * MIB)
    entries = [(number.to_bytes(32, "big"), computed(number, 384)) for number in range(1_500)]
    cache.store(entries)
    cache.close()
    cache = DiskCache(tmp_path, MIB)
    assert cache._connection is not None
    cache._connection.execute("PRAGMA query_only = ON")
    cache.store([(b"new" * 10, computed(1, 384))])
    cache._drain()
    assert len(cache.find([key for key, _ in entries])) == 1_500
    cache._connection.execute("PRAGMA query_only = OFF")
    cache.store([(b"new" * 10, computed(1, 384))])
    cache._drain()
    assert 100 < len(cache.find([key for key, _ in entries])) < 700
    cache.close()


def test_processes_that_begin_a_file_together_all_use_it(tmp_path: Path) -> None:
    """SQLite waits for no lock while a new file gets its log: opening is tried again."""
    code = (
        "import sys; from pathlib import Path; from assay_embedder.caches.disk_cache import DiskCache\n"
        "from assay_embedder.queues.jobs import Computed; import numpy as np\n"
        "number = input()\n"
        "cache = DiskCache(Path(sys.argv[1]), 2**20); print(cache._connection is not None)\n"
        "cache.store([(number.encode(), Computed(np.zeros(384, np.float32), 1, 1, False))]); cache.close()\n"
    )
    for number in range(3):
        command = [sys.executable, "-c", code, str(tmp_path / str(number))]
        openers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
        ]
        for at, opener in enumerate(openers):
            assert opener.stdin is not None
            opener.stdin.write(f"{at}\n")
            opener.stdin.flush()
        assert [opener.communicate(timeout=60)[0] for opener in openers] == ["True\n"] * 4
        cache = DiskCache(tmp_path / str(number), MIB)
        assert len(cache.find([b"0", b"1", b"2", b"3"])) == 4
        cache.close()


def test_a_full_disk_loses_no_stored_vector(tmp_path: Path) -> None:
    """What does not fit is not kept; with room again, new vectors are."""
    cache = DiskCache(tmp_path, 64 * MIB)
    entries = [(number.to_bytes(32, "big"), computed(number, 384)) for number in range(600)]
    cache.store(entries[:200])
    cache._drain()
    assert cache._connection is not None
    ((pages,),) = cache._connection.execute("PRAGMA page_count")
    cache._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    cache.store(entries[200:])
    cache._drain()
    vectors = cache.find([key for key, _ in entries])
    assert len(vectors) == 200
    assert all(same(vectors[key], each) for key, each in entries[:200])
    cache._connection.execute("PRAGMA max_page_count = 100000").fetchall()
    cache.store(entries[200:])
    cache.close()
    again = DiskCache(tmp_path, 64 * MIB)
    assert len(again.find([key for key, _ in entries])) == 600
    again.close()


def test_a_file_that_could_not_be_opened_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was full for a moment costs a minute of the cache, and no vector that was in it."""
    cache = DiskCache(tmp_path, MIB)
    cache.store([(b"k" * 32, computed(1))])
    cache.close()
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    opened = DiskCache._opened
    monkeypatch.setattr(DiskCache, "_opened", raising(full))
    cache = DiskCache(tmp_path, MIB)
    assert cache.find([b"k" * 32]) == {}
    monkeypatch.setattr(DiskCache, "_opened", opened)
    assert cache.find([b"k" * 32]) == {}
    cache._tried_at -= 61
    assert len(cache.find([b"k" * 32])) == 1
    cache.close()


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("seed", range(8))
def test_damaged_file_is_never_a_wrong_vector(tmp_path: Path, seed: int) -> None:
    """Whatever bytes of the file change, an entry is the stored one or missing, and new ones can be stored."""
    cache = DiskCache(tmp_path, 64 * MIB)
    entries = [(bytes([number]) * 32, computed(number, 384)) for number in range(200)]
    cache.store(entries)
    cache.close()
    dice = random.Random(seed)
    file = tmp_path / "vectors.sqlite"
    data = bytearray(file.read_bytes())
    for _ in range(400):
        data[dice.randrange(100 if seed % 2 else 0, len(data))] = dice.randrange(256)
    file.write_bytes(data if seed % 4 else data[: len(data) // 2])
    damaged = DiskCache(tmp_path, 64 * MIB)
    vectors = damaged.find([key for key, _ in entries])
    assert all(same(each, computed(key[0], 384)) for key, each in vectors.items())
    damaged.store(entries)
    damaged.close()
    again = DiskCache(tmp_path, 64 * MIB)
    repaired = again.find([key for key, _ in entries])
    again.close()
    assert all(same(each, computed(key[0], 384)) for key, each in repaired.items())
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.sqlite"]  # no copy of the damaged one


def test_swapped_entries_are_missing(tmp_path: Path) -> None:
    """A value under another key is no vector of that key's text."""
    cache = DiskCache(tmp_path, 64 * MIB)
    cache.store([(b"1" * 32, computed(1)), (b"2" * 32, computed(2)), (b"3" * 32, computed(3))])
    cache.close()
    with sqlite3.connect(tmp_path / "vectors.sqlite") as connection:
        connection.execute("UPDATE vectors SET value = (SELECT value FROM vectors WHERE number = 2) WHERE number = 1")
        connection.execute("UPDATE vectors SET value = 'text' WHERE number = 3")
    connection.close()
    again = DiskCache(tmp_path, 64 * MIB)
    assert list(again.find([b"1" * 32, b"2" * 32, b"3" * 32])) == [b"2" * 32]
    again.close()


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The start says which flag to change."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="give --cache-dir another folder"):
        DiskCache(tmp_path / "file" / "cache", MIB)


async def test_vectors_outlive_the_process(tmp_path: Path) -> None:
    """A second process of the same model reads what the first computed; another scope computes anew."""
    encoders = [WordCounter(), WordCounter(packed=True)]
    answers = []
    for encoder in encoders:
        disk = DiskCache(tmp_path, 64 * MIB)
        embeddings = embeddings_of(encoder, disk=disk)
        answers += [await embeddings.embed(["a b", "c"]), await embeddings.embed(["a b"], EmbedOptions("other"))]
        assert embeddings._batcher._admission.total.texts == 0
        await embeddings.aclose()
        await asyncio.to_thread(disk.close)
    assert encoders[0].seen == [[2, 1], [2]]
    assert encoders[1].seen == []
    assert [answer.timing.cache_hits for answer in answers] == [0, 0, 2, 1]
    assert answers[2].vectors["c"].tobytes() == answers[0].vectors["c"].tobytes()
    assert answers[2].timing.cache_ms > 0


_WRITER = """
import sys
from pathlib import Path

import numpy as np

from assay_embedder.caches.disk_cache import DiskCache
from assay_embedder.queues.jobs import Computed

cache, number = DiskCache(Path(sys.argv[1]), 2 * 1024 * 1024), int(sys.argv[2])
while True:  # over the limit, so that old entries are deleted, too
    some = range(number, number + 100)
    cache.store([(each.to_bytes(32, "big"), Computed(np.full(384, each, np.float32), each, 1, False)) for each in some])
    cache.find([b""])
    number += 100
    if number % 1_000 == 0:
        cache._drain()  # or all of them may still wait for the writing thread
        print(flush=True)
"""


def test_kill_while_vectors_are_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After kill -9 the next process finds whole entries alone, each as it was stored, and keeps new ones."""
    for first, count in ((0, 1), (1_000_000, 2)):  # the second time two processes write the same vectors
        command = [sys.executable, "-c", _WRITER, str(tmp_path), str(first)]
        with ExitStack() as stack:
            writers = [stack.enter_context(child_process(command, stdout=subprocess.PIPE)) for _ in range(count)]
            for writer in writers:
                assert writer.stdout is not None
                for _ in range(3):
                    writer.stdout.readline()
            for writer in writers:
                writer.kill()
        assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * count
        cache = DiskCache(tmp_path, 64 * MIB)
        # The other may have written, and deleted, any number before it was killed: only the file knows what is left.
        with closing(sqlite3.connect(tmp_path / "vectors.sqlite")) as connection:
            keys = [key for (key,) in connection.execute("SELECT key FROM vectors WHERE key != ?", (b"new",))]
        vectors = cache.find(keys)
        assert len(vectors) == len(keys) >= 100
        for key, each in vectors.items():
            number = int.from_bytes(key, "big")
            assert same(each, Computed(np.full(384, number, np.float32), number, 1, False))
        cache.store([(b"new", computed(first, 384))])
        cache.close()
        again = DiskCache(tmp_path, 64 * MIB)
        assert same(again.find([b"new"])[b"new"], computed(first, 384))
        again.close()
    assert not caplog.records


async def test_file_that_breaks_while_it_is_used(tmp_path: Path) -> None:
    """An unreadable cache costs time, not answers."""
    encoder = WordCounter()
    disk = DiskCache(tmp_path, 64 * MIB)
    embeddings = embeddings_of(encoder, disk=disk)
    await embeddings.embed(["a"])
    with disk._lock:  # its thread may be writing
        assert disk._connection is not None
        disk._connection.close()
    assert (await embeddings.embed(["b"])).vectors
    await until(disk._waiting.empty)
    await embeddings.aclose()
    await asyncio.to_thread(disk.close)
