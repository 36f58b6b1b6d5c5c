"""Inspect's samples: input, target, choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.foreign.messages import conversation
from assay.datasets.foreign.parts import Parts

NAME = "inspect"

FIELDS = {"id": "id", "input": "input", "references": "target", "choices": "choices", "metadata": "metadata"}
"""The format's own field names, by canonical field."""


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a sample.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return "target" in keys and isinstance(record.get("input"), str | list)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a sample.

    Inspect shows the choices to the model, so the agent gets them as the parameter `choices`. A target that is a
    choice's letter also accepts that choice's text, as in every case with choices.

    Raises:
        BadRecordError: The sample needs files or a sandbox, or cannot be read.
    """
    parts = Parts(record)
    parts.refuse("files", "setup", why="needs files in a sandbox, which agents are not given: use samples without them")
    parts.refuse("sandbox", why="needs a sandbox, which agents are not given: use samples without one")
    choices = _choices(parts)
    plain: dict[str, Any] = {
        "id": parts.take("id"),
        **conversation(parts.take("input"), parts.name("input")),
        "references": parts.texts("target"),
        "choices": choices,
        "parameters": {"choices": choices} if choices else {},
    }
    return parts.finish(plain, parts.take("metadata"))


def _choices(parts: Parts) -> list[str]:
    """Return the choices; Inspect splits a single text at commas, or at spaces if it has no comma."""
    choices = parts.texts("choices")
    if len(choices) != 1 or isinstance(parts.take("choices"), list):
        return choices
    cut = choices[0].split(",") if "," in choices[0] else choices[0].split()
    return [choice.strip() for choice in cut if choice.strip()]
