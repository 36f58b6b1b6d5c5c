"""Agents and metrics of a spec on the wire.

A spec says what a client runs: `adapter: python`, `kind: python`. On the wire all of these are "hosted", because the
orchestrator asks a client for their results and need not know how it gets them.
"""

from __future__ import annotations

from typing import Any

from assay.errors import Problem
from assay.model.run_spec import FUNCTION_METRIC, HOSTED, ORCHESTRATOR_ADAPTERS, AgentSpec, MetricSpec
from assay.parsing.names import name_problem, unknown_name
from assay.v1 import spec_pb2
from assay.wire.converter import Converter, Functions, Spread

MAX_HOSTED_BY_CHARS = 64


class _AgentConverter(Converter[AgentSpec, spec_pb2.AgentSpec]):
    """Converts agents; those that a client runs are hosted, and the client's word for them is for people."""

    def __init__(self) -> None:
        adapter = Spread(("adapter", "hosted_by"), _adapter_to_wire, _adapter_from_wire)
        super().__init__(AgentSpec, spec_pb2.AgentSpec, spread={"adapter": adapter})

    def to_wire(self, value: AgentSpec) -> spec_pb2.AgentSpec:
        message = super().to_wire(value)
        if value.is_hosted:
            message.hosted_by = "" if value.adapter == HOSTED else value.adapter
            message.adapter = HOSTED
        return message


def _adapter_to_wire(adapter: str) -> dict[str, Any]:
    return {"adapter": adapter}


def _adapter_from_wire(agent: spec_pb2.AgentSpec) -> str:
    return (agent.hosted_by or HOSTED) if agent.adapter == HOSTED else agent.adapter


def kind_to_wire(kind: str) -> str:
    """Return the kind of a metric on the wire."""
    return HOSTED if kind == FUNCTION_METRIC else kind


def _kind_from_wire(kind: str) -> str:
    return FUNCTION_METRIC if kind == HOSTED else kind


AGENT = _AgentConverter()
METRIC = Converter(MetricSpec, spec_pb2.MetricSpec, parts={"kind": Functions(kind_to_wire, _kind_from_wire)})


def agent_problems(agent: spec_pb2.AgentSpec) -> list[Problem]:
    """Return the problems of a requested agent's adapter and of what hosts it."""
    known = (HOSTED, *ORCHESTRATOR_ADAPTERS)
    if agent.adapter not in known:
        return [Problem(unknown_name("adapter", agent.adapter, known), "agent.adapter")]
    settings = AGENT.from_wire(
        spec_pb2.AgentSpec(adapter=agent.adapter, target=agent.target, hosted_by=agent.hosted_by)
    )
    if agent.adapter == HOSTED:
        problem = name_problem(agent.hosted_by, MAX_HOSTED_BY_CHARS, required=False)
        if not problem and not settings.is_hosted:
            problem = f"must not be the adapter {agent.hosted_by!r}, which the orchestrator calls"
        return [Problem(problem, "agent.hosted_by")] if problem else []
    if agent.hosted_by:
        return [Problem(f"must be empty: the adapter is {agent.adapter!r}, not {HOSTED!r}", "agent.hosted_by")]
    if settings.is_hosted:
        return [Problem(f"must be a URL; an agent on the client's side has the adapter {HOSTED!r}", "agent.target")]
    return []


def metric_problem(kind: str) -> str:
    """Return the problem of a requested kind of metric that only a spec file has; empty for every other kind."""
    return f"must be {HOSTED!r} for a metric that the client computes" if kind == FUNCTION_METRIC else ""
