"""The wait that a server asks for when it refuses a request."""

from __future__ import annotations

import email.utils
import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def retry_after_s(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the wait in a reply's headers, in seconds; None if they hold none that can be read.

    Args:
        headers: The reply's headers, by lower-case name or in a mapping that does not mind the case.
            `retry-after` is a number of seconds or an HTTP date (RFC 9110, 10.2.3); `retry-after-ms`,
            which some providers of models send beside it, is more exact and wins.
        now: Seconds since 1970, for dates; the clock's if None.
    """
    milliseconds = number_in(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    seconds = number_in(text)
    if seconds is not None or not text:
        return seconds
    try:
        due = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, due - (time.time() if now is None else now))


def number_in(text: str) -> float | None:
    """Return the number from 0 that a header holds, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
