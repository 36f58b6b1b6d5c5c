"""Arguments of `assay.evaluate`, validated together before anything is read or started."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.entry_point import callable_problem
from assay.agent_host.metric_arguments import bind
from assay.datasets.readers.python_values import is_table
from assay.errors import InvalidInputError, Problem
from assay.http.addresses import service_address_problem
from assay.model.run import CaseSelection
from assay.parsing.names import metric_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from assay.model.run import RowResult, Run, StateChanged


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of `evaluate` and `rescore`, as the caller passed them; `evaluate` documents them."""

    spec: str | Path | Mapping[str, Any]
    agent: Callable[..., Any] | None = None
    metrics: Mapping[str, Callable[..., Any] | Mapping[str, Any]] | None = None
    dataset: str | Path | Iterable[Any] | None = None
    select: CaseSelection | None = None
    server: str | None = None
    on_event: Callable[[Run | StateChanged | RowResult], None] | None = None
    progress: bool | None = None
    output_dir: str | Path | None = None
    reports: Sequence[str] | None = None

    @property
    def shows_progress(self) -> bool:
        """Whether to show progress on stderr: by default only if the caller takes no events."""
        return self.on_event is None if self.progress is None else self.progress

    def check(self) -> None:
        """Check the types and forms of all arguments.

        Raises:
            InvalidInputError: An argument is wrong; lists every problem.
        """
        folder, on_event, progress = self.output_dir, self.on_event, self.progress
        problems = [
            *_of_spec(self.spec),
            *_of_agent(self.agent),
            *_of_metrics(self.metrics),
            *_of_dataset(self.dataset),
            *_of_selection(self.select),
            *_of_server(self.server),
            *_unless(on_event is None or callable(on_event), "on_event", "a function of one event", on_event),
            *_unless(progress is None or isinstance(progress, bool), "progress", "True or False", progress),
            *_unless(folder is None or _is_path(folder), "output_dir", "a folder's name", folder),
            *_of_reports(self.reports, folder),
        ]
        if problems:
            raise InvalidInputError(problems, reason="INVALID_ARGUMENT")


def _of_server(server: object) -> Iterator[Problem]:
    yield from _unless(server is None or isinstance(server, str), "server", "an orchestrator's address, a text", server)
    if isinstance(server, str) and server and (problem := service_address_problem(server)):
        yield Problem(problem, "server")


def _of_spec(spec: object) -> Iterator[Problem]:
    due = "a file's name, or a mapping such as {'metrics': ['exact_match']}"
    yield from _unless(_is_path(spec) or isinstance(spec, Mapping), "spec", due, spec)


def _of_agent(agent: object) -> Iterator[Problem]:
    if agent is None:
        return
    if isinstance(agent, str):
        example = "{'agent': {'adapter': 'python', 'target': 'agent:answer'}}"
        yield Problem(f"must be a function of one question, not a text: the spec names code, as {example}", "agent")
    elif problem := callable_problem(agent):
        yield Problem(problem, "agent")


def _of_metrics(metrics: object) -> Iterator[Problem]:
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        due = "a mapping of names to functions, such as {'off_by': {'function': off_by, 'higher_is_better': False}}"
        yield from _unless(False, "metrics", due, metrics)
        return
    for name, function in metrics.items():
        if problem := metric_name_problem(name if isinstance(name, str) else ""):
            yield Problem(f"{problem}, not {name!r}", "metrics")
        elif isinstance(function, Mapping) and "function" not in function:
            yield Problem("has no function: write it as {'function': function, ...}", f"metrics.{name}")
        elif isinstance(binding := bind(function["function"] if isinstance(function, Mapping) else function), str):
            yield Problem(binding, f"metrics.{name}")


def _of_dataset(dataset: object) -> Iterator[Problem]:
    due = "a file's name, a data frame, or a list of cases such as [{'question': '2 + 2?', 'answer': '4'}]"
    if is_table(dataset):
        return
    cases = isinstance(dataset, Iterable) and not isinstance(dataset, Mapping | bytes | bytearray)
    yield from _unless(dataset is None or _is_path(dataset) or cases, "dataset", due, dataset)


def _of_selection(select: object) -> Iterator[Problem]:
    if select is None:
        return
    if not isinstance(select, CaseSelection):
        yield from _unless(False, "select", "such as assay.CaseSelection(tags=['hard'])", select)
        return
    for name in ("cases", "tags", "categories"):
        yield from _unless(_is_list(getattr(select, name)), f"select.{name}", "a list of texts", getattr(select, name))
    yield from _unless(isinstance(select.failed_of, str), "select.failed_of", "a run, a text", select.failed_of)
    is_number = isinstance(select.limit, int) and not isinstance(select.limit, bool)
    yield from _unless(select.limit is None or is_number, "select.limit", "a whole number", select.limit)


def _of_reports(reports: object, output_dir: object) -> Iterator[Problem]:
    yield from _unless(reports is None or _is_list(reports), "reports", "a list such as ['json', 'html']", reports)
    if reports is not None and output_dir is None:
        yield Problem("are written to output_dir: name a folder there, or leave them out", "reports")


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | Mapping)


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _unless(is_right: bool, name: str, due: str, value: Any) -> Iterator[Problem]:
    if not is_right:
        yield Problem(f"must be {due}, not {type(value).__name__}", name)
