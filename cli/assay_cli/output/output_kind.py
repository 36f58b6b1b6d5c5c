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

    @classmethod
    def document_if(cls, as_json: bool) -> OutputKind:
        """Return the kind for a command whose --json prints one document."""
        return cls.DOCUMENT if as_json else cls.TEXT

    @classmethod
    def lines_if(cls, as_json: bool) -> OutputKind:
        """Return the kind for a command whose --json prints a line per event."""
        return cls.LINES if as_json else cls.TEXT
