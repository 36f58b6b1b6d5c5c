"""The encyclopaedia as a library to search (BM25) and to read."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Article", "Encyclopaedia", "sentences", "words_of"]

FILE = Path(__file__).with_name("encyclopaedia.md")
K1, B = 1.4, 0.6
STOP_WORDS = frozenset(
    "a about above after again all also although an and another any anything are article as ask at be because "
    "been before  being below better between both but by came can come could did differ do does each else ever "
    "every explain far find  first for from get give go had happen has have he help her here his how i if in "
    "into is it its just keep know less  let like long made make many may me mean might more most much must my "
    "need never new no not now of off old on once  one only or other our out over people really same say see "
    "she should show since so some still such take tell than  that the their them then there these they thing "
    "things this those through to together too under until up us use used  very was way we well were what when "
    "where whether which while who whom whose why will with without work would year  years you your".split()
)


@dataclass(frozen=True)
class Article:
    """One article, with the titles it refers to."""

    title: str
    text: str
    links: tuple[str, ...]

    @property
    def uri(self) -> str:
        """Return where it stands."""
        return "encyclopaedia:" + self.title.replace(" ", "_")


class Encyclopaedia:
    """Articles by title, and an index of their words."""

    def __init__(self, file: Path = FILE) -> None:
        parsed = [_article(part) for part in file.read_text(encoding="utf-8").split("\n## ")[1:]]
        self.articles = {article.title: article for article in parsed}
        # A title counts three times: it says what the whole article is about.
        self._counts = {
            title: Counter(words_of(article.text) + 3 * words_of(title)) for title, article in self.articles.items()
        }
        self._lengths = {title: sum(counts.values()) for title, counts in self._counts.items()}
        self._average = sum(self._lengths.values()) / len(self._lengths)
        holders = Counter(word for counts in self._counts.values() for word in counts)
        self._weights = {
            word: math.log(1 + (len(parsed) - count + 0.5) / (count + 0.5)) for word, count in holders.items()
        }

    def search(self, query: str, limit: int) -> list[tuple[float, Article]]:
        """Return the articles that share words with a query, best first; equal ones by title."""
        wanted = set(words_of(query)) & self._weights.keys()
        scored = [(self._score(title, wanted), title) for title in self.articles]
        best = sorted((-score, title) for score, title in scored if score > 0)[:limit]
        return [(-negative, self.articles[title]) for negative, title in best]

    def read(self, title: str) -> Article:
        """Return an article."""
        return self.articles[title]

    def overlap(self, query: str, text: str, *, about: str) -> float:
        """Return the weight of the words that a query and a text share.

        Rare words weigh more; the words of the title that the text is `about` hardly tell its sentences apart.
        """
        known = set(words_of(about))
        shared = sorted(set(words_of(query)) & set(words_of(text)))
        return math.fsum(self._weights.get(word, 0.0) * (0.4 if word in known else 1.0) for word in shared)

    def _score(self, title: str, wanted: set[str]) -> float:
        counts, length = self._counts[title], self._lengths[title] / self._average
        # In a fixed order, so that the last bit of a sum does not depend on how a set is kept.
        return math.fsum(
            self._weights[word] * counts[word] * (K1 + 1) / (counts[word] + K1 * (1 - B + B * length))
            for word in sorted(wanted & counts.keys())
        )


def words_of(text: str) -> list[str]:
    """Return the words that carry meaning, without their commonest endings."""
    return [_stem(word) for word in re.findall(r"[^\W_]+", text.lower()) if word not in STOP_WORDS and len(word) > 1]


def sentences(text: str) -> list[str]:
    """Split a text after full stops, question marks and exclamation marks."""
    return re.split(r"(?<=[.!?])\s+(?=[^\W\d_a-z])", text)


def _article(part: str) -> Article:
    title, _, body = part.partition("\n")
    text, _, links = body.strip().partition("\n\nSee also: ")
    return Article(title.strip(), text.strip(), tuple(link.strip() for link in links.split(";") if link.strip()))


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ied", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending in ("ied", "ies") else "")
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aelos":
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
