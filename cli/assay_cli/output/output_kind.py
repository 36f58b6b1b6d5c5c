"""What a command that follows a run prints on stdout."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """What a command that follows a run prints on stdout."""

    TEXT = "for people"
    DOCUMENT = "one JSON document at the end"
    LINES = "one JSON line for each event"
    REPORT = "the JSON report at the end"
    VERDICT = "one line at the end"

    @classmethod
    def document_if(cls, as_json: bool) -> Form:
        """Return the form of a command whose --json is one document."""
        return cls.DOCUMENT if as_json else cls.TEXT

    @classmethod
    def lines_if(cls, as_json: bool) -> Form:
        """Return the form of a command whose --json is a line for each event."""
        return cls.LINES if as_json else cls.TEXT
