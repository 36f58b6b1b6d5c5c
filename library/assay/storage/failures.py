"""Failures of a database: clients learn what to do; the log also says where and quotes the driver."""

from __future__ import annotations

import logging
import threading
import time

from assay.errors import StorageError

_REPEATED_AFTER_S = 10.0

_log = logging.getLogger(__name__)


class UnstorableValueError(ValueError):
    """A value does not fit the database: a defect in the code that stores it, which no retry removes."""


class FailureLog:
    """Makes the errors of one database.

    While it is opened, its operator alone sees them, with everything. From then on they reach clients, so they name
    neither address nor file: that goes into the log, the same sentence every 10 s at most.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._mutex = threading.Lock()
        self._last = ""
        self._last_at = 0.0  # pragma: no mutate: the first failure sets it before anything reads it

    def error(self, shown: str, full: str) -> StorageError:
        """Return the error to raise.

        Args:
            shown: What clients may know.
            full: What the operator is to know.
        """
        if not self.is_open:
            return StorageError(full)
        with self._mutex:
            now = time.monotonic()
            if full != self._last or now - self._last_at >= _REPEATED_AFTER_S:
                self._last, self._last_at = full, now
                _log.warning("storage failed: %s", full)
        return StorageError(shown)
