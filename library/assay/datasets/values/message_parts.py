"""Messages whose content is a list of parts, as model providers write them."""

from __future__ import annotations

from collections.abc import Mapping

_TEXTS = ("text", "input_text", "output_text")


def parts_text(value: object) -> str | None:
    """Return the text of a list of text parts; None for anything else."""
    if isinstance(value, list) and value and all(map(_is_text_part, value)):
        return "".join(item["text"] for item in value)
    return None


def _is_text_part(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type", "text") in _TEXTS and isinstance(item.get("text"), str)
