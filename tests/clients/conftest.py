"""Clients in other languages, against an orchestrator with tokens and TLS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Cli
from tests.e2e.test_cli_identity import free_port, is_listening
from tests.support.services.certificates import certificate_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


class Orchestrator:
    """An orchestrator for teams, as a process that can be killed and started again.

    Args:
        cli: Runs the command in a folder of the test.

    Attributes:
        cli: Runs the command, as the operator until `run_as_team`.
        environment: The environment of clients, with address, token and authority.
    """

    def __init__(self, cli: Cli) -> None:
        self.address = f"localhost:{free_port()}"
        self.cli = cli
        certificate = certificate_for("localhost")
        authority = cli.folder / "server.pem"
        authority.write_bytes(certificate.certificate_pem)
        (cli.folder / "server.key").write_bytes(certificate.key_pem)
        operator = cli.run("admin", "bootstrap", "--database", "shared.db").stdout.strip()
        self.process = self._start()
        cli.env |= {"ASSAY_SERVER": self.address, "ASSAY_TOKEN": operator, "ASSAY_TLS_CA": str(authority)}
        cli.run("admin", "teams", "create", "web")
        token = cli.run("admin", "tokens", "create", "ci", "--team", "web", "--role", "runner").stdout.strip()
        self.environment = {
            **os.environ,
            "ASSAY_ADDRESS": self.address,
            "ASSAY_TOKEN": token,
            "ASSAY_CA": str(authority),
        }

    def run_as_team(self, address: str, spec: dict[str, object]) -> str:
        """Let the team's runs call an address, run a spec with the team's token, and return the output."""
        self.cli.run("admin", "destinations", "create", "agent", address, "--team", "web")
        self.cli.env["ASSAY_TOKEN"] = self.environment["ASSAY_TOKEN"]
        self.cli.write("assay.yaml", spec)
        return self.cli.run("run", "assay.yaml").stdout

    def restart(self) -> None:
        """Kill the process, and start another one over the same database and address."""
        self.process.kill()
        self.process.communicate()
        self.process = self._start()

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.communicate(timeout=60)

    def _start(self) -> subprocess.Popen[str]:
        process = self.cli.start(
            "serve", "orchestrator", "--listen", self.address, "--database", "shared.db", "--auth", "tokens",
            "--tls-cert", "server.pem", "--tls-key", "server.key", "--egress-networks", "127.0.0.0/8",
        )  # fmt: skip
        self.cli.wait_until(lambda: is_listening(self.address), process)
        return process


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[Orchestrator]:
    """An orchestrator of the test's own."""
    server = Orchestrator(Cli(tmp_path))
    yield server
    server.stop()
