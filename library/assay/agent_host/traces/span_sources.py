"""Sources of an agent's spans by its settings; opened before the agent's code is imported."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.agent_host.traces.protobuf_spans import is_installed
from assay.agent_host.traces.receiver import shared_receiver
from assay.agent_host.traces.span_file import SpanFile
from assay.agent_host.traces.traced_caller import TracedCaller
from assay.errors import InvalidInputError, Problem
from assay.local_stack.install_hint import install_hint
from assay.model.trace_settings import TraceSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.agent_host.protocol import Caller
    from assay.agent_host.traces.trace import TraceBook


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A source of spans.

    Args:
        spans: A file, or the traces of this process's receiver.
        wait_s: How long an answer waits for its spans, in seconds.
        environment: Variables that make the agent's exporter send spans to the source.
    """

    spans: SpanFile | TraceBook
    wait_s: float
    environment: Mapping[str, str] = field(default_factory=dict)

    def set_environment(self) -> None:
        """Set the variables in this process, for an agent imported afterwards."""
        os.environ.update(self.environment)

    def traced(self, caller: Caller, *, in_process: bool) -> Caller:
        """Return a caller that completes another caller's answers by their spans."""
        return TracedCaller(caller, self.spans, wait_s=self.wait_s, in_process=in_process)


def open_trace_source(option: object, folder: Path) -> TraceSource:
    """Return the source of spans; a receiver listens from now on.

    Args:
        option: The spec's checked option.
        folder: The spec's folder.

    Raises:
        InvalidInputError: The extra `otel`, which the receiver needs, is not installed.
    """
    settings = TraceSettings.from_option(option, [])
    if settings.file:
        return TraceSource(SpanFile(folder / settings.file), settings.wait_s)
    if not is_installed():
        message = f"opentelemetry-proto is not installed here, which receiving traces needs: {install_hint('otel')}"
        raise InvalidInputError([Problem(message, "agent.traces")], reason="FRAMEWORK_MISSING")
    receiver = shared_receiver()
    # A user's setting for all signals is kept: metrics and logs go where they went before.
    shared = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_BSP_SCHEDULE_DELAY"} & set(os.environ)
    variables = {name: value for name, value in receiver.environment().items() if name not in shared}
    return TraceSource(receiver.traces, settings.wait_s, variables)
