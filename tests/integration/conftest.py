"""What the tests of services in this process share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from assay_orchestrator.engine import dispatcher

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_exit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose orchestrator has lost its work: its exit would end the process of the tests without a trace."""
    statuses: list[int] = []
    monkeypatch.setattr(dispatcher, "os", SimpleNamespace(_exit=statuses.append))
    yield
    assert statuses == [], "the orchestrator in this process wanted to exit: another process had its work"
