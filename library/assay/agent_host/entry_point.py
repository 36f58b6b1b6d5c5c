"""The entry point for a question: a function, or a method of an object created for each conversation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.argument import receives_text

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY_METHODS = ("__call__", "answer", "run")
"""The methods that answer questions for objects of a class; the first that the class has is used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The callable that answers a question.

    Args:
        function: The function or bound method.
        receives_text: Whether it is called with the request's text instead of the request.
        is_async: Whether it runs on the event loop. If inspection does not show it, as for a partial or lambda,
            the callable runs in a thread, and an awaitable result is awaited.
    """

    function: Callable[..., Any]
    receives_text: bool
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Entry:
        """Return the entry for a function or callable object."""
        return cls(function, receives_text(function), is_asynchronous(function))


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether a function, or a callable object's method, is a coroutine function or an async generator."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def entry_method(agent: object) -> str:
    """Return the method that answers for objects of a class; empty for a class without one, and for other objects."""
    if not inspect.isclass(agent):
        return ""
    return next((name for name in ENTRY_METHODS if any(name in vars(base) for base in agent.__mro__)), "")


def callable_problem(agent: object, *, with_opened: bool = False) -> str:
    """Return why an object cannot be called as an agent with a question; empty if it can.

    Args:
        agent: A function or a class.
        with_opened: Whether it also receives the resource that its lifespan opened.
    """
    question = (object(),) * (1 + with_opened)
    if inspect.isclass(agent):
        return _class_problem(agent, question)
    if not callable(agent):
        return (
            f"is a value of type {type(agent).__name__}, which cannot be called: name a function of one argument, "
            "the question"
        )
    return _unfit(agent, *question, rule="is called with one argument, the question")


def _class_problem(kind: type, question: tuple[object, ...]) -> str:
    method = entry_method(kind)
    if not method:
        return (
            "is a class without a method __call__, answer or run: add one that takes the question, or name a function"
        )
    if inspect.isabstract(kind):
        return "is an abstract class: name one whose objects can be made, or a function"
    rule = "is a class whose objects are made without arguments, one for each conversation"
    if problem := _unfit(kind, rule=rule):
        return f"{problem}: give its parameters defaults, or name a function"
    # A plain function of a class takes the object first; static and class methods are already bound.
    owner = [object()] * inspect.isfunction(inspect.getattr_static(kind, method))
    return _unfit(
        getattr(kind, method), *owner, *question, rule=f"has a method {method}, called with one argument, the question"
    )


def _unfit(function: Callable[..., Any], *arguments: object, rule: str) -> str:
    """Return how a signature does not fit the arguments; empty if it does, or if there is none to inspect."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""  # a builtin without a signature: calling it will tell
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"{rule}, but it takes {signature}"
    return ""
