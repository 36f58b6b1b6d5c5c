"""Vectors that the local stack keeps: the next embedder reads them, and `assay cache clear` deletes them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import Cli, report_of, stack_up

if TYPE_CHECKING:
    from pathlib import Path

CASE = {"id": "a", "question": "q", "recorded": "It opens at nine.", "reference": "We open at 9 o'clock."}
SPEC = {
    "agent": {"adapter": "replay"}, "dataset": "cases.jsonl", "metrics": [{"semantic_similarity": {"threshold": None}}]
}  # fmt: skip


@pytest.fixture
def similar(cli: Cli) -> Cli:
    """Return the command beside a spec that needs two vectors."""
    cli.write("cases.jsonl", json.dumps(CASE) + "\n")
    cli.write("assay.yaml", SPEC)
    return cli


def scored(caller: Cli, name: str) -> dict[str, Any]:
    """Run the spec; return the score of its row."""
    caller.run("run", "assay.yaml", "--output-dir", name, status=None)
    score: dict[str, Any] = report_of(caller.folder / name)["rows"][0]["scores"]["semantic_similarity"]
    return score


def vectors_file(caller: Cli) -> Path:
    """Return the file of the kept vectors."""
    return caller.home / "vectors" / "vectors.sqlite"


def numbers(caller: Cli) -> dict[bytes, int]:
    """Return the number of each kept vector by its key; a vector that is computed again gets a new number."""
    with closing(sqlite3.connect(vectors_file(caller))) as connection:
        return dict(connection.execute("SELECT key, number FROM vectors"))


def test_the_next_embedder_reads_the_vectors_of_the_last(similar: Cli) -> None:
    """Its scores are the same; only the user can read the file; after a `clear` they are computed again."""
    first = scored(similar, "first")
    kept = numbers(similar)
    assert len(kept) >= 2  # a text that asks whether the embedder serves the model may be a third
    assert {path.stat().st_mode & 0o077 for path in (similar.home / "vectors", vectors_file(similar))} == {0}
    assert scored(similar, "second") == first
    assert kept.items() <= numbers(similar).items()
    (shown,) = (line for line in similar.run("doctor").stdout.splitlines() if "assay cache clear" in line)
    assert f"vectors in {vectors_file(similar).parent}, " in shown
    assert f"deleted the vectors in {vectors_file(similar).parent}, 0." in similar.run("cache", "clear").stdout
    assert list((similar.home / "vectors").iterdir()) == []
    assert "no vectors in " in similar.run("doctor").stdout
    similar.env["ASSAY_EMBEDDER_CACHE_DISK_MIB"] = "0"
    assert scored(similar, "third") == first
    assert vectors_file(similar).stat().st_size == 0


def test_an_embedder_in_use_keeps_its_vectors_and_an_idle_one_is_stopped(similar: Cli) -> None:
    """An idle one has the vectors in memory too."""
    with stack_up(similar):
        scored(similar, "first")
        refused = similar.run("cache", "clear", status=3).stderr
        assert "the local embedder is in use" in refused
        assert vectors_file(similar).exists()
    similar.env["ASSAY_IDLE_S"] = "600"
    scored(similar, "second")
    assert any("assay_embedder" in " ".join(service.cmdline()) for service in similar.services())
    similar.run("cache", "clear")
    assert not any("assay_embedder" in " ".join(service.cmdline()) for service in similar.services())
    assert not vectors_file(similar).exists()
    similar.run("down")


def test_a_folder_that_cannot_be_used_costs_no_run(similar: Cli) -> None:
    """The vectors are computed, and not kept."""
    similar.home.mkdir(mode=0o700)
    (similar.home / "vectors").write_text("not a folder")
    assert scored(similar, "out")["value"] > 0.5
