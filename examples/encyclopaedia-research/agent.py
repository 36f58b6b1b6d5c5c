"""A research assistant: plans a few searches in an encyclopaedia, reads what they find and answers with sources.

It works as a language model with tools would, without the model: rules plan the searches and choose the sentences.
Every call of a tool is reported, sources are ranked, and tokens are estimated from the texts that went in and out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from encyclopaedia import Article, Encyclopaedia, sentences, words_of

LIBRARY = Encyclopaedia()
LONGEST_QUESTION = 2000
MOST_SEARCHES = 3
RESULTS = 4
MOST_SOURCES = 5
LEAST_SCORE = 3.5
MOST_SENTENCES = 3
LEAST_SHARE = 0.5
SHOWN_CHARACTERS = 240
NOTHING = "I could not find anything about that in the encyclopaedia."
_PARTS = re.compile(r"\b(?:and|or|than|versus|while|whereas|but)\b|[;,]", re.IGNORECASE)


def answer(request: Any) -> dict[str, Any]:
    """Answer one question from the encyclopaedia."""
    research = Research(request.input[:LONGEST_QUESTION])
    research.run()
    return research.reply()


class Research:
    """The work on one question: what has been searched, read and found."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.calls: list[dict[str, Any]] = []
        self.ranks: defaultdict[str, float] = defaultdict(float)
        self.read: list[Article] = []

    def run(self) -> None:
        """Search for the whole question, then for its parts or for what the first article leaves open."""
        self._look_up(self.question, weight=1.0)
        for query in self._further_queries():
            self._look_up(query, weight=0.6)

    def reply(self) -> dict[str, Any]:
        """Return the answer with ranked sources, tool calls and an estimate of tokens."""
        text = self._text()
        ranked = sorted(self.ranks.items(), key=lambda item: (-item[1], item[0]))[:MOST_SOURCES]
        sources = [
            {"title": title, "uri": LIBRARY.articles[title].uri, "score": round(score, 4)} for title, score in ranked
        ]
        return {
            "text": text,
            "status": "success" if self.read else "out_of_scope",
            "sources": sources,
            "tool_calls": self.calls,
            "usage": self._usage(text),
            "metadata": {"tokens_are_estimated": True},
        }

    def _look_up(self, query: str, *, weight: float) -> None:
        found = [(score, article) for score, article in LIBRARY.search(query, RESULTS) if score >= LEAST_SCORE]
        results = [
            {"title": article.title, "uri": article.uri, "score": round(score, 3), "snippet": _short(article.text)}
            for score, article in found
        ]
        self._report("search", {"query": " ".join(query.split()), "limit": RESULTS}, results)
        for position, (_, article) in enumerate(found, 1):
            self.ranks[article.title] += weight / position
        if found and found[0][1] not in self.read:
            article = LIBRARY.read(found[0][1].title)
            self._report("read", {"title": article.title}, {"text": _short(article.text), "links": list(article.links)})
            self.read.append(article)

    def _further_queries(self) -> list[str]:
        parts = [part.strip() for part in _PARTS.split(self.question) if words_of(part)]
        if len(parts) > 1:
            return parts[: MOST_SEARCHES - 1]
        if not self.read:
            return []
        known = set(words_of(f"{self.read[0].title} {self.read[0].text}"))
        # In the question's own spelling: a word of a query is stemmed only once.
        open_words = [word for word in re.findall(r"[^\W_]+", self.question) if set(words_of(word)) - known]
        return [" ".join(open_words)] if len(open_words) >= 2 else []

    def _text(self) -> str:
        if not self.read:
            return NOTHING
        rated = [
            (LIBRARY.overlap(self.question, sentence, about=article.title), number, position, sentence)
            for number, article in enumerate(self.read)
            for position, sentence in enumerate(sentences(article.text))
        ]
        rated.sort(key=lambda item: (-item[0], item[1:]))
        best = [item for item in rated[:MOST_SENTENCES] if item[0] >= LEAST_SHARE * rated[0][0]]
        best.sort(key=lambda item: item[1:])
        return " ".join(f"{sentence} [{self.read[number].title}]" for _, number, _, sentence in best)

    def _report(self, name: str, arguments: dict[str, Any], result: Any) -> None:
        self.calls.append({"id": f"call-{len(self.calls) + 1}", "name": name, "arguments": arguments, "result": result})

    def _usage(self, text: str) -> dict[str, int]:
        asked = sum(tokens_in(str(call["arguments"])) for call in self.calls)
        returned = sum(tokens_in(str(call["result"])) for call in self.calls)
        read = tokens_in(self.question) + returned + sum(tokens_in(article.text) for article in self.read)
        written = tokens_in(text) + asked
        return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written,
                "requests": len(self.calls) + 1}  # fmt: skip


def tokens_in(text: str) -> int:
    """Estimate how many word pieces a text has: one for up to six letters of a word, one for each other sign."""
    return sum((len(piece) + 5) // 6 for piece in re.findall(r"\w+|[^\w\s]", text))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS].rsplit(" ", 1)[0] + " …"
