"""Consistency and similarity of texts by the real model: the numbers that the metrics' definitions quote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.embedder.v1 import embedder_pb2 as pb
from assay.metrics.consistency import consistency
from assay.metrics.core.similarity import cosine

if TYPE_CHECKING:
    from numpy.typing import NDArray


async def vectors_of(embedder: Any, *texts: str) -> list[NDArray[np.float32]]:
    """The vectors of some texts."""
    response = await embedder.stub.Embed(pb.EmbedRequest(texts=texts), timeout=100)
    return list(np.frombuffer(response.vectors, dtype="<f4").reshape(-1, response.dimension))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            (
                "Paris is the capital of France.",
                "The capital city of France is Paris.",
                "Paris is France's capital.",
            ),
            0.9780,
        ),
        (
            (
                "Paris is the capital of France.",
                "Bananas are rich in potassium.",
                "There are 42 open tenders.",
            ),
            -0.0129,
        ),
        (("yes", "no"), 0.7335),
    ],
)
async def test_known_texts(embedder: Any, texts: tuple[str, ...], expected: float) -> None:
    """Paraphrases are consistent, unrelated texts are not, and one-word answers all look alike."""
    assert consistency(await vectors_of(embedder, *texts)) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("The agent is online.", "The agent is not online.", 0.893),
        ("", "The agent is online.", 0.1018),
        ("", "", 1.0),
    ],
)
async def test_what_the_model_makes_of_odd_texts(embedder: Any, first: str, second: str, expected: float) -> None:
    """A negation is near its opposite, and an empty text has some vector: why the metrics never ask for it."""
    one, other = await vectors_of(embedder, first, second)
    assert cosine(one, other) == pytest.approx(expected, abs=2e-3)
