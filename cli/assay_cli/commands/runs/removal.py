"""`assay runs delete | prune`: delete stored runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean
from assay_cli.exit_status import EXIT_USAGE
from assay_cli.options.cases import find_run
from assay_cli.options.shared import connect, json_client_options, parse_period, run_async
from assay_cli.output.documents import print_document
from assay_cli.output.terminal import confirm_deletion, size_text, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from assay.client.client import Client
    from assay.model.run import Deletion, Run

_ENDED = ("completed", "failed", "cancelled")
_AT_REST = (*_ENDED, "paused")
_MOST_RUNS = 1_000_000

_yes_option = click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")


def _read_age(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Parse an age such as 30d."""
    if value is None:
        return None
    age = parse_period(value, "mhdw")
    if age is None:
        raise click.BadParameter(f"{value!r} is not an age: write 90m, 12h, 30d or 8w", ctx, param)
    return age


def _read_states(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse states such as failed,cancelled."""
    if value is None:
        return _ENDED
    names = tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in _AT_REST:
            message = f"{name!r} is not a state in which runs can be deleted: {', '.join(_AT_REST)}"
            raise click.BadParameter(message, ctx, param)
    return names


@dataclass(frozen=True, slots=True)
class _Deletion:
    """A run to delete, with the effects of its deletion."""

    run: Run
    deletion: Deletion


@click.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@_yes_option
@click.option("--with-baselines", is_flag=True, help="With --yes, also delete runs that a baseline points to.")
@json_client_options
def delete(run_ids: tuple[str, ...], yes: bool, with_baselines: bool, server: str | None, as_json: bool) -> int:
    """Delete ended or paused runs: their answers, results and events.

    Datasets stay: see `assay datasets delete`. Deleted data cannot be restored. The baseline of a deleted run points to
    no run until `assay baseline set` names another.

    \b
        assay runs delete triage-20261121-075547-8e0354
    """

    async def main() -> int:
        async with connect(server) as (client, _):
            named = [await find_run(client, run_id) for run_id in run_ids]
            runs = [await client.get_run(run_id, partial=False) for run_id in dict.fromkeys(named)]
            deletions = [_Deletion(run, await client.delete_run(run.run_id, validate_only=True)) for run in runs]
            click.echo(_shown(deletions), err=as_json)
            for line in _named_by_baselines(deletions, "it is deleted too"):
                click.echo(line, err=as_json)
            if yes and not with_baselines and any(entry.deletion.baselines for entry in deletions):
                click.echo("error: nothing was deleted: add --with-baselines, or leave these runs out", err=True)
                return EXIT_USAGE
            if (status := _refused(deletions, yes)) is not None:
                return status
            gone = [
                _Deletion(entry.run, await client.delete_run(entry.run.run_id, with_baselines=True))
                for entry in deletions
            ]
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
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N of these runs; default: 0.")
@click.option(
    "--state",
    "states",
    callback=_read_states,
    metavar="A,B",
    help="Only runs in these states: completed, failed, cancelled, paused; default: all but paused.",
)
@click.option("--dry-run", is_flag=True, help="List the runs, and delete nothing.")
@_yes_option
@json_client_options
def prune(
    older_than: timedelta | None,
    keep: int | None,
    states: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    server: str | None,
    as_json: bool,
) -> int:
    """Delete old runs by age, number or both, after listing them with the space to be freed.

    The age of a run counts from its end, or from its creation while it is paused. Runs that a baseline points to are
    kept. A dataset is deleted with its last run.

    \b
        assay runs prune --older-than 30d --dry-run
        assay runs prune --keep 100 --state failed,cancelled --yes
    """
    if older_than is None and keep is None:
        raise click.UsageError("select runs with --older-than 30d, --keep 100, or both")

    async def main() -> int:
        async with connect(server) as (client, _):
            stored = await client.list_runs(_MOST_RUNS)
            chosen = _chosen(stored, older_than, keep, states)
            checked: list[_Deletion] = []
            for run in chosen:
                checked += await _unless_changed(run, client.delete_run(run.run_id, validate_only=True))
            deletions = [entry for entry in checked if not entry.deletion.baselines]
            unused = _left_without_runs(deletions, stored)
            click.echo(_shown(deletions, unused) if deletions or not checked else "no run to delete", err=as_json)
            for line in _named_by_baselines(checked, "it is kept"):
                click.echo(line, err=as_json)
            if dry_run or not deletions:
                if as_json:
                    _print_json(deletions, unused, deleted=not dry_run)
                return 0
            if (status := _refused(deletions, yes)) is not None:
                return status
            gone: list[_Deletion] = []
            for entry in deletions:
                gone += await _unless_changed(entry.run, client.delete_run(entry.run.run_id))
            _report(gone, await _delete_unused(client, unused), as_json=as_json)
        return 0

    return run_async(main())


def _chosen(
    newest_first: Sequence[Run], older_than: timedelta | None, keep: int | None, states: tuple[str, ...]
) -> list[Run]:
    """Return the runs to delete, newest first."""
    chosen = [run for run in newest_first if run.state.value in states and not run.waits_for_storage][keep or 0 :]
    if older_than is None:
        return chosen
    limit = datetime.now(UTC) - older_than
    return [run for run in chosen if datetime.fromisoformat(run.ended_at or run.created_at) < limit]


def _left_without_runs(deletions: Sequence[_Deletion], stored: Sequence[Run]) -> list[str]:
    """Return the datasets that only runs to be deleted use."""
    going = {entry.run.run_id for entry in deletions}
    used = {run.dataset.dataset_id for run in stored if run.run_id not in going}
    own = dict.fromkeys(entry.run.dataset.dataset_id for entry in deletions)
    return [dataset_id for dataset_id in own if dataset_id not in used]


async def _delete_unused(client: Client, dataset_ids: Sequence[str]) -> list[str]:
    """Delete datasets, and return those that no new run uses."""
    from assay.errors import NotFoundError, WrongStateError

    gone = []
    for dataset_id in dataset_ids:
        try:
            await client.delete_dataset(dataset_id)
        except (NotFoundError, WrongStateError) as problem:
            click.echo(f"skipped: {problem.message}", err=True)
        else:
            gone.append(dataset_id)
    return gone


async def _unless_changed(run: Run, deleting: Awaitable[Deletion]) -> list[_Deletion]:
    """Return a run with the effects of its deletion; None if another client has resumed or deleted it."""
    from assay.errors import NotFoundError, WrongStateError

    try:
        return [_Deletion(run, await deleting)]
    except (NotFoundError, WrongStateError) as problem:
        click.echo(f"skipped: {problem.message}", err=True)
        return []


def _refused(deletions: Sequence[_Deletion], yes: bool) -> int | None:
    """Ask for confirmation; return the exit status if it is refused."""
    subject = deletions[0].run.run_id if len(deletions) == 1 else f"{len(deletions)} runs"
    return None if yes else confirm_deletion(subject)


def _report(gone: Sequence[_Deletion], dataset_ids: Sequence[str] = (), *, as_json: bool) -> None:
    if as_json:
        _print_json(gone, dataset_ids, deleted=True)
    else:
        click.echo(f"deleted {_summed(gone, dataset_ids)}")


def _shown(deletions: Sequence[_Deletion], dataset_ids: Sequence[str] = ()) -> str:
    if not deletions:
        return "no run is that old"
    rows = [("run", "state", "rows", "size", "created", "dataset")]
    rows += [
        (
            entry.run.run_id,
            entry.run.state.value,
            f"{entry.deletion.row_count:,}",
            size_text(entry.deletion.size_bytes),
            entry.run.created_at[:19].replace("T", " "),
            f"{_dataset(entry.run)}{', deleted too' if entry.run.dataset.dataset_id in dataset_ids else ''}",
        )
        for entry in deletions
    ]
    return f"{table(rows)}\nto be deleted: {_summed(deletions, dataset_ids)}; written reports are kept"


def _named_by_baselines(deletions: Sequence[_Deletion], fate: str) -> Iterator[str]:
    """Yield a line for every run that a baseline points to."""
    for entry in deletions:
        if names := [clean(name) for name in entry.deletion.baselines]:
            points = "points" if len(names) == 1 else "point"
            subject = "baseline" if len(names) == 1 else "the baselines"
            yield f"{subject} {' and '.join(names)} {points} to run {entry.run.run_id}: {fate}"


def _dataset(run: Run) -> str:
    return run.spec.dataset.file if run.spec.dataset is not None else run.dataset.name


def _summed(deletions: Sequence[_Deletion], dataset_ids: Sequence[str]) -> str:
    rows = sum(entry.deletion.row_count for entry in deletions)
    size = size_text(sum(entry.deletion.size_bytes for entry in deletions))
    more = f", and {count_text(len(dataset_ids), 'dataset')} that no other run uses" if dataset_ids else ""
    return f"{count_text(len(deletions), 'run')} with {count_text(rows, 'row')}: about {size}{more}"


def _print_json(deletions: Sequence[_Deletion], dataset_ids: Sequence[str], *, deleted: bool) -> None:
    runs = [
        {
            "run_id": entry.run.run_id,
            "state": entry.run.state.value,
            "rows": entry.deletion.row_count,
            "size_bytes": entry.deletion.size_bytes,
        }
        for entry in deletions
    ]
    print_document("run-deletion", {"deleted": deleted, "runs": runs, "datasets": list(dataset_ids)})
