"""Kinds of output on stdout of a command that follows a run."""

from __future__ import annotations

from enum import Enum


class OutputKind(Enum):
    """Kinds of output on stdout of a command that follows a run."""

    TEXT = "for people"
    DOCUMENT = "one JSON document at the end"
    LINES = "one JSON line for each event"
    REPORT = "the JSON report at the end"
    VERDICT = "one line at the end"
