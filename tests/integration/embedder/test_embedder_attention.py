"""Attention on a processor: what the formula says, for texts of any lengths and scores, and never another's bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from assay_embedder.models.packed.attention import Layout, attend_by_length

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADS, SIZE = 3, 20  # rows of 240 bytes: texts begin at places of any alignment


@pytest.fixture(autouse=True, scope="module")
def _as_workers_compute() -> Iterator[None]:
    """One thread, and no gradients."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


def drawn(length: int, seed: int = 0) -> torch.Tensor:
    """Return queries, keys and values of a text, shape (length, 3 * hidden)."""
    return torch.randn(length, 3 * HEADS * SIZE, generator=torch.Generator().manual_seed(1_000 * length + seed))


def attended(*texts: torch.Tensor) -> list[torch.Tensor]:
    """Return the attended values of texts that are computed together, and filled up with two rows."""
    lengths = [len(text) for text in texts]
    rows = torch.cat([*texts, torch.ones(2, texts[0].shape[1]).to(texts[0].dtype)])
    found = attend_by_length(rows, Layout(lengths), HEADS)
    assert not found[sum(lengths) :].any()
    return list(found[: sum(lengths)].split_with_sizes(lengths))


def formula(text: torch.Tensor) -> torch.Tensor:
    """Return softmax(queries · keysᵀ / √size) · values of each head, float64."""
    queries, keys, values = text.double().view(len(text), 3, HEADS, SIZE).permute(1, 2, 0, 3)
    weights = torch.softmax(queries @ keys.transpose(1, 2) / SIZE**0.5, -1)
    found: torch.Tensor = (weights @ values).transpose(0, 1).reshape(len(text), -1)
    return found


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 200, 300, 512, 513])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_attention_is_what_the_formula_says(length: int, dtype: torch.dtype, tolerance: float) -> None:
    """At lengths on either side of each bound: 16, 64 and 512 tokens, and what heads compute at once."""
    text = drawn(length).to(dtype)
    (found,) = attended(text)
    assert found.dtype == dtype
    assert (found.double() - formula(text)).abs().max() < tolerance


@given(lengths=st.lists(st.integers(1, 330), min_size=1, max_size=8), dtype=st.sampled_from(["float32", "bfloat16"]))
@example(lengths=[40] * 8, dtype="float32")
@example(lengths=[330, 513], dtype="float32")
def test_a_text_has_the_same_bits_in_any_company(lengths: list[int], dtype: str) -> None:
    """Not one bit of a text's attended values depends on the texts before and behind it."""
    texts = [drawn(length, seed).to(getattr(torch, dtype)) for seed, length in enumerate(sorted(lengths))]
    for found, text in zip(attended(*texts), texts, strict=True):
        (alone,) = attended(text)
        assert torch.equal(found, alone)


@pytest.mark.parametrize("length", [9, 70])
@pytest.mark.parametrize("scale", [40.0, 1e4, 1e-30])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.03)])
def test_scores_of_any_size_are_attended_by(length: int, scale: float, dtype: torch.dtype, tolerance: float) -> None:
    """Exponentials that float32 does not hold, or holds as zero, change neither the result nor that of a neighbour."""
    usual, unusual = drawn(length), drawn(length + 1)
    unusual[:, : HEADS * SIZE] = unusual[:, : HEADS * SIZE].sign() * scale
    unusual[:, HEADS * SIZE : 2 * HEADS * SIZE] = unusual[:, HEADS * SIZE : 2 * HEADS * SIZE].sign()
    low = drawn(length + 2)
    low[:, : 2 * HEADS * SIZE] = 50.0
    low[:, : HEADS * SIZE] *= -1  # each score is -11,180
    texts = [text.to(dtype) for text in (usual, unusual, low)]
    found = attended(*texts)
    assert torch.equal(found[0], attended(texts[0])[0])
    for each, text in zip(found, texts, strict=True):
        assert (each.double() - formula(text)).abs().max() < tolerance


def test_numbers_that_are_none_stay_with_their_text() -> None:
    """A text with a NaN has NaN; its neighbour has its own bits."""
    usual, broken = drawn(9), drawn(30)
    broken[3] = float("nan")
    found = attended(usual, broken)
    assert torch.equal(found[0], attended(usual)[0])
    assert found[1].isnan().any()


def test_groups_have_one_length_each_and_are_divided() -> None:
    """Groups cover all rows in order, hold one length, and keep to the chunk unless one text is longer."""
    layout = Layout([2, 2, 2, 5, 9, 9])
    assert list(layout.groups()) == [(slice(0, 6), 3, 2), (slice(6, 11), 1, 5), (slice(11, 29), 2, 9)]
    assert [(count, length) for _, count, length in layout.groups(4)] == [(2, 2), (1, 2), (1, 5), (1, 9), (1, 9)]
