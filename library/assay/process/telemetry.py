"""Metrics and traces of a service, if its settings enable them."""

from __future__ import annotations

import importlib.util
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.telemetry.tracing import tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from assay.process.settings import ServiceSettings

_log = logging.getLogger(__name__)


@asynccontextmanager
async def observed(settings: ServiceSettings, *, role: str = "", names_teams: bool = False) -> AsyncIterator[None]:
    """Serve metrics and record spans of this process inside the block, as far as its settings enable them.

    Args:
        settings: The service's settings.
        role: The role of this process, if processes have different roles.
        names_teams: Whether metrics name teams.

    Raises:
        SetupError: A package is not installed, or the address cannot be used.
    """
    async with AsyncExitStack() as stack:
        if settings.metrics_listen:
            _require("prometheus_client", "--metrics-listen", "prometheus")
            from assay.telemetry.exporter import exporting  # imported here: most processes export nothing

            export = exporting(settings.metrics_listen, service=settings.service, role=role, names_teams=names_teams)
            _log.info("serving metrics: address=%s", await stack.enter_async_context(export))
        if settings.traces:
            stack.enter_context(traced(settings.service, role=role, asked_by="--traces"))
        yield


def traced(service: str, *, asked_by: str, role: str = "") -> AbstractContextManager[None]:
    """Return a block in which spans of this process are recorded.

    Args:
        service: The service, or `command`.
        asked_by: The setting that enables it, for the error.
        role: The role of this process, if processes have different roles.

    Raises:
        SetupError: The OpenTelemetry SDK is not installed.
    """
    _require("opentelemetry.sdk", asked_by, "otel")
    _require("opentelemetry.exporter.otlp.proto.http", asked_by, "otel")
    return tracing(service, role=role)


def _require(module: str, asked_by: str, extra: str) -> None:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        spec = None
    if spec is None:
        message = f"{asked_by} needs {module}, which is not installed: {install_hint(extra)}"
        raise SetupError(message, reason="NOT_INSTALLED")
