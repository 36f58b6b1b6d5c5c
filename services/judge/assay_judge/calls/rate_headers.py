"""Rate limits in the providers' response headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.providers.retry_after import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_MINUTE_PERIOD_S = 600.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The provider's limit on requests or on tokens.

    Args:
        limit: Most per period.
        remaining: Amount left in the current period.
        per_minute: Whether the period is a minute, as far as the headers show; some limits are per day.
    """

    limit: float
    remaining: float
    per_minute: bool = True


def read_allowances(headers: Mapping[str, str], *, now: float) -> tuple[Allowance | None, Allowance | None]:
    """Return the limits on requests and on tokens, each None if the headers name none.

    Args:
        headers: By lower-case name: x-ratelimit-limit-requests and so on of OpenAI's protocol, or
            anthropic-ratelimit-requests-limit and so on.
        now: Seconds since 1970.
    """
    allowances = [_allowance(headers, kind, now) for kind in ("requests", "tokens")]
    return allowances[0], allowances[1]


def _allowance(headers: Mapping[str, str], kind: str, now: float) -> Allowance | None:
    for pattern in ("x-ratelimit-{}-" + kind, "anthropic-ratelimit-" + kind + "-{}"):
        limit, remaining = (number_in(headers.get(pattern.format(part), "")) for part in ("limit", "remaining"))
        if limit and remaining is not None:
            left = min(remaining, limit)
            reset_s = _span_s(headers.get(pattern.format("reset"), ""), now)
            # The time until the limit is full again shows the refill rate, and so the length of the period.
            period_s = reset_s * limit / (limit - left) if reset_s and left < limit else 0.0
            return Allowance(limit, left, period_s <= _MINUTE_PERIOD_S)
    return None


def _span_s(text: str, now: float) -> float:
    """Return the seconds in "1m30s", "20ms", "7" or until an RFC 3339 time; 0 for any other text."""
    spans = _SPAN.findall(text)
    if spans and "".join(number + unit for number, unit in spans) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in spans)
    number = number_in(text)
    if number is not None:
        return number
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max(0.0, (due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() - now)
