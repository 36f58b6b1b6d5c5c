"""Texts for the measurement: random words with a fixed seed, no two texts equal."""

from __future__ import annotations

import random

SEED = 19
_WORDS = (
    "the order invoice payment refund account customer contract price discount delivery parcel return warranty branch "
    "office hotline letter form document number date week month server database column query report filter password "
    "session browser window router signal battery engine sensor valve water pressure doctor patient clinic medicine "
    "test result school lesson library book river mountain bridge street station airport please check confirm cancel "
    "change send receive open close start stop write read call answer explain quickly slowly always often before after "
    "because although of to and in for on with by from at as is are was were has have will would can may must not no"
)
_SHORTEST, _MEDIAN, _LONGEST = 6, 30, 160
_SPREAD = 0.6


def mixed_texts(count: int, *, seed: int = SEED) -> list[str]:
    """Return texts of 6 to 160 words, half of them below 30: the lengths that answers have.

    Args:
        count: Number of texts.
        seed: Seed of the generator.
    """
    chance, vocabulary = random.Random(seed), _WORDS.split()  # noqa: S311 - texts to measure with, no secret
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = round(chance.lognormvariate(0.0, _SPREAD) * _MEDIAN)
        words = chance.choices(vocabulary, k=min(max(length, _SHORTEST), _LONGEST))
        texts[" ".join(words).capitalize() + "."] = None
    return list(texts)
