"""First error of the agent and of each metric in a run: type, message and raising frame."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.metrics.core.explanations import score_message
from assay.metrics.core.turn_scores import scores_by_turn
from assay.model.run import ScoreStatus
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.model.run import RowResult

_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_MESSAGE_CHARS = 300
_FRAME_CHARS = 120
_MOST_METRICS = 5
_AGENT = "agent"


@dataclass(frozen=True, slots=True)
class FirstError:
    """The first error of an agent or a metric.

    Args:
        source: "agent", or the metric's name.
        case_id: The case.
        message: Type and message of an exception, or why there is no value; untrusted.
        traceback: The frames of the user's code; empty where nothing was raised there.
        count: How many rows have an error of this source.
    """

    source: str
    case_id: str
    message: str
    traceback: str
    count: int

    @property
    def sentence(self) -> str:
        """The error in one clean line, with the frame that raised it."""
        frames = _FRAME.findall(self.traceback)
        file, line, function = frames[-1] if frames else ("", "", "")
        where = f" (in {function}, {shorten(file, _FRAME_CHARS)}:{line})" if frames else ""
        rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
        source = _AGENT if self.source == _AGENT else f"metric {shorten(self.source, _FRAME_CHARS)}"
        message = shorten(self.message, _MESSAGE_CHARS)
        return f"{source} failed on {rows}, first on case {shorten(self.case_id, _FRAME_CHARS)}: {message}{where}"


def first_errors(rows: Iterable[RowResult]) -> list[FirstError]:
    """Return the first errors of the agent and of at most five metrics, with the number of rows that have one."""
    errors: dict[str, tuple[str, str, str]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        for source, message, traceback in _errors(row):
            counts[source] = counts.get(source, 0) + 1
            errors.setdefault(source, (row.case_id, message, traceback))
    shown = [source for source in errors if source != _AGENT][:_MOST_METRICS]
    shown = [_AGENT, *shown] if _AGENT in errors else shown
    return [FirstError(source, *errors[source], counts[source]) for source in shown]


def _errors(row: RowResult) -> Iterable[tuple[str, str, str]]:
    if row.status.is_failed:
        error = row.response.error if row.response is not None else None
        yield _AGENT, error.message if error is not None else row.message, error.traceback if error is not None else ""
        return
    for score in row.scores:
        if score.status is ScoreStatus.ERROR:
            parts = [part for _, part in scores_by_turn(score)]
            traceback = next((str(part.detail["traceback"]) for part in parts if part.detail.get("traceback")), "")
            raised = next((part for part in parts if part.message), score)
            yield score.metric, score_message(raised), traceback
