"""Independent writing of reports: a failed report affects neither the verdict nor the other reports."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.errors import AssayError, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)


class Attempts:
    """Record of written and failed reports.

    Attributes:
        failures: A sentence per failure.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._written_count = 0

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Note a failure of the code inside and continue after it.

        Args:
            what: What the code writes, e.g. "the report html".
        """
        try:
            yield
        except AssayError as problem:
            self.failures.append(f"{what} was not written: {problem.message}")
        except Exception as problem:  # noqa: BLE001 - the boundary of a report
            _log.exception("cannot write %s", what)
            self.failures.append(
                f"{what} was not written ({type(problem).__name__}: {problem}): please report the traceback above"
            )
        else:
            self._written_count += 1

    def warn(self) -> None:
        """Issue each failure as a Python warning."""
        for failure in self.failures:
            warnings.warn(failure, stacklevel=3)

    def raise_if_all_failed(self) -> None:
        """Raise if every attempt failed.

        Raises:
            SetupError: It has the sentences of all failures.
        """
        if self.failures and not self._written_count:
            raise SetupError("\n".join(["no report could be written", *self.failures]), reason="NO_REPORT")
