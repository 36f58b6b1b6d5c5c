"""How long a refusing server asks to be left alone."""

from __future__ import annotations

import pytest

from assay.providers.retry_after import retry_after_s

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0.0),
        ({"retry-after": "1", "retry-after-ms": "1250"}, 1.25),
        ({"retry-after": "1", "retry-after-ms": "soon"}, 1.0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "Tue, 99 Nov 2023 22:14:20 GMT"}, None),
    ],
)
def test_seconds_dates_and_nonsense(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds and dates are read, milliseconds win, and what cannot be read asks for nothing."""
    assert retry_after_s(headers, now=NOW) == seconds
