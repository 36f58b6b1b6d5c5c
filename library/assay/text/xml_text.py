"""Escaping of untrusted texts in XML 1.0."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from assay.text.unsafe_text import markup_without_commands

_LEFT_OUT = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # forbidden; controls of Latin-1 are discouraged
    "|[\u202a-\u202e\u2066-\u2069]"  # these reorder the text around them
)


def legal_xml(text: str) -> str:
    """Return a text with U+FFFD in place of characters that XML 1.0 forbids or that change how others are shown."""
    return _LEFT_OUT.sub("\ufffd", text)


def xml_text(text: str) -> str:
    """Return an untrusted text as the content of an element."""
    # A parser reads a literal carriage return as a line end.
    return markup_without_commands(escape(legal_xml(text), {"\r": "&#13;"}))


def xml_attribute(text: str) -> str:
    """Return an untrusted text as the value of an attribute, with its quotes; line ends and tabs stay."""
    return markup_without_commands(quoteattr(legal_xml(text)))
