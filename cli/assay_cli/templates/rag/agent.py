"""A museum guide that retrieves objects of the collection and answers with the text on the best match.

The retrieved objects are returned as `events`, which coverage and satisfaction read; `retrieved` means the same.
"""

from __future__ import annotations

import re
from typing import Any

COLLECTION = [
    {"id": "m1", "title": "Astrolabe", "content": "The astrolabe was made in Isfahan in 1648."},
    {"id": "m2", "title": "Kimono", "content": "The kimono is made of silk with gold thread."},
    {"id": "m3", "title": "Globe", "content": "The globe is from 1592."},
    {"id": "m4", "title": "Violin", "content": "The violin was built in 1668 by Jacob Stainer."},
    {"id": "m5", "title": "Vase", "content": "The vase stands in room 4."},
]


async def answer(request: Any) -> dict[str, Any]:
    """Answer one question from the collection."""
    hits = retrieve(request.input)
    if not hits:
        return {"text": "I couldn't find anything about that in the collection.", "events": []}
    return {"text": hits[0]["content"], "events": hits}


def retrieve(question: str) -> list[dict[str, str]]:
    """Return the objects that a question names."""
    words = set(re.findall(r"\w+", question.lower()))
    return [item for item in COLLECTION if item["title"].lower() in words]
