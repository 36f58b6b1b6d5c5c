"""`assay runs show --where`, `--failed` and `--case`: show rows of a run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem
from assay.filters.matching import metric_value
from assay.filters.row_filter import DATASET_ORDER, EVERY_ROW, FAILING, FAILING_ROWS, RowKey, outcome_of
from assay.filters.row_text import parse_row_query
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import AttemptOutcome
from assay.model.views import RowView
from assay.reports.document.document import row_document
from assay.reports.formats.json_report import write_rows
from assay.reports.words.metric_text import count_text, seconds_text, units_of, value_text
from assay.text.unsafe_text import json_text, shorten, without_commands
from assay_cli.output.case_view import case_view
from assay_cli.output.documents import print_document, with_schema
from assay_cli.output.failing_rows import ErrorGroups, FailingCounts, failing_entry, is_error
from assay_cli.output.run_documents import attempts_document
from assay_cli.output.terminal import WIDE, cut_width, table, whole_text_hint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from assay.client.client import Client
    from assay.filters.row_filter import RowOrder
    from assay.model.run import RowResult, Run

_LISTED_ROWS = 50
_PAGE = 500


_OPTIONS = ("--where", "--sort")
_LATENCY = "latency"
_CASE_CHARS = 40
_MESSAGE_CHARS = 60


def row_table(run: Run, rows: Sequence[RowResult], width: int) -> str:
    """Return rows as aligned columns.

    Args:
        run: The run that has the rows.
        rows: At least one row.
        width: Characters of a line; a pipe or a wide terminal gets case ids uncut.
    """
    case_chars, message_chars = (None, WIDE) if width >= WIDE else (_CASE_CHARS, _MESSAGE_CHARS)
    repeats = run.spec.repeats > 1
    units = units_of(run.spec)
    metrics = [metric.name for metric in run.spec.metrics if metric.name != _LATENCY]  # it has its own column
    lines = [("case", *(("repeat",) if repeats else ()), "outcome", _LATENCY, *metrics, "message")]
    for row in rows:
        values = (metric_value(row, name) for name in metrics)
        lines.append(
            (
                shorten(row.case_id, case_chars),
                *((str(row.repeat),) if repeats else ()),
                row.status.value if row.status is AgentStatus.INTERRUPTED else outcome_of(row).value,
                seconds_text(row.latency_ms / 1000) if row.latency_ms is not None else "-",
                *(value_text(units[name], value) for name, value in zip(metrics, values, strict=True)),
                shorten(row.message, message_chars),
            )
        )
    return table(lines)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The selection of rows that a command shows.

    Args:
        where: Filter of the rows.
        sort: Sort order.
        limit: Maximum number of rows; None for the command's default.
    """

    where: str
    sort: str
    limit: int | None

    def __post_init__(self) -> None:
        parse_row_query(self.where, self.sort, names=_OPTIONS)

    @property
    def is_filtered(self) -> bool:
        """Whether the filter has a condition."""
        return parse_row_query(self.where, "", names=_OPTIONS)[0] != EVERY_ROW

    @property
    def order(self) -> RowOrder:
        """The sort order."""
        return parse_row_query("", self.sort, names=_OPTIONS)[1]

    @property
    def failing(self) -> str:
        """The filter of the selection's failing rows.

        Raises:
            InvalidInputError: The filter has an outcome that is not failing.
        """
        outcomes = parse_row_query(self.where, "", names=_OPTIONS)[0].outcomes
        if others := [outcome for outcome in outcomes if outcome not in FAILING]:
            known = ", ".join(FAILING)
            problem = f"--failed shows rows with the outcomes {known}: leave {', '.join(others)} out"
            raise InvalidInputError([Problem(problem, _OPTIONS[0])])
        return self.where if outcomes else f"{FAILING_ROWS} {self.where}"


async def _run_with_metrics(client: Client, run_id: str, selection: RowSelection) -> Run:
    """Return the run, after checking that it has the selection's metrics.

    Raises:
        InvalidInputError: A metric is missing; names the option.
    """
    run = await client.get_run(run_id, partial=False)
    metrics = [metric.name for metric in run.spec.metrics]
    parse_row_query(selection.where, selection.sort, names=_OPTIONS, metrics=metrics)
    return run


async def show_case(client: Client, run_id: str, case_id: str, selection: RowSelection, *, as_json: bool) -> None:
    """Print the rows of a case in full, one per repeat, and the ids of the cases before and after it.

    Raises:
        NotFoundError: The run does not exist, or its dataset does not have the case.
    """
    run = await _run_with_metrics(client, run_id, selection)
    view = await client.get_case(run_id, case_id, where=selection.where, order_by=selection.sort)
    attempts = await client.list_attempts(run_id, case_id)
    earlier = {
        row.repeat: [
            attempt
            for attempt in attempts
            if attempt.repeat == row.repeat and attempt.outcome is not AttemptOutcome.CURRENT
        ]
        for row in view.results
    }
    if as_json:
        rows = [
            {**row_document(row), "earlier_attempts": attempts_document(earlier[row.repeat])} for row in view.results
        ]
        around = {"previous_case": view.previous_case_id or None, "next_case": view.next_case_id or None}
        print_document("case", {"case_id": case_id, **around, "rows": rows})
        return
    if not view.results:
        click.echo("this case has no result yet")
    else:
        views = [case_view(run, row, earlier[row.repeat]) for row in view.results]
        click.echo(without_commands("\n\n".join(views)))
    around = {"previous": view.previous_case_id, "next": view.next_case_id}
    if named := [f"{label}: {shorten(case, None)}" for label, case in around.items() if case]:
        click.echo(without_commands("\n" + "  ".join(named)))


async def show_failed(client: Client, run_id: str, selection: RowSelection, *, as_json: bool) -> None:
    """Print the failing rows of a selection while reading them, then rows with errors; identical errors share one
    entry.

    Raises:
        NotFoundError: The run does not exist.
    """
    run = await _run_with_metrics(client, run_id, selection)
    listed = client.list_rows(run_id, where=selection.failing, order_by=selection.sort)
    rows = _first(listed, selection.limit)
    if as_json:
        head = json_text(with_schema("failing-rows", {"run_id": run_id}), indent=1)
        sys.stdout.write(head.removesuffix("\n}") + ',\n "rows": [')
        await write_rows(sys.stdout, rows)
        sys.stdout.write("\n ]\n}\n")
        return
    width, errors, counts = cut_width(sys.stdout), ErrorGroups(run, with_names=True), FailingCounts()
    hint = ""
    async for row in rows:
        counts.take(row)
        if is_error(row):
            errors.take(row)
        else:
            lines = failing_entry(run, row, width)
            hint = hint or whole_text_hint(lines, run_id, row.case_id)
            click.echo(without_commands("\n".join(lines)))
    for group in errors.largest_first():
        lines = group.lines(run, width, with_traceback=True)
        hint = hint or whole_text_hint(lines, run_id, group.first.case_id)
        click.echo(without_commands("\n".join(lines)))
    if hint:
        click.echo(hint)
    meets = " that matches the filter" if selection.is_filtered else ""
    click.echo(str(counts) if counts.total else f"no row{meets} failed")


async def show_rows(client: Client, run_id: str, selection: RowSelection, *, as_json: bool) -> None:
    """Print a table of the rows of a selection, and the number of rows that match its filter.

    Raises:
        NotFoundError: The run does not exist.
        InvalidInputError: Filter or order name a metric that the run does not have.
    """
    run = await _run_with_metrics(client, run_id, selection)
    limit = selection.limit or _LISTED_ROWS
    rows: list[RowResult] = []
    token, total = "", 0
    while len(rows) < limit:
        page = await client.row_page(
            run_id,
            where=selection.where,
            order_by=selection.sort,
            page_size=min(_PAGE, limit - len(rows)),
            page_token=token,
            view=RowView.FULL if as_json else RowView.BASIC,
            include_total_count=not token,
        )
        rows += page.results
        total = page.total_count if page.total_count is not None else total
        token = page.next_page_token
        if not token:
            break
    if as_json:
        document = {
            "matching": total,
            "finished_count": run.counts.finished_count,
            "rows": [row_document(row) for row in rows],
        }
        print_document("rows", document)
        return
    if rows:
        click.echo(without_commands(row_table(run, rows, cut_width(sys.stdout))))
    counted = f"{total:,} of {run.counts.finished_count:,} rows match the filter"
    if not selection.is_filtered:
        counted = f"{count_text(total, 'row')} stored"
    click.echo(f"{counted}{_left(len(rows), total, selection)}")


def _left(shown: int, total: int, selection: RowSelection) -> str:
    if shown >= total:
        return ""
    first = "" if selection.order == DATASET_ORDER else f" by {_name(selection.order)}"
    return f"; these are the first {shown:,}{first}: --limit {total} lists all"


def _name(order: RowOrder) -> str:
    name = order.metric if order.key is RowKey.METRIC else order.key.value
    return f"{name}, largest first" if order.descending else name


async def _first(rows: AsyncIterator[RowResult], limit: int | None) -> AsyncIterator[RowResult]:
    count = 0
    async for row in rows:
        yield row
        count += 1
        if count == limit:
            return
