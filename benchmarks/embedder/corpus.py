"""A corpus for embedders: English sentences of a small grammar, of log-normal lengths, the same for the same seed."""

from __future__ import annotations

import math
import random

_SUBJECTS = "the customer|our agent|a new order|this refund|the second invoice|every account|the support team|my parcel"
_VERBS = "arrived at|was sent to|needs|has been moved to|cannot reach|was approved by|belongs to|is waiting for"
_OBJECTS = "the warehouse|a manager|an updated address|the billing office|order 4711|the nearest shop|a second review"
_TAILS = "on Monday|within five days|without any notice|because of the weather|after the last call|as agreed|in 2026"
_JOINS = ", and|, but|; then|, so that|, although"
_MEDIAN_WORDS, _SIGMA, _MOST_WORDS = 32.0, 0.75, 210  # of all-MiniLM-L6-v2: median about 40 word pieces, at most 256


def corpus(count: int, seed: int = 20_260) -> list[str]:
    """Return distinct texts.

    Args:
        count: Number of texts.
        seed: The same seed gives the same texts.
    """
    dice = random.Random(seed)
    return [f"{_text(dice)} ({at})" for at in range(count)]


def _text(dice: random.Random) -> str:
    length = min(_MOST_WORDS, max(3, round(math.exp(dice.gauss(math.log(_MEDIAN_WORDS), _SIGMA)))))
    words: list[str] = []
    while len(words) < length:
        clause = " ".join(dice.choice(parts.split("|")) for parts in (_SUBJECTS, _VERBS, _OBJECTS, _TAILS))
        words += f"{clause}{dice.choice(_JOINS.split('|'))}".split()
    return " ".join(words[:length]).rstrip(",;") + "."
