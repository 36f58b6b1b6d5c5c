"""Trace exports, which hold actions of agents and no cases: recognised so that the error can say what to do."""

from __future__ import annotations

from collections.abc import Mapping

from assay.datasets.fields.aliases import names_of
from assay.datasets.fields.field_names import folded

_OTLP = frozenset({"resource_spans", "scope_spans", "resource_logs", "resource_metrics"})
_SPAN_IDS = frozenset({"context.span_id", "context.trace_id"})
_BESIDE_TRACE_ID = frozenset({
    "span_id", "spans", "parent_span_id", "span_kind", "dotted_order", "run_type", "parent_run_id", "child_run_ids",
    "parent_observation_id", "local_endpoint", "observations",
})  # fmt: skip
_BESIDE_RUN_TYPE = frozenset({"dotted_order", "parent_run_id", "child_run_ids", "execution_order"})
_BESIDE_OBSERVATIONS = frozenset({"project_id", "html_path", "total_cost", "user_id", "session_id"})

SENTENCE = (
    "holds an export of traces ({what}), which say what an agent did, not cases: write one record for each question "
    "with the fields `question`, `reference` and, for an answer that was given, `recorded`; tool calls and tokens of "
    "new answers are read from traces with `agent.traces`; if the records are cases all the same, set `format: plain`"
)
"""The error message; `what` is the kind of export."""


def trace_export(record: object) -> str:
    """Return the error message for a record of a trace export, or the empty text."""
    names = frozenset(folded(str(name)) for name in record) if isinstance(record, Mapping) else frozenset()
    # Cases may keep their original trace; `input` alone also occurs in a span.
    is_case = not names.isdisjoint(name for name in (*names_of("input"), "turns") if name != "input")
    kind = "" if is_case else _kind(names)
    return SENTENCE.format(what=kind) if kind else ""


def _kind(names: frozenset[str]) -> str:
    if names & _OTLP:
        return "OTLP"
    if names & _SPAN_IDS:
        return "spans of Phoenix"
    if "run_type" in names and names & _BESIDE_RUN_TYPE:
        return "runs of LangSmith"
    if "observations" in names and names & _BESIDE_OBSERVATIONS:
        return "traces of Langfuse"
    return "spans" if "trace_id" in names and names & _BESIDE_TRACE_ID else ""
