"""Failures of a database: clients see what to do; the log adds the place and the driver's words."""

from __future__ import annotations

import logging
import threading
import time

from assay.errors import StorageError

_REPEATED_AFTER_S = 10.0

_log = logging.getLogger(__name__)


class UnstorableValueError(ValueError):
    """A value does not fit the database: a defect of the storing code, which no retry fixes."""


class FailureLog:
    """Makes the errors of one database.

    While the database is being opened, only its operator sees the errors, in full. Afterwards they reach clients, so
    they name neither address nor file: those go into the log, the same sentence at most every 10 s.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._mutex = threading.Lock()
        self._last = ""
        self._last_at = 0.0  # pragma: no mutate: the first failure sets it before anything reads it

    def error(self, shown: str, full: str) -> StorageError:
        """Return the error to raise.

        Args:
            shown: The text for clients.
            full: The text for the operator.
        """
        if not self.is_open:
            return StorageError(full)
        with self._mutex:
            now = time.monotonic()
            if full != self._last or now - self._last_at >= _REPEATED_AFTER_S:
                self._last, self._last_at = full, now
                _log.warning("storage failed: %s", full)
        return StorageError(shown)
