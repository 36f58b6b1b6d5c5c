"""The Prometheus metrics of an orchestrator process."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from assay.model.answers.possible_usage import possible_cost, possible_tokens
from assay.telemetry.instruments import SLOW_S, Counter, Gauge, Histogram, team_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.judge.v1 import judge_pb2
    from assay.model.answers.agent_response import AgentError, AgentResponse
    from assay.model.run import RowResult

ROWS = Counter(
    "assay_rows_total", "Rows stored, by outcome: passed, failed, unscored, or agent error", ("team", "outcome")
)
ROW_SECONDS = Histogram(
    "assay_row_duration_seconds", "Time from a row's question to its result", ("team",), buckets=SLOW_S
)
QUESTIONS = Counter(
    "assay_agent_questions_total",
    "Questions to agents, retries not counted, by outcome: success, out_of_scope, interrupted, or kind of error",
    ("adapter", "team", "outcome"),
)
ANSWER_SECONDS = Histogram(
    "assay_agent_duration_seconds", "Latency of agent answers", ("adapter", "team"), buckets=SLOW_S
)
RETRIES = Counter(
    "assay_agent_retries_total", "Failed attempts at a question that were retried, by kind of error",
    ("adapter", "team", "kind"),
)  # fmt: skip
AGENT_TOKENS = Counter(
    "assay_agent_tokens_total", "Tokens that agents report, input and output", ("adapter", "team", "direction")
)
AGENT_COST = Counter("assay_agent_cost_dollars_total", "Costs that agents report, in US dollars", ("adapter", "team"))
VERDICT_TOKENS = Counter(
    "assay_verdict_tokens_total",
    "Tokens of judge calls for verdicts, input and output",
    ("team", "direction"),
)
VERDICT_COST = Counter("assay_verdict_cost_dollars_total", "Cost of judge calls for verdicts, in US dollars", ("team",))
SHARDS_IN_WORK = Gauge("assay_shards_in_work", "Shards that this process works on")
STORAGE_PAUSES = Counter("assay_storage_pauses_total", "Runs paused because their rows could not be stored")
STORAGE_PAUSED = Gauge("assay_storage_paused_runs", "Runs of this process that are waiting for storage")
HEARTBEAT = Gauge(
    "assay_worker_heartbeat_timestamp_seconds",
    "When this process last wrote its heartbeat to PostgreSQL, in seconds since 1970",
)

RUNS = Gauge("assay_runs", "Unfinished runs, by state and cause of a pause", ("team", "state", "cause"))
UNFINISHED_ROWS = Gauge("assay_unfinished_rows", "Rows without a result in unfinished runs", ("team", "state"))
QUEUED_SHARDS = Gauge(
    "assay_queue_shards", "Unfinished shards of active runs, by state: waiting, queued, taken", ("state",)
)
OLDEST_PENDING = Gauge(
    "assay_queue_oldest_pending_seconds", "Age of the oldest run that no worker has started; 0 if there is none"
)
PROCESSES = Gauge("assay_processes", "Live orchestrator processes, by their locks in PostgreSQL")
READ_AT = Gauge("assay_queue_read_timestamp_seconds", "When the queue's figures were read, in seconds since 1970")


class ObservedRun:
    """The instruments of one run in this process.

    Args:
        team: The run's team.
        adapter: The adapter of its agent.
    """

    def __init__(self, team: str = "", adapter: str = "") -> None:
        self._team, self._adapter = team_label(team), adapter
        labels = (adapter, self._team)
        self._answer_seconds = ANSWER_SECONDS.series(*labels)
        self._input, self._output = (AGENT_TOKENS.series(*labels, direction) for direction in ("input", "output"))
        self._cost = AGENT_COST.series(*labels)
        self._row_seconds = ROW_SECONDS.series(self._team)

    def answered(self, response: AgentResponse) -> None:
        """Count an answered question and its failed attempts."""
        outcome = response.status.value if response.error is None else response.error.kind.value
        QUESTIONS.series(self._adapter, self._team, outcome).inc()
        for attempt in response.attempts:
            self._retried(attempt.error)
        if response.latency_ms is not None and response.latency_ms >= 0:
            self._answer_seconds.observe(response.latency_ms / 1000)
        if (usage := response.usage) is not None:
            self._input.inc(possible_tokens(usage.input_tokens) or 0)
            self._output.inc(possible_tokens(usage.output_tokens) or 0)
            self._cost.inc(possible_cost(usage.cost_usd) or 0.0)

    def stored(self, rows: Iterable[RowResult]) -> None:
        """Count rows that are now durable."""
        outcomes = collections.Counter[str]()
        for row in rows:
            outcomes[_outcome(row)] += 1
            if row.duration_ms is not None:
                self._row_seconds.observe(row.duration_ms / 1000)
        for outcome, count in outcomes.items():
            ROWS.series(self._team, outcome).inc(count)

    def _retried(self, error: AgentError) -> None:
        RETRIES.series(self._adapter, self._team, error.kind.value).inc()


def count_verdict(team: str, attempts: Sequence[judge_pb2.JudgeCall]) -> None:
    """Count the usage of a verdict's calls by team; the judge service does not know the teams."""
    label = team_label(team)
    for attempt in attempts:
        VERDICT_TOKENS.series(label, "input").inc(attempt.input_tokens)
        VERDICT_TOKENS.series(label, "output").inc(attempt.output_tokens)
        VERDICT_COST.series(label).inc(attempt.cost_usd)


def _outcome(row: RowResult) -> str:
    if row.status.is_failed:
        return "error"
    return "unscored" if row.passed is None else "passed" if row.passed else "failed"
