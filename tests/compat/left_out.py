"""Which tests run between two versions, and which do not and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUITES = (
    "test_cli_answers.py",
    "test_cli_bad_cases.py",
    "test_cli_conversations.py",
    "test_cli_database.py",
    "test_cli_examples.py",
    "test_cli_finding_runs.py",
    "test_cli_gates.py",
    "test_cli_hostile_input.py",
    "test_cli_judged.py",
    "test_cli_logs.py",
    "test_cli_prompts.py",
    "test_cli_recorded_repeats.py",
    "test_cli_recorded_verdicts.py",
    "test_cli_report.py",
    "test_cli_run.py",
    "test_cli_runs.py",
    "test_cli_runs_json.py",
    "test_cli_selection.py",
    "test_cli_shared_stack.py",
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


_PROTO = "protos/assay/v1/orchestrator.proto"
_RUNS = "services/orchestrator/assay_orchestrator/store/runs.py"
_PAUSED = "test_cli_runs.py::test_a_paused_run_goes_on_where_its_owner_says"
_PAUSED_REASON = "the reason of a pause, which it compares, is a text of the server"
_PROMPT = "test_cli_prompts.py::test_a_prompt_is_run_and_its_key_is_written_nowhere"
_PROMPT_REASON = "the question of a prompt is its variables as JSON, which had a space behind each colon"
_PROMPT_QUESTION = ("tests/e2e/test_cli_prompts.py", '{"review":"')

OLDER_COMMANDS: tuple[LeftOut, ...] = (
    LeftOut(_PAUSED, _PAUSED_REASON, (_RUNS, "paused with `assay runs pause`")),
    LeftOut(
        "test_cli_runs.py::test_runs_are_deleted_once_somebody_has_agreed",
        "the id that was probably meant is named by the command, and was by the server",
        ("cli/assay_cli/run_suggestions.py", "with_suggestion"),
    ),
    LeftOut(_PROMPT, _PROMPT_REASON, _PROMPT_QUESTION),
    LeftOut(
        "test_cli_examples.py::test_targets_of_metrics_are_reported_beside_the_gates",
        "consistency between different cases has no target of its own",
        ("tests/e2e/test_cli_examples.py", '"prompt-quality": Example(\n        96'),
    ),
)
"""Of the base's tests, with its commands and services of this version."""

OLDER_SERVICES: tuple[LeftOut, ...] = (
    LeftOut(_PAUSED, _PAUSED_REASON, (_RUNS, "paused with `assay runs pause`")),
    LeftOut(_PROMPT, _PROMPT_REASON, _PROMPT_QUESTION),
    LeftOut(
        "test_cli_database.py::test_a_user_who_may_only_read",
        "its database has this version's tables, which an older service refuses",
    ),
    LeftOut(
        "test_cli_finding_runs.py::test_runs_have_names_labels_and_notes",
        "the server does not know labels: the run is refused (SERVER_TOO_OLD)",
        (_PROTO, "map<string, string> labels = 20"),
    ),
    LeftOut(
        "test_cli_finding_runs.py::test_a_run_of_a_prompt_tells_model_and_prompt",
        "the server does not know selections: the run is refused (SERVER_TOO_OLD)",
        (_PROTO, "message CaseSelection"),
    ),
    LeftOut(
        "test_cli_selection.py",
        "the server does not know selections: the run is refused (SERVER_TOO_OLD)",
        (_PROTO, "message CaseSelection"),
    ),
)
"""Of this version's tests, with its commands and services of the base."""
