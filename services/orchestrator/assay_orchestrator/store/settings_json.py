"""What a run does and what it came to, as the JSON that the store keeps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.verdict.run_verdict import run_verdict
from assay.wire.run import SETTINGS
from assay.wire.summary import SUMMARY

if TYPE_CHECKING:
    from assay.model.run import RunSettings, RunSummary

_TURNS_BEFORE = "last"
"""What versions scored that stored nothing about turns: all rows of their runs are scored like that."""


def settings_to_json(settings: RunSettings) -> dict[str, Any]:
    """Return the settings as a JSON object."""
    return dataclasses.asdict(settings)


def settings_from_json(data: dict[str, Any]) -> RunSettings:
    """Return the settings that `settings_to_json` wrote, in this version or an earlier one."""
    return SETTINGS.from_json({"turns": _TURNS_BEFORE, **data})


def summary_to_json(summary: RunSummary) -> dict[str, Any]:
    """Return the summary as a JSON object."""
    return dataclasses.asdict(summary)


def summary_from_json(data: dict[str, Any]) -> RunSummary:
    """Return the summary that `summary_to_json` wrote; one of an older version gets the verdict of this version."""
    summary = SUMMARY.from_json(data)
    if "agent_errors" in data and all("missing_reason" in metric for metric in data["metrics"]):
        return summary
    return dataclasses.replace(summary, overall_status=run_verdict(summary).status.value)
