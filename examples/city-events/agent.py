"""A city-events assistant: retrieves events from a small corpus and tells about the best ones.

It reads dates, prices and categories out of a question, keeps the events that fit them, ranks those with BM25
and says title, day, time, place and price. What it cannot find, it says it cannot find.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

EVENTS = [
    json.loads(line) for line in Path(__file__).with_name("events.jsonl").read_text(encoding="utf-8").splitlines()
]
NOTHING = "I couldn't find any events like that."
K1, B = 1.2, 0.5
LEAST_SCORE = 3.0
MOST_EVENTS = 3
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
STOP_WORDS = frozenset(
    "a about an and any are at be by can could do does event events find for from get go hear i i'd i'm in is it learn "
    "like me month my of on or out please show shows something take takes the there they this to want watch what when "
    "where which who will with you place play plays see on's some small".split()
)
SYNONYMS = {
    "concert": "music", "impressionist": "impressionists", "bee": "beekeeping", "repair": "mend", "repaired": "mend",
    "broken": "mend", "dancing": "dance", "kid": "children", "kids": "children", "movie": "film", "cinema": "film",
    "laugh": "comedian", "funny": "comedian", "kayaking": "kayak", "course": "class", "courses": "class",
    "families": "family", "museums": "museum", "games": "game", "concerts": "music", "wines": "wine",
}  # fmt: skip


async def answer(request: Any) -> dict[str, Any]:
    """Answer one question about the events."""
    found = search(request.input)
    if not found:
        return {"text": NOTHING, "events": [], "status": "out_of_scope"}
    return {"text": " ".join(describe(event) for event in found), "events": found}


def search(question: str) -> list[dict[str, Any]]:
    """Return up to three events that fit the question, best first."""
    day = date_in(question)
    limit = price_limit_in(question)
    candidates = [
        event
        for event in EVENTS
        if (day is None or event["date"] == day) and (limit is None or event["price"] <= limit)
    ]
    words = [word for word in words_of(question) if not word.isdigit() and word not in ("free", "under", "euro")]
    ranked = sorted(((score(words, event), event) for event in candidates), key=lambda pair: -pair[0])
    best = ranked[0][0] if ranked else 0.0
    if day is not None and best < LEAST_SCORE:
        return candidates[:MOST_EVENTS]  # the day is what was asked for
    if best < LEAST_SCORE:
        return []
    share = 0.75 if day is not None else 0.9
    return [event for value, event in ranked[:MOST_EVENTS] if value >= share * best]


def score(words: list[str], event: dict[str, Any]) -> float:
    """Return how well an event fits some words (BM25)."""
    counts = COUNTS[event["id"]]
    length = sum(counts.values())
    total = 0.0
    for word in set(words):
        count = counts[word]
        weight = math.log(1 + (len(EVENTS) - FREQUENCY[word] + 0.5) / (FREQUENCY[word] + 0.5))
        total += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * length / AVERAGE_LENGTH))
    return total


def describe(event: dict[str, Any]) -> str:
    """Return one sentence about an event."""
    day = date.fromisoformat(event["date"])
    price = f"{event['price']} euros" if event["price"] else "free of charge"
    when = f"{WEEKDAYS[day.weekday()]} {day.day} {MONTHS[day.month - 1]}"
    return f"{event['title']} is on {when} at {event['time']} at {event['venue']}, {price}."


def date_in(question: str) -> str | None:
    """Return the day that a question names, e.g. "26 September", as YYYY-MM-DD."""
    names = "|".join(MONTHS)
    found = re.search(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({names})\b", question, re.IGNORECASE)
    if found is None:
        return None
    month = [name.lower() for name in MONTHS].index(found[2].lower()) + 1
    return f"2026-{month:02d}-{int(found[1]):02d}"


def price_limit_in(question: str) -> float | None:
    """Return the highest price that a question allows, 0 for free."""
    if re.search(r"\bfree\b", question, re.IGNORECASE):
        return 0.0
    found = re.search(r"\b(?:under|below|less than|up to|at most) (\d+)", question, re.IGNORECASE)
    return float(found[1]) if found else None


def words_of(text: str) -> list[str]:
    """Return the words that carry meaning, in a common form."""
    found = []
    for word in re.findall(r"[\w'’]+(?:-\w+)*", text.lower()):
        word = word.replace("’", "'").removesuffix("'s")
        if word in STOP_WORDS:
            continue
        word = SYNONYMS.get(word, word)
        found.append(word[:-1] if len(word) > 4 and word.endswith("s") and not word.endswith("ss") else word)
    return found


def _count(event: dict[str, Any]) -> Counter[str]:
    names = ("title", "title", "category", "description", "venue", "district")
    return Counter(words_of(" ".join(event[name] for name in names)))


COUNTS = {event["id"]: _count(event) for event in EVENTS}
FREQUENCY = Counter(word for counts in COUNTS.values() for word in counts)
AVERAGE_LENGTH = sum(sum(counts.values()) for counts in COUNTS.values()) / len(COUNTS)
