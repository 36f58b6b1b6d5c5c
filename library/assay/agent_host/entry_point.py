"""The code that a question goes to: a function, or a method of an object that is made for each conversation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.argument import receives_text

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY_METHODS = ("__call__", "answer", "run")
"""The methods by which the objects of a class are asked: the first that the class has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is called with one question.

    Args:
        function: The function or bound method.
        receives_text: Whether it is called with the text of the request instead of the request.
        is_async: Whether it belongs on the event loop. What inspection cannot decide, such as a partial or a lambda,
            is called in a thread, and what it returns is awaited.
    """

    function: Callable[..., Any]
    receives_text: bool
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Entry:
        """Return the entry that a function, or an object that can be called, is."""
        return cls(function, receives_text(function), is_asynchronous(function))


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether a function, or what is called of an object, is a coroutine function or an async generator."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def entry_method(agent: object) -> str:
    """Return the method by which the objects of a class are asked; empty for a class without one, and for others."""
    if not inspect.isclass(agent):
        return ""
    return next((name for name in ENTRY_METHODS if any(name in vars(base) for base in agent.__mro__)), "")


def callable_problem(found: object, *, with_opened: bool = False) -> str:
    """Return why something cannot be called as an agent, with one question; empty where it can.

    Args:
        found: A function or a class.
        with_opened: Whether it is called with what its lifespan opened, too.
    """
    question = (object(),) * (1 + with_opened)
    if inspect.isclass(found):
        return _class_problem(found, question)
    if not callable(found):
        return (
            f"is a value of type {type(found).__name__}, which cannot be called: name a function of one argument, "
            "the question"
        )
    return _unfit(found, *question, said="is called with one argument, the question")


def _class_problem(found: type, question: tuple[object, ...]) -> str:
    method = entry_method(found)
    if not method:
        return (
            "is a class without a method __call__, answer or run: add one that takes the question, or name a function"
        )
    if inspect.isabstract(found):
        return "is an abstract class: name one whose objects can be made, or a function"
    made = "is a class whose objects are made without arguments, one for each conversation"
    if problem := _unfit(found, said=made):
        return f"{problem}: give its parameters defaults, or name a function"
    # A plain function of a class takes the object first; static and class methods are bound already.
    owner = [object()] * inspect.isfunction(inspect.getattr_static(found, method))
    return _unfit(
        getattr(found, method), *owner, *question, said=f"has a method {method}, called with one argument, the question"
    )


def _unfit(function: Callable[..., Any], *arguments: object, said: str) -> str:
    """Return how a signature does not fit the arguments; empty where it does, or where there is none to see."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""  # a builtin without a signature: calling it will show
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"{said}, but it takes {signature}"
    return ""
