from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.embedder.word_counter import WordCounter

from assay_embedder.models.encoder import Tokens
from assay_embedder.queues.tokenizing import tokens_of
from assay_embedder.queues.windows import averaged, spans, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Characters(WordCounter):
    """One word piece a character that is no space, behind two of its own: a model of a script without spaces."""

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        found = []
        for text in texts:
            ids = [0, 0, *(ord(character) for character in text if not character.isspace())]
            window = self.description.max_tokens
            found.append(Tokens(ids[:window], [0] * len(ids[:window]), len(ids) > window))
        return found


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=60), room=st.integers(1, 60))
def test_windows_hold_all_parts_and_fit(counts: list[int], room: int) -> None:
    """Each part is in a window, in order; a window is over its room only as one part; overlaps are small."""
    windows = list(spans(counts, room))
    covered = 0
    for begin, end in windows:
        assert begin <= covered < end
        assert sum(counts[begin:end]) <= room or end - begin == 1
        assert sum(counts[begin:covered]) <= room // 8
        covered = end
    assert covered == len(counts)


@given(st.text(st.sampled_from("xx \n"), min_size=60, max_size=600), st.integers(10, 60))  # shorter ones fit mostly
@example("", 10)
@example("x" * 600, 10)
def test_windows_hold_all_of_a_text(pattern: str, window: int) -> None:
    """Windows cover the whole text, with or without spaces."""
    # No character twice: where a window begins is then known by its first.
    text = "".join(chr(0x4E00 + at) if kind == "x" else kind for at, kind in enumerate(pattern))
    windows = windows_of(text, Characters(window=window), window)
    assert not any(tokens.truncated for tokens in windows)
    assert all(len(tokens.ids) <= window for tokens in windows)
    everything = [ord(character) for character in text if not character.isspace()]
    at = 0
    for tokens in windows:
        ids = list(tokens.ids[2:])
        begin = everything.index(ids[0]) if ids else at
        assert begin <= at < begin + len(ids) or not ids
        assert everything[begin : begin + len(ids)] == ids
        at = begin + len(ids)
    assert at == len(everything)


def test_mean_is_weighted_by_word_pieces() -> None:
    """The last, short window counts less; one window is its vector, bit for bit."""
    average = averaged([np.array([1, 0]), np.array([0, 1])], [30, 10])
    assert average.tolist() == pytest.approx([3 / 10**0.5, 1 / 10**0.5])
    vector = np.array([0.1, 0.7], dtype=np.float32)
    assert averaged([vector], [3]).tobytes() == vector.tobytes()
    assert averaged([np.array([1, 0]), np.array([-1, 0])], [1, 1]).tolist() == [0, 0]


def test_characters_beyond_the_window_are_not_read() -> None:
    """A text of a million words costs the time of a window; its word pieces are the same, and it counts as cut."""
    encoder = WordCounter()
    (tokens,) = tokens_of(["word " * 100_000], encoder, 8)
    assert (len(tokens.ids), tokens.truncated) == (8, True)
    assert encoder.read_chars < 1_000


@pytest.mark.parametrize(
    ("text", "length", "truncated"),
    [("x" * 10_000, 1, False), ("x" * 10_000 + " y", 2, False), (" " * 5_000 + "a b", 2, False), ("", 0, False)],
)
def test_long_word_pieces_are_read_whole(text: str, length: int, truncated: bool) -> None:
    """A text that is long but has few word pieces is not taken for one that was cut."""
    (tokens,) = tokens_of([text], WordCounter(), 8)
    assert (len(tokens.ids), tokens.truncated) == (length, truncated)
