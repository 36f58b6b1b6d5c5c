"""What tests against real frameworks share: the command and its local stack, as the tests of the command have them."""

from __future__ import annotations

import pytest
from tests.e2e.conftest import cli, command_server, shared_cli, shared_home, shared_project

__all__ = ["cli", "command_server", "shared_cli", "shared_home", "shared_project"]

_ENDED_MCP_SERVER = "ignore:unclosed transport <_UnixSubprocessTransport pid=[0-9]+ returncode=0 :ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let MCP's client leave the transport of an ended server to the garbage collector, which may run in any test."""
    for item in items:
        if "frameworks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings(_ENDED_MCP_SERVER))
