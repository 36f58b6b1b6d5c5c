"""Outages of a database: what is tried again, and when a caller learns of one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from assay.storage.outages import Outages

if TYPE_CHECKING:
    from collections.abc import Callable


def failing(times: int) -> Callable[[], str]:
    """Return an attempt that finds the server away so many times."""
    left = [psycopg.errors.AdminShutdown("terminating connection due to administrator command")] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    return attempt


def test_one_broken_connection_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that end while they are idle are replaced without a word, with no patience at all."""
    assert Outages(0.0, str).outlast(failing(1), threading.Event()) == "done"
    assert caplog.records == []


def test_without_patience_a_second_failure_is_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the error, and the log says that the server is away."""
    with pytest.raises(psycopg.errors.AdminShutdown):
        Outages(0.0, str).outlast(failing(2), threading.Event())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["retrying for 0 s"]
