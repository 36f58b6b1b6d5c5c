"""The graph of a runnable, and what each conversation with it has of its own: saver, store and cache."""

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
        runnable: A graph, one that is bound to arguments, or a chain with one as a step. Any other runnable has none.
        store: What the spec names as the graph's store: the one that all conversations share, or a function or class
            that makes one for each; None where it names none.

    Raises:
        InvalidInputError: The graph has a store that cannot be copied, and the spec does not name it.
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
        """The graph as the user compiled it; None where there is none."""
        return graph_of(self._step)

    @property
    def has_saver(self) -> bool:
        """Whether the graph keeps its state between turns in a checkpointer of the user's."""
        # True is the checkpointer of a graph around this one.
        return self.graph is not None and self.graph.checkpointer not in (None, True, False)

    async def check_sync(self, graph: Any, thread: dict[str, Any]) -> None:
        """Find out whether the graph runs in a thread: SqliteSaver and the like have no asynchronous methods.

        Args:
            graph: That of a turn.
            thread: The config of its thread.
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
        """Return the store of a turn: what is written to it is not seen by a repeated attempt at the turn.

        Args:
            kept: The store after the turn before; None at the beginning of a conversation.
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
        """Return the graph of one turn: as a step of its own, and the graph to ask for its state.

        Args:
            store: Its store, or None.
        """
        changes: dict[str, Any] = {"store": store}
        if self.graph.cache is not None:
            changes["cache"] = InMemoryCache()
        if self.graph.checkpointer in (None, True):
            changes["checkpointer"] = _own_saver()
        made: list[Any] = []

        def changed(graph: Any) -> Any:
            own = copy.copy(graph)
            for name, value in changes.items():
                setattr(own, name, value)
            made.append(own)
            return own

        step = _with_graph(self._step, changed)
        return step, made[0]


def graph_of(runnable: Any) -> Any:
    """Return the graph that a runnable is, with arguments bound to it or without; None where it is none."""
    while type(runnable) is RunnableBinding:
        runnable = runnable.bound
    return runnable if isinstance(runnable, Pregel) else None


def is_remote(runnable: object) -> bool:
    """Return whether a runnable is a graph on a server, which knows only threads of its own."""
    return isinstance(runnable, PregelProtocol) and not isinstance(runnable, Pregel)


def _with_graph(runnable: Any, change: Callable[[Any], Any]) -> Any:
    if type(runnable) is RunnableBinding:
        return runnable.model_copy(update={"bound": _with_graph(runnable.bound, change)})
    return change(runnable)


def _can_be_copied(store: object) -> bool:
    return store is None or isinstance(store, InMemoryStore)


def _copied(store: Any) -> Any:
    """Return a store in memory with the items of another; its embedding model is the same."""
    if store is None:
        return None
    own = copy.copy(store)
    own._data, own._vectors = copy.deepcopy((store._data, store._vectors))  # noqa: SLF001 - it has no method for that
    return own


def _own_saver() -> Any:
    """Return a checkpointer for one turn of a graph that has none, without which it could not be resumed.

    It keeps the values of the state themselves: what cannot be written down must not fail a graph that would have run.
    """
    return InMemorySaver(serde=_Values())


class _Values:
    """Hands values through, but for the lists and mappings that LangGraph changes in place."""

    def dumps_typed(self, value: Any) -> tuple[str, Any]:
        return "value", _unshared(value, {})

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return _unshared(data[1], {})


def _unshared(value: Any, made: dict[int, Any]) -> Any:
    """Return a value whose lists and mappings are its own.

    Args:
        value: Any value of a state.
        made: The copies until now, by the ids of what they are of: a state may hold itself.
    """
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, dict):
        own = made[id(value)] = copy.copy(value)
        own.update({key: _unshared(item, made) for key, item in value.items()})
        return own
    if type(value) is list:
        items = made[id(value)] = []
        items += [_unshared(item, made) for item in value]
        return items
    if type(value) is tuple:
        return tuple(_unshared(item, made) for item in value)
    return set(value) if type(value) is set else value
