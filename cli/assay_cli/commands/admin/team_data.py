"""`assay admin teams delete | retention`: deletion and retention of a team's data."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem
from assay.text.unsafe_text import clean
from assay_cli.commands.admin.calls import called
from assay_cli.exit_status import EXIT_INTERRUPTED, EXIT_USAGE
from assay_cli.options.shared import json_client_options, parse_period
from assay_cli.output.documents import print_document, print_object, record
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.client.admin import TeamDeletion
    from assay.client.client import Client

_POLL_S = 1.0


@click.command("delete")
@click.argument("team")
@click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")
@click.option("--no-wait", is_flag=True, help="Do not wait: the server deletes in the background anyway.")
@json_client_options
def delete_team(team: str, yes: bool, no_wait: bool, as_json: bool, server: str | None) -> int:
    """Delete TEAM with all its data in every service, and show how many entries were deleted and how many are left.

    Active runs are cancelled at once. Runs, rows, datasets, baselines, tokens, verdicts and cached vectors are deleted;
    the audit log stays, and the name is never used again. Deletion takes at least a minute, because a service may
    accept a token of the team for that long. A second call watches the deletion again. Deleted data cannot be restored.
    """
    if not yes and (status := _unconfirmed(team)) is not None:
        return status

    async def delete(client: Client) -> tuple[int, TeamDeletion]:
        from assay.client import admin as calls

        cancelled_count = await calls.delete_team(client, team)
        click.echo(f"deleting team {clean(team)}; {cancelled_count:,} runs are cancelled", err=True)
        deletion = await calls.get_team_deletion(client, team)
        while not (no_wait or deletion.team.erased_at):
            await asyncio.sleep(_POLL_S)
            deletion = await calls.get_team_deletion(client, team)
        return cancelled_count, deletion

    cancelled_count, deletion = called(server, delete)
    if as_json:
        print_document("team-deletion", {"cancelled_run_count": cancelled_count, **record(deletion)})
        return 0
    rows = [
        (
            store.store,
            f"{store.deleted_count:,}",
            "-" if store.remaining_count is None else f"{store.remaining_count:,}",
        )
        for store in deletion.stores
    ]
    click.echo(table([("store", "deleted", "counted again"), *rows]))
    state = (
        f"nothing of it is left since {deletion.team.erased_at}" if deletion.team.erased_at else "the server continues"
    )
    click.echo(f"deleted team {clean(team)}: {state}")
    return 0


def _unconfirmed(team: str) -> int | None:
    """Ask for the team's name; return the exit status if it was not confirmed."""
    if not sys.stdin.isatty():
        click.echo("error: nothing was deleted: stdin is not a terminal to confirm on; add --yes", err=True)
        return EXIT_USAGE
    typed = click.prompt(
        "This deletes all data of the team. Type its name to confirm", default="", show_default=False, err=True
    )
    if typed == team:
        return None
    click.echo("nothing was deleted: the name differs", err=True)
    return EXIT_INTERRUPTED


def _read_days(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a retention such as 90d; return days, 0 for never, None without the option."""
    if value is None:
        return None
    if value == "never":
        return 0
    period = parse_period(value, "dw")
    if not period:
        raise click.BadParameter(f"{value[:40]!r} is not a time: write 90d, 52w or never", ctx, param)
    return period.days


@click.command("retention")
@click.argument("team")
@click.option(
    "--runs",
    callback=_read_days,
    metavar="TIME",
    help="Delete runs this long after their end, such as 90d or 52w, but no baselines; never: keep; default: "
    "unchanged.",
)
@click.option(
    "--audit",
    callback=_read_days,
    metavar="TIME",
    help="Delete audit entries older than this, such as 400d; never: keep all; default: unchanged.",
)
@json_client_options
def set_retention(team: str, runs: int | None, audit: int | None, as_json: bool, server: str | None) -> int:
    """Set how long runs and audit entries of TEAM are kept; a new team keeps both for ever."""
    from assay.client import admin as calls

    if runs is None and audit is None:
        raise InvalidInputError([Problem("is missing: name --runs or --audit, or both", "a retention")])
    changed, _ = called(
        server, lambda client: calls.update_team(client, team, keep_runs_days=runs, keep_audit_days=audit)
    )
    runs_kept, audit_kept = shown(changed.keep_runs_days), shown(changed.keep_audit_days)
    sentence = f"team {clean(changed.team)} keeps runs {runs_kept}, audit {audit_kept}"
    print_object("team", changed, sentence, as_json=as_json)
    return 0


def shown(days: int | None) -> str:
    """Return a retention as text."""
    return f"{days:,} days" if days else "for ever"
