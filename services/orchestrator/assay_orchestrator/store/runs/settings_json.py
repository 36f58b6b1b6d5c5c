"""Settings and summaries of runs as the JSON that the store keeps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.wire.run import SETTINGS
from assay.wire.summary import SUMMARY

if TYPE_CHECKING:
    from assay.model.run import RunSettings, RunSummary


def settings_to_json(settings: RunSettings) -> dict[str, Any]:
    """Return the settings as a JSON object."""
    return dataclasses.asdict(settings)


def settings_from_json(data: dict[str, Any]) -> RunSettings:
    """Return the settings in JSON written by `settings_to_json`."""
    return SETTINGS.from_json(data)


def summary_to_json(summary: RunSummary) -> dict[str, Any]:
    """Return the summary as a JSON object."""
    return dataclasses.asdict(summary)


def summary_from_json(data: dict[str, Any]) -> RunSummary:
    """Return the summary in JSON written by `summary_to_json`."""
    return SUMMARY.from_json(data)
