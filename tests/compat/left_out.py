"""Which tests run between two versions, and which do not and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUITES = (
    "test_cli_conversations.py",
    "test_cli_database.py",
    "test_cli_dataset.py",
    "test_cli_examples.py",
    "test_cli_finding_runs.py",
    "test_cli_gates.py",
    "test_cli_hostile_agents.py",
    "test_cli_hostile_input.py",
    "test_cli_judged.py",
    "test_cli_observability.py",
    "test_cli_prompts.py",
    "test_cli_recorded_verdicts.py",
    "test_cli_report.py",
    "test_cli_run.py",
    "test_cli_runs.py",
    "test_cli_selection.py",
    "test_cli_services.py",
    "test_cli_verdict.py",
    "test_cli_why.py",
    "test_python_api.py",
)
"""Files of tests/e2e whose commands use a server; the others read files alone."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Tests that say nothing about two versions.

    Args:
        test: A file of SUITES, or one test of it as "file::name".
        reason: Why.
        lacks: The tests run all the same where the base has this text in this file; None where they never run.
    """

    test: str
    reason: str
    lacks: tuple[str, str] | None = None

    def applies(self, base: Path) -> bool:
        """Return whether the tests are left out with this base."""
        if self.lacks is None:
            return True
        path, text = self.lacks
        return not (base / path).is_file() or text not in (base / path).read_text(encoding="utf-8")


OLDER_COMMANDS: tuple[LeftOut, ...] = ()
"""Of the base's tests, with its commands and services of this version."""

OLDER_SERVICES: tuple[LeftOut, ...] = (
    LeftOut(
        "test_cli_database.py::test_a_user_who_may_only_read",
        "its database has this version's tables, which an older service refuses",
    ),
)
"""Of this version's tests, with its commands and services of the base."""
