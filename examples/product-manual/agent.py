"""A product-manual assistant: finds the passage that answers a question and quotes it.

It splits the manual into sentences, ranks them with BM25 (the heading of a sentence counts as part of it) and
answers with the best one, or with two where the passage needs both. A question that shares nothing of weight
with the manual is declined.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANUAL = Path(__file__).with_name("manual.md")
K1, B = 1.4, 0.6
LEAST_SCORE = 2.8
SECOND_SHARE = 0.66
STOP_WORDS = frozenset(
    "a about after am an and any are at be by can could did do does for from get had has have how i if in into is it "
    "its long may me much must my need of on or our out over should so take than that the their them then there these "
    "this to up use was we what when where which while who why will with would you your".split()
)
SYNONYMS = {
    "loud": "noise", "quiet": "noise", "sound": "noise", "decibel": "noise", "stinks": "smell", "odour": "smell",
    "odor": "smell", "guarantee": "warranty", "wlan": "wi-fi", "wifi": "wi-fi", "internet": "wi-fi",
    "network": "wi-fi", "electricity": "power", "energy": "power", "consume": "power", "heavy": "weigh",
    "weight": "weigh", "change": "replace", "swap": "replace", "kid": "child", "toddler": "child", "throw": "disposal",
    "dispose": "disposal", "discard": "disposal", "recycle": "disposal", "colour": "light", "color": "light",
    "package": "box", "packaging": "box", "include": "box", "contain": "box", "bedroom": "room", "area": "room",
    "night": "sleep", "alexa": "voice", "refund": "return", "send": "return", "rinse": "wash",
    "cord": "cable", "rid": "disposal",
    "put": "placement", "stop": "end", "own": "itself", "mean": "means",
}  # fmt: skip


@dataclass(frozen=True)
class Sentence:
    """One sentence of the manual, with its section's heading and the words it is found by."""

    text: str
    heading: str
    words: Counter[str]


def answer(request: Any) -> dict[str, Any]:
    """Answer one question from the manual."""
    ranked = rank(request.input)
    if not ranked or ranked[0][0] < LEAST_SCORE:
        return {
            "text": "I'm sorry, the manual of the Breva 300 says nothing about that.",
            "status": "out_of_scope",
        }
    best_score, best = ranked[0]
    chosen = [best]
    if len(ranked) > 1:
        second_score, second = ranked[1]
        if second.heading == best.heading and second_score >= SECOND_SHARE * best_score:
            chosen.append(second)
    text = " ".join(sentence.text for sentence in sorted(chosen, key=SENTENCES.index))
    return {"text": text, "sources": [{"title": best.heading, "score": best_score}]}


def rank(question: str) -> list[tuple[float, Sentence]]:
    """Return the sentences that share words with the question, best first (BM25)."""
    wanted = set(words_of(question))
    scored = []
    for sentence in SENTENCES:
        length = sum(sentence.words.values())
        score = 0.0
        for word in wanted & sentence.words.keys():
            count = sentence.words[word]
            score += IDF[word] * count * (K1 + 1) / (count + K1 * (1 - B + B * length / AVERAGE_LENGTH))
        if score > 0:
            scored.append((score, sentence))
    return sorted(scored, key=lambda item: -item[0])


def words_of(text: str) -> list[str]:
    """Return the words that carry meaning, in a common form."""
    found = []
    for word in re.findall(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", text.lower().replace("wi fi", "wi-fi")):
        if word in STOP_WORDS:
            continue
        word = SYNONYMS.get(word, word)
        found.append(SYNONYMS.get(stem(word), stem(word)))
    return found


def stem(word: str) -> str:
    """Take the commonest endings off."""
    for ending in ("ings", "ing", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def read_manual() -> list[Sentence]:
    """Split the manual into sentences."""
    sentences = []
    for section in MANUAL.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for text in re.split(r"(?<=[.;!?])\s+(?=[A-Z])", body.strip()):
            # The heading counts twice: it says what the whole section is about.
            words = Counter(words_of(text) + 2 * words_of(heading))
            sentences.append(Sentence(text, heading.strip(), words))
    return sentences


SENTENCES = read_manual()
AVERAGE_LENGTH = sum(sum(sentence.words.values()) for sentence in SENTENCES) / len(SENTENCES)
IDF = {
    word: math.log(1 + (len(SENTENCES) - count + 0.5) / (count + 0.5))
    for word, count in Counter(word for sentence in SENTENCES for word in sentence.words).items()
}
