"""A run's metrics that are functions on the user's side: every outcome, even a failure, is recorded."""

from __future__ import annotations

import asyncio
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.concurrency.tasks import TaskExitError, guarded_tasks, is_cancelled_from_outside
from assay.agent_host.concurrency.threads import CallThreads, TooManyHangError
from assay.agent_host.failures import Failures
from assay.agent_host.loader import AgentImportError, load_object
from assay.agent_host.metric_arguments import Binding, MalformedResultError, bind, read_result
from assay.agent_host.tracebacks import user_traceback
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import clean_text
from assay.model.metric_call import MALFORMED, MAX_MESSAGE_CHARS, RAISED, TIMEOUT, MetricOutcome
from assay.wire.metric_call import metric_request_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.model.metric_call import MetricRequest
    from assay.model.run import MetricSpec
    from assay.v1 import host_pb2 as pb


def load_metric_functions(
    metrics: Sequence[MetricSpec], folder: Path, replacements: Mapping[str, Callable[..., Any]] | None = None
) -> MetricFunctions | None:
    """Return the metrics of a run that are functions on this side; None if it has none.

    Args:
        metrics: All metrics of the run, checked.
        folder: The spec's folder, which the functions are relative to.
        replacements: Functions that replace those of the spec, by metric.

    Raises:
        AgentImportError: A module of the user's raised; holds the other problems too.
        InvalidInputError: Functions do not exist or cannot be called as metrics; holds every problem.
    """
    functions: dict[str, _Function] = {}
    problems: list[Problem] = []
    failed: AgentImportError | None = None
    for index, metric in enumerate(metrics):
        if not metric.is_function:
            continue
        place, target = f"metrics[{index}].{metric.name}", str(metric.parameters["function"])
        try:
            own = (replacements or {}).get(metric.name)
            function = own if own is not None else load_object(target, folder, field=place)
        except AgentImportError as error:
            if failed is None:
                failed = error
            else:
                problems += error.problems
            continue
        except InvalidInputError as error:
            problems += error.problems
            continue
        binding = bind(function)
        if isinstance(binding, str):
            problems.append(Problem(f"{target!r} {binding}", place))
        else:
            functions[metric.name] = _Function(function, binding, float(metric.parameters["timeout_s"]))
    if failed is not None:
        raise AgentImportError(failed.target, failed.user_traceback, failed.field, others=problems)
    if problems:
        raise InvalidInputError(problems, reason="METRIC_NOT_FOUND")
    return MetricFunctions(functions) if functions else None


@dataclass(frozen=True, slots=True)
class _Function:
    function: Callable[..., Any]
    binding: Binding
    timeout_s: float

    @property
    def is_async(self) -> bool:
        function = self.function
        call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        return inspect.iscoroutinefunction(call)


class MetricFunctions:
    """Calls the functions of a run's metrics and turns results and failures into outcomes.

    An ordinary function runs in a daemon thread, an asynchronous one on the loop. Each call gets its own objects, so
    that functions cannot see each other's changes.

    Args:
        functions: The functions, by metric.
    """

    def __init__(self, functions: Mapping[str, _Function]) -> None:
        self._functions = functions
        self._threads = {name: CallThreads() for name in functions}
        self._failures = Failures(hint=lambda problem, text: "")

    async def compute(self, message: pb.MetricRequest) -> dict[str, MetricOutcome]:
        """Return the outcome of each function in a request; raises only when cancelled."""
        names = list(message.metrics)
        outcomes = await asyncio.gather(*(self._outcome(name, message) for name in names))
        return dict(zip(names, outcomes, strict=True))

    async def aclose(self) -> None:
        """Let idle threads end; a later call starts new ones."""
        for threads in self._threads.values():
            threads.close()

    async def _outcome(self, name: str, message: pb.MetricRequest) -> MetricOutcome:
        function = self._functions.get(name)
        if function is None:
            return MetricOutcome(error=MALFORMED, message="the client has no function of this name")
        owner = os.getpid()
        limit: asyncio.Timeout | None = None
        try:
            request = metric_request_from_wire(message)
            async with asyncio.timeout(function.timeout_s) as limit:
                with guarded_tasks():
                    returned = await self._invoke(name, function, request, limit)
            if limit.expired():  # even if the function mistook its cancellation for something else
                raise TimeoutError
            outcome = read_result(returned)
        except GeneratorExit:
            raise
        except BaseException as problem:  # the boundary of a case: functions raise SystemExit and cancel themselves
            if isinstance(problem, asyncio.CancelledError) and is_cancelled_from_outside():
                raise
            outcome = self._failed(problem, function.timeout_s, timed_out=limit is not None and limit.expired())
        if os.getpid() != owner:
            os._exit(0)  # a process forked by the function that returned: its parent answers
        return outcome

    async def _invoke(self, name: str, function: _Function, request: MetricRequest, limit: asyncio.Timeout) -> object:
        if function.is_async:
            return await function.binding.call(function.function, request)
        outcome = await self._threads[name].run(
            lambda argument: function.binding.call(function.function, argument), request, limit
        )
        if outcome.error is not None:
            # Wrapped: a coroutine cannot safely raise StopIteration or SystemExit.
            raise _RaisedError(outcome.error)
        return await outcome.value if inspect.isawaitable(outcome.value) else outcome.value

    def _failed(self, problem: BaseException, timeout_s: float, *, timed_out: bool) -> MetricOutcome:
        """Return the outcome of a function without a value."""
        if isinstance(problem, TaskExitError) and problem.__cause__ is not None:
            problem = problem.__cause__
        if isinstance(problem, _RaisedError):
            problem = problem.cause
        elif timed_out:
            return MetricOutcome(error=TIMEOUT, message=f"the function returned nothing within {timeout_s:g} s")
        if isinstance(problem, TooManyHangError):
            message = "earlier calls of the function still hang past their time limit: it was not called again"
            return MetricOutcome(error=TIMEOUT, message=message)
        if isinstance(problem, MalformedResultError):
            message = clean_text(self._failures.redacted(str(problem)))
            return MetricOutcome(error=MALFORMED, message=message[:MAX_MESSAGE_CHARS])
        if isinstance(problem, asyncio.CancelledError):
            return MetricOutcome(error=RAISED, message="the function cancelled itself")
        return MetricOutcome(
            error=RAISED,
            message=self._failures.described(problem)[:MAX_MESSAGE_CHARS],
            traceback=user_traceback(problem, self._failures.redacted),
        )


class _RaisedError(Exception):
    """A function raised an exception in its thread."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause
