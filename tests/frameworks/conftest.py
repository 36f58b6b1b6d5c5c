"""What tests against real frameworks share: the command and its local stack, as the tests of the command have them."""

from __future__ import annotations

from tests.e2e.conftest import cli, command_server, shared_cli, shared_home, shared_project

__all__ = ["cli", "command_server", "shared_cli", "shared_home", "shared_project"]
