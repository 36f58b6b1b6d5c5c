"""One run of a graph of LangGraph for one turn, which is resumed as long as it stops where a decision is known."""

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
    """Where a graph is.

    Args:
        result: What it returned.
        state: Its result with the fields of its state that are not part of that; the result, where it is no mapping.
        stops: What it waits for; none where it ended.
    """

    result: Any
    state: Any
    stops: tuple[Stop, ...] = ()

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What a person is asked."""
        return tuple(interrupt for stop in self.stops for interrupt in stop.interrupts)


class GraphRun:
    """Runs the graph of a runnable.

    Args:
        graphs: The runnable.
        store: The store of the turn.
        config: What LangChain calls a config: callbacks, ids, limits.
        arguments: Further arguments of the graph.
        callbacks: What sees the run.
    """

    def __init__(
        self, graphs: Graphs, store: Any, config: dict[str, Any], arguments: dict[str, Any], callbacks: TraceCallbacks
    ) -> None:
        self._graphs = graphs
        self._step, self._graph = graphs.for_turn(store)
        self._config = config
        # Only where it stops is the state of a graph needed that has no checkpointer of its own.
        self._arguments = arguments if graphs.has_saver else {**arguments, "durability": "exit"}
        self._callbacks = callbacks
        self._thread = {"thread_id": config["configurable"]["thread_id"]}

    async def start(self, given: Any) -> Outcome:
        """Run it until it ends or stops."""
        await self._graphs.check_sync(self._graph, {"configurable": self._thread})
        for step in self._graphs.before:
            given = await step.ainvoke(given, self._config)
        return await self._run(given, self._config)

    async def resume(self, outcome: Outcome, decided: Sequence[tuple[Interrupt, Decision]]) -> Outcome:
        """Resume it until it ends or stops again."""
        values, updates, continues = resumed_with(outcome.stops, [decision for _, decision in decided])
        if not continues:
            return Outcome(outcome.result, outcome.state)
        for update in updates:
            await self._call("update_state", update.config, update.values, update.node)
        self._callbacks.stage += 1
        # From the newest checkpoint: the one that the turn began with is in the first config.
        ids = {name: value for name, value in self._config["configurable"].items() if not name.startswith("checkpoint")}
        given = Command(resume=values) if values else None
        return await self._run(given, {**self._config, "configurable": ids | self._thread})

    async def end(self, outcome: Outcome) -> Any:
        """Return what the runnable makes of the graph's result."""
        result = outcome.result
        for step in self._graphs.after:
            result = await step.ainvoke(result, self._config)
        return result

    async def checkpoint(self) -> dict[str, Any]:
        """Return the ids of the newest checkpoint of the user's checkpointer."""
        state = await self._call("get_state", {"configurable": self._thread})
        return dict(state.config["configurable"])

    async def _run(self, given: Any, config: dict[str, Any]) -> Outcome:
        if self._graphs.is_sync:
            result = await asyncio.to_thread(self._step.invoke, given, config, **self._arguments)
        else:
            result = await self._step.ainvoke(given, config, **self._arguments)
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
