"""What a service shows its operator while it runs: metrics, where its settings ask for them."""

from __future__ import annotations

import importlib.util
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local.install_hint import install_hint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.runtime.settings import ServiceSettings

_log = logging.getLogger(__name__)


@asynccontextmanager
async def observed(settings: ServiceSettings, *, role: str = "", names_teams: bool = False) -> AsyncIterator[None]:
    """Serve the metrics of this process inside the block, where its settings have an address for them.

    Args:
        settings: The service's.
        role: What this process does of it, where processes differ.
        names_teams: Whether metrics name teams.

    Raises:
        SetupError: A package is not installed, or the address cannot be used.
    """
    if not settings.metrics_listen:
        yield
        return
    if importlib.util.find_spec("prometheus_client") is None:
        raise SetupError(
            f"--metrics-listen needs prometheus_client, which is not installed: {install_hint('prometheus')}",
            reason="NOT_INSTALLED",
        )
    from assay.telemetry.exporter import exporting  # imported here: most processes export nothing

    export = exporting(settings.metrics_listen, service=settings.service, role=role, names_teams=names_teams)
    async with export as address:
        _log.info("serving metrics: address=%s", address)
        yield
