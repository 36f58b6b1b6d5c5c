"""What providers say in their headers about the rate that they allow."""

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
    """What is allowed of requests, or of tokens.

    Args:
        limit: Most within a period.
        remaining: Left of it now.
        per_minute: Whether the period is a minute, as far as the headers show; some limits are for a day.
    """

    limit: float
    remaining: float
    per_minute: bool = True


def read_allowances(headers: Mapping[str, str], *, now: float) -> tuple[Allowance | None, Allowance | None]:
    """Return what is allowed of requests and of tokens; None where the headers name no limit.

    Args:
        headers: By lower-case name: x-ratelimit-limit-requests and so on of OpenAI's protocol, or
            anthropic-ratelimit-requests-limit and so on.
        now: Seconds since 1970.
    """
    found = [_allowance(headers, kind, now) for kind in ("requests", "tokens")]
    return found[0], found[1]


def _allowance(headers: Mapping[str, str], kind: str, now: float) -> Allowance | None:
    for pattern in ("x-ratelimit-{}-" + kind, "anthropic-ratelimit-" + kind + "-{}"):
        limit, remaining = (number_in(headers.get(pattern.format(part), "")) for part in ("limit", "remaining"))
        if limit and remaining is not None:
            left = min(remaining, limit)
            reset_s = _span_s(headers.get(pattern.format("reset"), ""), now)
            # The time until all is there again shows how fast it comes back, and so how long the period is.
            period_s = reset_s * limit / (limit - left) if reset_s and left < limit else 0.0
            return Allowance(limit, left, period_s <= _MINUTE_PERIOD_S)
    return None


def _span_s(text: str, now: float) -> float:
    """Return the seconds in "1m30s", "20ms", "7" or an RFC 3339 time; 0 where it is none of them."""
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
