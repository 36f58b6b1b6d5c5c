"""What tests against real frameworks share: the command and its local stack, as the tests of the command have them."""

from __future__ import annotations

from tests.e2e.conftest import command_server, shared_cli, shared_home, shared_project

__all__ = ["command_server", "shared_cli", "shared_home", "shared_project"]
