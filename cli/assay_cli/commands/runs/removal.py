"""`assay runs delete | prune`: removing stored runs."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean
from assay_cli.exit_status import EXIT_INTERRUPTED, EXIT_USAGE
from assay_cli.options.cases import find_run
from assay_cli.options.shared import connect, debug_option, json_option, run_async, server_option
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from assay.model.run import Deletion, Run

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_ENDED = ("succeeded", "failed", "cancelled")
_AT_REST = (*_ENDED, "paused")
_MOST_RUNS = 1_000_000

_yes_option = click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")


def _read_age(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return the time that a text like 30d stands for."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([mhdw])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not an age: write 90m, 12h, 30d or 8w", ctx, param)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _read_states(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the states that a text like failed,cancelled names."""
    if value is None:
        return _ENDED
    names = tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in _AT_REST:
            message = f"{name!r} is not a state of runs that can be deleted: {', '.join(_AT_REST)}"
            raise click.BadParameter(message, ctx, param)
    return names


@dataclass(frozen=True, slots=True)
class _Found:
    """A run that is to go, and what goes with it."""

    run: Run
    deletion: Deletion


@click.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@_yes_option
@click.option("--with-baselines", is_flag=True, help="With --yes, also delete runs that a baseline points to.")
@server_option
@json_option
@debug_option
def delete(run_ids: tuple[str, ...], yes: bool, with_baselines: bool, server: str | None, as_json: bool) -> int:
    """Delete runs that have ended or are paused: their answers, results and events.

    A dataset is deleted with the last run that uses it. What is deleted cannot be brought back. A baseline whose run
    is deleted points to no stored run until `assay baseline set` names another one.

    \b
        assay runs delete triage-20261121-075547-8e0354
    """

    async def main() -> int:
        async with connect(server) as (client, _):
            named = [await find_run(client, run_id) for run_id in run_ids]
            wanted = [await client.get_run(run_id, partial=False) for run_id in dict.fromkeys(named)]
            found = [_Found(run, await client.delete_run(run.run_id, only_check=True)) for run in wanted]
            if len(found) > 1:
                found = _with_shared_datasets(found, await client.list_runs(_MOST_RUNS))
            click.echo(_shown(found), err=as_json)
            for line in _named_by_baselines(found, "it is deleted, too"):
                click.echo(line, err=as_json)
            if yes and not with_baselines and any(each.deletion.baselines for each in found):
                click.echo("error: nothing was deleted: add --with-baselines, or leave these runs out", err=True)
                return EXIT_USAGE
            if (status := _refused(found, yes)) is not None:
                return status
            gone = [_Found(each.run, await client.delete_run(each.run.run_id, with_baselines=True)) for each in found]
            _report(gone, as_json=as_json)
        return 0

    return run_async(main())


@click.command()
@click.option(
    "--older-than",
    callback=_read_age,
    metavar="AGE",
    help="Only runs that ended longer ago than this: 90m, 12h, 30d, 8w; default: any age.",
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N of them; default: 0.")
@click.option(
    "--state",
    "states",
    callback=_read_states,
    metavar="A,B",
    help="Only runs in these states, of succeeded, failed, cancelled, paused; default: all but paused.",
)
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
@_yes_option
@server_option
@json_option
@debug_option
def prune(
    older_than: timedelta | None,
    keep: int | None,
    states: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    server: str | None,
    as_json: bool,
) -> int:
    """Delete old runs, by age, by number, or both; list them first, with the space that this frees.

    A run is as old as its end, or as its creation while it is paused. A run that a baseline points to is kept.

    \b
        assay runs prune --older-than 30d --dry-run
        assay runs prune --keep 100 --state failed,cancelled --yes
    """
    if older_than is None and keep is None:
        raise click.UsageError("say which runs: --older-than 30d, --keep 100, or both")

    async def main() -> int:
        async with connect(server) as (client, _):
            stored = await client.list_runs(_MOST_RUNS)
            chosen = _chosen(stored, older_than, keep, states)
            checked: list[_Found] = []
            for run in chosen:
                checked += await _unless_changed(run, client.delete_run(run.run_id, only_check=True))
            found = _with_shared_datasets([each for each in checked if not each.deletion.baselines], stored)
            click.echo(_shown(found) if found or not checked else "no run is to be deleted", err=as_json)
            for line in _named_by_baselines(checked, "it is kept"):
                click.echo(line, err=as_json)
            if dry_run or not found:
                if as_json:
                    click.echo(_document(found))
                return 0
            if (status := _refused(found, yes)) is not None:
                return status
            gone: list[_Found] = []
            for each in found:
                gone += await _unless_changed(each.run, client.delete_run(each.run.run_id))
            _report(gone, as_json=as_json)
        return 0

    return run_async(main())


def _chosen(
    newest_first: Sequence[Run], older_than: timedelta | None, keep: int | None, states: tuple[str, ...]
) -> list[Run]:
    """Return the runs that are to go, newest first."""
    chosen = [run for run in newest_first if run.state.value in states and not run.waits_for_storage][keep or 0 :]
    if older_than is None:
        return chosen
    limit = datetime.now(UTC) - older_than
    return [run for run in chosen if datetime.fromisoformat(run.ended_at or run.created_at) < limit]


def _with_shared_datasets(found: Sequence[_Found], stored: Sequence[Run]) -> list[_Found]:
    """Return the runs that are to go, with the datasets that only several of them together use.

    The server checks each run alone, while the others still use its dataset.
    """
    going = {each.run.run_id for each in found}
    kept = {run.dataset.dataset_id for run in stored if run.run_id not in going}
    last_users = {each.run.dataset.dataset_id: each.run.run_id for each in found}
    return [
        replace(each, deletion=replace(each.deletion, dataset_removed=True))
        if each.run.dataset.dataset_id not in kept and last_users[each.run.dataset.dataset_id] == each.run.run_id
        else each
        for each in found
    ]


async def _unless_changed(run: Run, deleting: Awaitable[Deletion]) -> list[_Found]:
    """Return a run and what goes with it; nothing where another client resumed or deleted it since it was listed."""
    from assay.errors import NotFoundError, WrongStateError

    try:
        return [_Found(run, await deleting)]
    except (NotFoundError, WrongStateError) as problem:
        click.echo(f"skipped: {problem.message}", err=True)
        return []


def _refused(found: Sequence[_Found], yes: bool) -> int | None:
    """Ask whether to continue; return the exit status where not."""
    if yes:
        return None
    if not sys.stdin.isatty():
        click.echo("error: nothing was deleted: stdin is no terminal to confirm on; add --yes", err=True)
        return EXIT_USAGE
    what = found[0].run.run_id if len(found) == 1 else f"{len(found)} runs"
    if click.confirm(f"delete {what}?", err=True):
        return None
    click.echo("nothing was deleted", err=True)
    return EXIT_INTERRUPTED


def _report(gone: Sequence[_Found], *, as_json: bool) -> None:
    if as_json:
        click.echo(_document(gone))
    else:
        click.echo(f"deleted {_summed(gone)}")


def _shown(found: Sequence[_Found]) -> str:
    if not found:
        return "no run is that old"
    rows = [("run", "state", "rows", "size", "created", "dataset")]
    rows += [
        (
            each.run.run_id,
            each.run.state.value,
            f"{each.deletion.row_count:,}",
            _size(each.deletion.size_bytes),
            each.run.created_at[:19].replace("T", " "),
            f"{_dataset(each.run)}{', deleted too' if each.deletion.dataset_removed else ''}",
        )
        for each in found
    ]
    return f"{table(rows)}\nto be deleted: {_summed(found)}; reports that were written stay"


def _named_by_baselines(found: Sequence[_Found], fate: str) -> Iterator[str]:
    """Yield a line for each run that a baseline points to."""
    for each in found:
        if names := [clean(name) for name in each.deletion.baselines]:
            points = "points" if len(names) == 1 else "point"
            what = "baseline" if len(names) == 1 else "the baselines"
            yield f"{what} {' and '.join(names)} {points} to run {each.run.run_id}: {fate}"


def _dataset(run: Run) -> str:
    # The name of a dataset is that of the first file that held these cases; a run knows its own file.
    return run.settings.dataset.file if run.settings.dataset is not None else run.dataset.name


def _summed(found: Sequence[_Found]) -> str:
    rows = sum(each.deletion.row_count for each in found)
    datasets = sum(each.deletion.dataset_removed for each in found)
    more = f" and {datasets} dataset{'s' if datasets > 1 else ''} that no other run uses" if datasets else ""
    size = _size(sum(each.deletion.size_bytes for each in found))
    return f"{count_text(len(found), 'run')} with {count_text(rows, 'row')}{more}: about {size}"


def _document(found: Sequence[_Found]) -> str:
    return json.dumps(
        [
            {
                "run_id": each.run.run_id,
                "state": each.run.state.value,
                "rows": each.deletion.row_count,
                "size_bytes": each.deletion.size_bytes,
                "dataset_removed": each.deletion.dataset_removed,
            }
            for each in found
        ],
        indent=1,
    )


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            return f"{size:.1f} {unit}"
    raise AssertionError("the last unit takes everything")
