"""The interfaces between a host, its agent and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.metric_call import MetricOutcome
    from assay.v1 import host_pb2


@runtime_checkable
class Caller(Protocol):
    """Asks an agent on the user's side."""

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the agent's answer with its duration; raises only when cancelled."""

    async def aclose(self) -> None:
        """Release threads and processes; a later call starts new ones."""


class MetricCaller(Protocol):
    """Computes a run's Python metrics on the user's side."""

    async def compute(self, message: host_pb2.MetricRequest) -> dict[str, MetricOutcome]:
        """Return the outcome of each metric in a request; raises only when cancelled."""

    async def aclose(self) -> None:
        """Release threads; a later call starts new ones."""
