"""The graph of a runnable, and the saver, store and cache of each conversation with it."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from assay.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable


class Graphs:
    """A runnable, and the graph in it.

    Args:
        runnable: A graph, one with bound arguments, or a chain with a graph as a step; any other runnable has none.
        store: The spec's store for the graph: one shared by all conversations, or a function or class that makes one
            for each; None if the spec names none.

    Raises:
        InvalidInputError: The graph has a store that cannot be copied, and the spec does not name one.
    """

    def __init__(self, runnable: Runnable[Any, Any], store: object = None) -> None:
        steps = list(runnable.steps) if type(runnable) is RunnableSequence else [runnable]
        places = [index for index, step in enumerate(steps) if graph_of(step) is not None]
        index = places[0] if len(places) == 1 else None
        self.runnable = runnable
        self.before: list[Runnable[Any, Any]] = steps[:index] if index is not None else []
        self.after: list[Runnable[Any, Any]] = steps[index + 1 :] if index is not None else []
        self._step = steps[index] if index is not None else None
        self._store = store
        self.is_sync: bool | None = None
        if store is None and self.graph is not None and not _can_be_copied(self.graph.store):
            kind = type(self.graph.store).__qualname__
            message = (
                f"is a graph with a store of the type {kind}, which Assay cannot make anew for each case: name it with "
                "the option `store` if all cases shall share it, or name a function that makes a new one"
            )
            raise InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")
        if not (store is None or callable(store) or isinstance(store, BaseStore)):
            named = f"names a {type(store).__module__}.{type(store).__qualname__}, not a store of LangGraph"
            raise InvalidInputError([Problem(named, "agent.store")], reason="AGENT_NOT_FOUND")

    @property
    def graph(self) -> Any:
        """The graph as the user compiled it; None if there is none."""
        return graph_of(self._step)

    @property
    def has_saver(self) -> bool:
        """Whether a checkpointer of the user's keeps the graph's state between turns."""
        # True means the checkpointer of an outer graph.
        return self.graph is not None and self.graph.checkpointer not in (None, True, False)

    async def check_sync(self, graph: Any, thread: dict[str, Any]) -> None:
        """Determine whether the graph runs in a thread: SqliteSaver and similar have no asynchronous methods.

        Args:
            graph: The turn's graph.
            thread: The config of the turn's thread.
        """
        if self.is_sync is not None or not self.has_saver:
            return
        try:
            await graph.aget_state(thread)
        except NotImplementedError:
            self.is_sync = True
        else:
            self.is_sync = False

    def new_store(self, kept: object) -> Any:
        """Return the store of a turn; a repeated attempt at the turn does not see its writes.

        Args:
            kept: The store after the previous turn; None at the beginning of a conversation.
        """
        if self._store is not None:
            is_shared = not inspect.isclass(self._store) and not inspect.isroutine(self._store)
            if is_shared:
                return self._store
            if kept is None:
                return self._store()  # type: ignore[operator]  # it is a function
            return _copied(kept) if _can_be_copied(kept) else kept
        return _copied(kept or self.graph.store)

    def for_turn(self, store: Any) -> tuple[Any, Any]:
        """Return a turn's graph twice: as a step, and as the graph whose state is read.

        Args:
            store: The turn's store, or None.
        """
        changes: dict[str, Any] = {"store": store}
        if self.graph.cache is not None:
            changes["cache"] = InMemoryCache()
        if self.graph.checkpointer in (None, True):
            changes["checkpointer"] = _own_saver()
        graphs: list[Any] = []

        def changed(graph: Any) -> Any:
            own = copy.copy(graph)
            for name, value in changes.items():
                setattr(own, name, value)
            graphs.append(own)
            return own

        step = _with_graph(self._step, changed)
        return step, graphs[0]


def graph_of(runnable: Any) -> Any:
    """Return the graph of a runnable, with or without bound arguments; None if it is not one."""
    while type(runnable) is RunnableBinding:
        runnable = runnable.bound
    return runnable if isinstance(runnable, Pregel) else None


def is_remote(runnable: object) -> bool:
    """Return whether a runnable is a graph on a server, which knows only its own threads."""
    return isinstance(runnable, PregelProtocol) and not isinstance(runnable, Pregel)


def _with_graph(runnable: Any, change: Callable[[Any], Any]) -> Any:
    if type(runnable) is RunnableBinding:
        return runnable.model_copy(update={"bound": _with_graph(runnable.bound, change)})
    return change(runnable)


def _can_be_copied(store: object) -> bool:
    return store is None or isinstance(store, InMemoryStore)


def _copied(store: Any) -> Any:
    """Return an in-memory store with the items of another, and with the same embedding model."""
    if store is None:
        return None
    own = copy.copy(store)
    own._data, own._vectors = copy.deepcopy((store._data, store._vectors))  # noqa: SLF001 - it has no method for that
    return own


def _own_saver() -> Any:
    """Return a checkpointer for a turn of a graph without one, which could not be resumed otherwise.

    It keeps the state's values as objects: values that cannot be serialised must not fail a graph that would have run.
    """
    return InMemorySaver(serde=_Values())


class _Values:
    """Passes values through, but copies the lists and mappings that LangGraph changes in place."""

    def dumps_typed(self, value: Any) -> tuple[str, Any]:
        return "value", _unshared(value, {})

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return _unshared(data[1], {})


def _unshared(value: Any, copies: dict[int, Any]) -> Any:
    """Return a value with its own copies of all lists and mappings.

    Args:
        value: Any value of a state.
        copies: The copies so far, by the ids of their originals: a state may contain itself.
    """
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, dict):
        own = copies[id(value)] = copy.copy(value)
        own.update({key: _unshared(item, copies) for key, item in value.items()})
        return own
    if type(value) is list:
        items = copies[id(value)] = []
        items += [_unshared(item, copies) for item in value]
        return items
    if type(value) is tuple:
        return tuple(_unshared(item, copies) for item in value)
    return set(value) if type(value) is set else value
