"""What a start does not import: every run waits for the orchestrator, and every command for its own modules."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ORCHESTRATOR = """
import sys
from pathlib import Path
import assay_orchestrator.__main__ as entry
entry.defer_imports(*entry.UNUSED)
import assay_orchestrator.engine.dispatcher_factory, assay_orchestrator.service
from assay_orchestrator.runs import manager, planner
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
for _ in range(2):  # makes a database, then finds it up to date
    open_database(Settings.read(["--database", sys.argv[1]], {})).close()
"""
EARLY = "import assay_cli.__main__, assay.local_stack.early_start"
COMMAND = f"{EARLY}, assay_cli.commands.run"
UNUSED = {
    "orchestrator": (
        "alembic", "assay.comparison.compare", "assay.specs.loader", "httpx2", "jsonschema", "numpy", "procrastinate",
        "psycopg", "scipy", "sqlalchemy.dialects.postgresql", "yaml", "email", "google.protobuf.text_format",
    ),
    "early": ("asyncio", "click", "logging", "tempfile", "typing_extensions"),
    "command": (
        "assay.comparison", "assay.model.run", "asyncio", "grpc", "hashlib", "jinja2", "numpy", "sqlalchemy",
        "tempfile", "yaml",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("part", "code"), [("orchestrator", ORCHESTRATOR), ("early", EARLY), ("command", COMMAND)])
def test_a_start_imports_nothing_that_it_does_not_need(part: str, code: str, tmp_path: Path) -> None:
    """The orchestrator until it takes work over a file; `assay run` until it starts it, and until it reads input."""
    code += f"\nprint([name for name in {UNUSED[part]} if name in sys.modules])"
    command = [sys.executable, "-c", f"import sys\n{code}", str(tmp_path / "assay.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
