"""Examples are loaded as a run loads them, and leave nothing behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def clean_imports() -> Iterator[None]:
    """Leave Python's modules, and where it looks for them, as they were."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "/examples/" in (getattr(sys.modules[name], "__file__", None) or "").replace("\\", "/"):
            del sys.modules[name]
