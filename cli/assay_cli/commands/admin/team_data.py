"""`assay admin teams delete | retention`: what becomes of a team's data."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.commands.admin.calls import called
from assay_cli.exit_status import EXIT_INTERRUPTED, EXIT_USAGE
from assay_cli.options.shared import debug_option, json_option, print_document, server_option
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.client.admin import TeamDeletion
    from assay.client.client import Client

_POLL_S = 1.0
_DAYS = re.compile(r"([1-9]\d{0,4})([dw])", re.ASCII)


@click.command("delete")
@click.argument("team")
@click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the end: the server deletes in the background anyway.")
@json_option
@server_option
@debug_option
def delete_team(team: str, yes: bool, no_wait: bool, as_json: bool, server: str | None) -> int:
    """Delete TEAM with all its data, everywhere, and show what was deleted and what was found when counted again.

    Its active runs are cancelled at once. Runs, rows, datasets, baselines, tokens, verdicts and cached vectors go; the
    team's audit stays, and no other team gets its name. It takes a minute at least, for a token of the team may be
    taken somewhere so long. A second call continues to watch. What is deleted cannot be brought back.
    """
    if not yes and (status := _unconfirmed(team)) is not None:
        return status

    async def delete(client: Client) -> TeamDeletion:
        from assay.client import admin as calls

        found = await calls.delete_team(client, team)
        click.echo(f"deleting team {clean(team)}; {found.cancelled_count:,} runs are cancelled", err=True)
        while not (no_wait or found.team.erased_at):
            await asyncio.sleep(_POLL_S)
            found = await calls.delete_team(client, team)
        return found

    found = called(server, delete)
    if as_json:
        print_document(dataclasses.asdict(found))
        return 0
    rows = [
        (each.store, f"{each.deleted_count:,}", "-" if each.remaining_count is None else f"{each.remaining_count:,}")
        for each in found.stores
    ]
    click.echo(table([("store", "deleted", "counted again"), *rows]))
    state = f"nothing of it is left since {found.team.erased_at}" if found.team.erased_at else "the server continues"
    click.echo(f"deleted team {clean(team)}: {state}")
    return 0


def _unconfirmed(team: str) -> int | None:
    """Return the exit status if the name of the team is not typed again."""
    if not sys.stdin.isatty():
        click.echo("error: nothing was deleted: stdin is no terminal to confirm on; add --yes", err=True)
        return EXIT_USAGE
    typed = click.prompt(
        "This deletes all data of the team. Type its name to confirm", default="", show_default=False, err=True
    )
    if typed == team:
        return None
    click.echo("nothing was deleted: the name differs", err=True)
    return EXIT_INTERRUPTED


def _read_days(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the days that a text like 90d stands for; 0 for never, None where the option is missing."""
    if value is None:
        return None
    if value == "never":
        return 0
    found = _DAYS.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value[:40]!r} is no time: write 90d, 52w or never", ctx, param)
    return int(found[1]) * (7 if found[2] == "w" else 1)


@click.command("retention")
@click.argument("team")
@click.option(
    "--runs",
    callback=_read_days,
    metavar="TIME",
    help="Delete runs that ended longer ago, such as 90d or 52w, but no baselines; never: none; default: as before.",
)
@click.option(
    "--audit",
    callback=_read_days,
    metavar="TIME",
    help="Delete audit entries that are older, such as 400d; never: none; default: as before.",
)
@json_option
@server_option
@debug_option
def set_retention(team: str, runs: int | None, audit: int | None, as_json: bool, server: str | None) -> int:
    """Set how long runs and audit entries of TEAM stay; a new team keeps both for ever."""
    from assay.client import admin as calls

    found = called(
        server, lambda client: calls.set_team_retention(client, team, keep_runs_days=runs, keep_audit_days=audit)
    )
    if as_json:
        print_document(dataclasses.asdict(found))
        return 0
    click.echo(
        f"team {clean(found.team)} keeps runs {shown(found.keep_runs_days)}, audit {shown(found.keep_audit_days)}"
    )
    return 0


def shown(days: int) -> str:
    """Return a retention as people read it."""
    return f"{days:,} days" if days else "for ever"
