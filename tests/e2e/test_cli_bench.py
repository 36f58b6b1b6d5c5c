"""`assay bench embedder` with the real model in processes of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from assay_cli.commands.bench import _report
from assay_cli.embedder_bench.measurement import Figures, mixed_texts

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


@pytest.mark.nightly
def test_the_embedder_is_measured_beside_the_library(cli: Cli) -> None:
    """Every figure is there for both, the model is named as scores name it, and no process is left behind.

    Where vectors are kept for other embedders is nothing to it: it would find those of the last measurement.
    """
    cli.env["ASSAY_EMBEDDER_CACHE_DIR"] = str(cli.write("no-folder", ""))
    done = cli.run("bench", "embedder", "--texts", "64", "--json")
    document = json.loads(done.stdout)
    own, library = document["embedder"], document["sentence_transformers"]
    assert (document["schema"], document["texts"]) == ("assay/embedder-bench/1", 64)
    for figures in (own, library):
        assert all(figures[name] > 0 for name in ("texts_per_s", "lone_pair_ms", "ready_s"))
    assert own["memory_mib"] > 50
    assert own["overhead_ms"] >= 0
    assert own["origin"]["model"] == "all-MiniLM-L6-v2"
    assert len(own["origin"]["revision"]) == 64


def test_what_cannot_be_measured_is_refused(cli: Cli) -> None:
    """A model that is none, and a precision that the embedder does not have, are named."""
    missing = cli.run("bench", "embedder", "--model", "./none", status=3)
    assert "the embedding model './none' is not a folder" in missing.stderr
    wrong = cli.run("bench", "embedder", "--precision", "int3", status=3)
    assert "--precision" in wrong.stderr


def test_the_table_has_ratios() -> None:
    """Figures stand beside each other; what only one of them has is a dash."""
    own = Figures(300.0, 15_000.0, 10.0, 2.0, 250.0, 0.4, {"model": "m", "revision": "r" * 64, "engine": ""})
    table = _report(own, Figures(100.0, 5_000.0, 20.0, 6.0), 500).splitlines()
    assert table[0] == "model m, revision rrrrrrrrrrrrrrrr"
    assert [line.split() for line in table[4:6]] == [
        ["texts/s", "300", "100", "3.00"],
        ["tokens/s", "15,000", "5,000", "3.00"],
    ]
    assert table[-1].split() == ["memory,", "MiB", "250", "-", "-"]
    assert "no comparison" in _report(own, None, 500)


def test_texts_are_the_same_each_time_and_all_differ() -> None:
    """Two machines measure the same texts, and no text is answered from a cache."""
    texts = mixed_texts(500)
    assert texts == mixed_texts(500)
    assert len(set(texts)) == 500
    assert not set(texts) & set(mixed_texts(100, seed=20))
    assert {len(text.split()) for text in texts} <= set(range(6, 161))
