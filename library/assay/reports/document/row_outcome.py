"""Outcome of a report's row, in the terms of filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.filters.row_filter import RowOutcome, outcome
from assay.model.answers.agent_response import FAILED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping


def outcome_of(row: Mapping[str, Any]) -> RowOutcome:
    """Return the outcome of a row."""
    return outcome(row["passed"], row["message"], is_error=row["status"] in FAILED_STATUSES)
