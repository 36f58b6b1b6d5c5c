"""Outlasts a PostgreSQL outage: a restart, a failover, a moment without free connections."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import psycopg
import sqlalchemy as sa

from assay.storage.postgres_errors import is_passing

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S = 0.25

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Outages:
    """Retries what an outage interrupted, until its patience runs out.

    From then on everything fails after a second attempt, without waiting, until something succeeds again.

    Args:
        patience_s: How long to wait during an outage, in seconds.
        describe: Returns the log text of a problem.
    """

    def __init__(self, patience_s: float, describe: Callable[[BaseException], str]) -> None:
        self._patience_s = patience_s
        self._describe = describe
        self._mutex = threading.Lock()
        self._since: float | None = None
        self._closing = False

    def outlast(self, attempt: Callable[[], T], gave_up: threading.Event) -> T:
        """Return the result of an attempt, which is repeated as often as needed.

        Args:
            attempt: The attempt; repeating it must not change anything twice.
            gave_up: Set when no caller waits any more; the attempt is then not repeated.

        Raises:
            sqlalchemy.exc.DBAPIError: It failed, and another attempt would fail as well.
            psycopg.Error: Likewise.
        """
        failure_count = 0
        while True:
            try:
                result = attempt()
            except (sa.exc.DBAPIError, psycopg.Error) as problem:
                failure_count += 1
                original = problem.orig if isinstance(problem, sa.exc.DBAPIError) else problem
                given_up = self._closing or gave_up.is_set()
                if given_up or original is None or not is_passing(original) or not self._lasts(failure_count, original):
                    raise
            else:
                self._end()
                return result
            # The first retry needs no pause: usually an idle connection had ended.
            if failure_count > 1:
                gave_up.wait(_PAUSE_S)

    def close(self) -> None:
        """Stop waiting."""
        self._closing = True

    def _lasts(self, failure_count: int, problem: BaseException) -> bool:
        """Return whether to retry after this many consecutive failures."""
        if failure_count == 1:
            return True  # most likely a connection that ended while idle
        with self._mutex:
            now = time.monotonic()
            if self._since is None:
                self._since = now
                _log.warning("retrying for %g s: %s", self._patience_s, self._describe(problem))
            return now - self._since < self._patience_s

    def _end(self) -> None:
        with self._mutex:
            if self._since is not None:
                _log.warning("database reachable again: outage_s=%.1f", time.monotonic() - self._since)
                self._since = None
