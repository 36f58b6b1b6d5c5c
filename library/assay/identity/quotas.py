"""Quotas: a team's limits on concurrency, storage and spending, each a whole number of a unit."""

from __future__ import annotations

import enum
import re
from decimal import Decimal, InvalidOperation

NANO = 10**9
MAX_AMOUNT = 2**53 - 1
"""The largest amount, which clients in JavaScript read without loss."""

_BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?", re.ASCII)
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{'iB' if size == 1024 else 'B'}": size**power
    for size, prefixes in ((1000, "kMGT"), (1024, "KMGT"))
    for power, prefix in enumerate(prefixes, start=1)
}


class Quota(enum.Enum):
    """A quota, by its name in commands and messages."""

    ACTIVE_RUNS = "active-runs"
    CONCURRENT_QUESTIONS = "concurrent-questions"
    STORED_BYTES = "stored-bytes"
    REQUESTS_PER_MINUTE = "requests-per-minute"
    TOKENS_PER_DAY = "tokens-per-day"
    MONEY_PER_MONTH = "money-per-month"

    def shown(self, amount: int) -> str:
        """Return an amount in readable form; money is in billionths of a dollar."""
        if self is Quota.MONEY_PER_MONTH:
            return f"${amount / NANO:,.2f}"
        if self is Quota.STORED_BYTES:
            return _shown_bytes(amount)
        return f"{amount:,}"

    def parse(self, text: str) -> int:
        """Parse an amount: dollars, bytes such as 10GB or 512MiB, or a whole number.

        Raises:
            ValueError: The text is not an amount; the message describes valid input.
        """
        if self is Quota.STORED_BYTES:
            match = _BYTES.fullmatch(text)
            if match is None:
                raise ValueError(f"must be bytes such as 500MB or 10GiB, not {text[:40]!r}")
            amount = int(Decimal(match[1]) * _UNITS[match[2] or ""])
        elif self is Quota.MONEY_PER_MONTH:
            amount = _nano(text)
        elif text.isascii() and text.isdecimal():
            amount = int(text[:20])
        else:
            raise ValueError(f"must be a whole number, not {text[:40]!r}")
        if amount > MAX_AMOUNT:
            raise ValueError("is too large: leave the quota out, or give `none`")
        return amount


def nano_from_usd(dollars: float) -> int:
    """Return dollars as billionths, clamped to the range from 0 to the largest quota."""
    return min(round(min(dollars, MAX_AMOUNT / NANO) * NANO), MAX_AMOUNT) if dollars > 0 else 0


def _nano(text: str) -> int:
    try:
        dollars = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        dollars = Decimal(-1)
    if not dollars.is_finite() or dollars < 0:
        raise ValueError(f"must be dollars such as 100 or 2.50, not {text[:40]!r}")
    return int(min(dollars, Decimal(MAX_AMOUNT)) * NANO)


def _shown_bytes(amount: int) -> str:
    for unit in ("TB", "GB", "MB", "kB"):
        if amount >= _UNITS[unit]:
            return f"{amount / _UNITS[unit]:,.1f} {unit}"
    return f"{amount:,} bytes"
