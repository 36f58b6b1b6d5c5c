"""Well-known models by name: the prefix they were trained with, and whether they know only English."""

from __future__ import annotations

import re

_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])", re.IGNORECASE)
_ENGLISH = re.compile(
    r"all-(minilm-l(6|12)-v[12]|mpnet-base-v[12]|distilroberta-v1|roberta-large-v1)"
    r"|(multi-qa|msmarco|paraphrase)-(?!multilingual).*(minilm|mpnet|distilbert|distilroberta|albert).*"
    r"|bge-(micro|small|base|large)-en(-v[0-9.]+)?"
    r"|gte-(tiny|small|base|large)(-en-v[0-9.]+)?"
    r"|e5-(small|base|large)(-v2|-unsupervised)?",
    re.IGNORECASE,
)


def prefix_of(name: str) -> str:
    """Return the prefix that a model was trained with for comparing texts.

    Args:
        name: A model's id or folder; its last part counts.

    Returns:
        "query: " for e5 models, on both sides of a symmetric comparison; else empty.
    """
    return "query: " if _E5.search(_last_part(name)) else ""


def is_english_only(name: str) -> bool:
    """Return whether a well-known model was trained only on English; False if its name does not tell."""
    return _ENGLISH.fullmatch(_last_part(name)) is not None


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]
