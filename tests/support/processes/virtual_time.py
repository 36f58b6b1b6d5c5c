"""Runs tests on an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec

from assay.testing.virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Parameters = ParamSpec("_Parameters")


def in_virtual_time(test: Callable[_Parameters, Coroutine[None, None, None]]) -> Callable[_Parameters, None]:
    """Run an asynchronous test in virtual time."""

    @functools.wraps(test)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
        run_in_virtual_time(functools.partial(test, *args, **kwargs))

    return run
