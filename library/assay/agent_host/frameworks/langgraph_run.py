"""A LangGraph run for a turn, which resumes while its stops have known decisions."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.types import Command

from assay.agent_host.frameworks.langgraph_stops import resumed_with, stops_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.agent_host.frameworks.langchain_trace import TraceCallbacks
    from assay.agent_host.frameworks.langgraph_graphs import Graphs
    from assay.agent_host.frameworks.langgraph_stops import Stop
    from assay.model.answers.approvals import Decision
    from assay.model.answers.interrupts import Interrupt


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a graph between runs.

    Args:
        result: The graph's result.
        state: The result completed by other fields of the graph's state; the result itself if it is not a mapping.
        stops: The graph's stops; empty if it ended.
    """

    result: Any
    state: Any
    stops: tuple[Stop, ...] = ()

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The questions for a person."""
        return tuple(interrupt for stop in self.stops for interrupt in stop.interrupts)


class GraphRun:
    """Runs the graph of a runnable.

    Args:
        graphs: The runnable.
        store: The turn's store.
        config: The LangChain config: callbacks, ids, limits.
        arguments: Further arguments of the graph.
        callbacks: The callbacks that trace the run.
    """

    def __init__(
        self, graphs: Graphs, store: Any, config: dict[str, Any], arguments: dict[str, Any], callbacks: TraceCallbacks
    ) -> None:
        self._graphs = graphs
        self._step, self._graph = graphs.for_turn(store)
        self._config = config
        # The state of a graph without a checkpointer of its own is only needed at a stop.
        self._arguments = arguments if graphs.has_saver else {**arguments, "durability": "exit"}
        self._callbacks = callbacks
        self._thread = {"thread_id": config["configurable"]["thread_id"]}

    async def start(self, input_value: Any) -> Outcome:
        """Run the graph until it ends or stops."""
        await self._graphs.check_sync(self._graph, {"configurable": self._thread})
        for step in self._graphs.before:
            input_value = await step.ainvoke(input_value, self._config)
        return await self._run(input_value, self._config)

    async def resume(self, outcome: Outcome, decided: Sequence[tuple[Interrupt, Decision]]) -> Outcome:
        """Resume the graph until it ends or stops again."""
        values, updates, continues = resumed_with(outcome.stops, [decision for _, decision in decided])
        if not continues:
            return Outcome(outcome.result, outcome.state)
        for update in updates:
            await self._call("update_state", update.config, update.values, update.node)
        self._callbacks.stage += 1
        # From the newest checkpoint; the first config has the one at the turn's start.
        ids = {name: value for name, value in self._config["configurable"].items() if not name.startswith("checkpoint")}
        command = Command(resume=values) if values else None
        return await self._run(command, {**self._config, "configurable": ids | self._thread})

    async def end(self, outcome: Outcome) -> Any:
        """Return the runnable's output for the graph's result."""
        result = outcome.result
        for step in self._graphs.after:
            result = await step.ainvoke(result, self._config)
        return result

    async def checkpoint(self) -> dict[str, Any]:
        """Return the ids of the newest checkpoint of the user's checkpointer."""
        state = await self._call("get_state", {"configurable": self._thread})
        return dict(state.config["configurable"])

    async def _run(self, input_value: Any, config: dict[str, Any]) -> Outcome:
        if self._graphs.is_sync:
            result = await asyncio.to_thread(self._step.invoke, input_value, config, **self._arguments)
        else:
            result = await self._step.ainvoke(input_value, config, **self._arguments)
        snapshot, state = None, result
        if self._graph.checkpointer is not False:
            snapshot = await self._call("get_state", {"configurable": self._thread}, subgraphs=True)
            if isinstance(result, dict) and isinstance(snapshot.values, dict):
                state = snapshot.values | result
        return Outcome(result, state, stops_of(result, snapshot, self._callbacks.stopped))

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self._graphs.is_sync:
            return await asyncio.to_thread(getattr(self._graph, method), *arguments, **options)
        return await getattr(self._graph, f"a{method}")(*arguments, **options)


def new_thread() -> dict[str, Any]:
    """Return the id of a new conversation."""
    return {"thread_id": f"assay-{uuid.uuid4().hex}"}
