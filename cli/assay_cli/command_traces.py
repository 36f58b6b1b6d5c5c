"""The span of a command, with which the trace of a run begins, where ASSAY_TRACES asks for it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ON = ("1", "true", "yes", "on")


@contextmanager
def traced_command(name: str) -> Iterator[None]:
    """Record a span around a command, and send it at its end.

    Args:
        name: The command.

    Raises:
        SetupError: The SDK of OpenTelemetry is not installed.
    """
    if os.environ.get("ASSAY_TRACES", "").lower() not in _ON:
        yield
        return
    from assay.process.telemetry import traced  # imported here: most commands are not traced
    from assay.telemetry.tracing import span

    with traced("command", asked_by="ASSAY_TRACES"), span(name):
        yield
