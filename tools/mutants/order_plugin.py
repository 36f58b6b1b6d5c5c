"""A pytest plugin that runs tests in the order in which they are named: first those most likely to notice a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Undo what tests/conftest.py does for a whole run: slow files first."""
    named = {name: place for place, name in enumerate(config.args)}
    yield
    items.sort(key=lambda item: named.get(item.nodeid, len(named)))
