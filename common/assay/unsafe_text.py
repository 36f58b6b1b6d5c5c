"""Characters that change how the text around them is shown: they never reach a terminal or a log as they are.

Names, questions and answers come from datasets, clients and models. An escape sequence in one of them may set a
terminal's title or clipboard, a line end may forge a log line, and a bidi control shows a text in another order.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["UNSAFE", "LogFormatter", "configure_logging", "escaped"]

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls, C1 too: U+009B begins escape sequences
    "\u2028\u2029\ud800-\udfff"  # line ends, half characters
    # Format characters (Cf): bidi controls, zero-width ones, tags. Not the joiners U+200C and U+200D, and the signs of
    # Arabic, Syriac, Kaithi and Egyptian, with which people write.
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""One character that is not shown as it is."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """Return a text with unsafe characters as JSON writes them, e.g. \\u202e.

    Args:
        text: Any text.
        keep_lines: Whether line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE.sub(lambda found: found[0] if keep_lines and found[0] in "\n\t" else json.dumps(found[0])[1:-1], text)


class LogFormatter(logging.Formatter):
    """A record is one line, whatever its values hold; the lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return escaped(super().formatMessage(record))

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Return a traceback, of which an exception's text cannot begin a line."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return a stack in the same way."""
        return _indented(super().formatStack(stack_info))


def configure_logging() -> None:
    """Log from INFO on to stderr, one line per record."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _indented(text: str) -> str:
    # Split at line feeds alone: every other line end is escaped.
    return "\n".join(f"  {escaped(line)}" for line in text.split("\n"))
