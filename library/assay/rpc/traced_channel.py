"""A channel whose calls carry the current span, so that their servers join its trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.rpc.wrapped_channel import WrappedChannel
from assay.telemetry.tracing import TRACEPARENT, traceparent


class TracedChannel(WrappedChannel):
    """Sends a traceparent with every call that is made within a span."""

    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def with_parent(*arguments: Any, metadata: Any = None, **options: Any) -> Any:
            if parent := traceparent():
                metadata = (*(metadata or ()), (TRACEPARENT, parent))
            return call(*arguments, metadata=metadata, **options)

        return with_parent
