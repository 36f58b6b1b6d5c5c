"""Why metrics have no value on rows, counted for people: bounded whatever the rows say."""

from __future__ import annotations

from assay.model.answers.agent_response import AgentStatus
from assay.model.run import MetricSummary, RowResult, Score, ScoreStatus
from assay.reports.words.metric_text import Uncomputed


def test_what_functions_raise_is_counted_in_bounded_memory() -> None:
    """Another text on every row is kept a hundred times, and counted under the stable word from then on."""
    uncomputed = Uncomputed()
    for number in range(5_000):
        message = f"ValueError: {number} " + "x" * 3_000
        score = Score("m", ScoreStatus.ERROR, reason="function_raised", detail={"function": "m:f"}, message=message)
        uncomputed.take(RowResult("c", number, 1, "", AgentStatus.SUCCESS, None, (score,), None, ""))
    summary = MetricSummary(metric="m", value=None, scored_count=0, skipped_count=0, error_count=5_000)
    (line,) = uncomputed.lines([summary])
    assert line.startswith("errors  m on 5,000 of 5,000 rows: function raised (4,900), ValueError: 0 xxx")
    assert len(line) < 1_500
