"""`assay admin targets`: where agents of a team may be, and which of its secrets may be sent there."""

from __future__ import annotations

import dataclasses

import click

from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.calls import called, team_option
from assay_cli.options.shared import debug_option, json_option, print_document, server_option
from assay_cli.output.terminal import table


@click.group(cls=Group)
def targets() -> None:
    """Register where agents of a team may be, and which of its secrets may be sent there; for team admins."""


@targets.command("create")
@click.argument("name")
@click.argument("address")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="A secret of the team that may be sent there, which specs name as secret://NAME; repeatable.",
)
@team_option
@json_option
@server_option
@debug_option
def create_target(
    name: str, address: str, secrets: tuple[str, ...], team: str, as_json: bool, server: str | None
) -> int:
    """Let agents and judges of a team's runs be at ADDRESS: https://HOST[:PORT], HOST:PORT, HOST or *.example.org."""
    from assay.client import admin as calls

    made = called(server, lambda client: calls.create_target(client, name, address, secrets=secrets, team=team))
    if as_json:
        print_document(dataclasses.asdict(made))
    else:
        sent = f", with {clean(', '.join(made.secrets))}" if made.secrets else ", without secrets"
        click.echo(f"created target {clean(made.name)} of team {clean(made.team)}: {clean(made.address)}{sent}")
    return 0


@targets.command("list")
@team_option
@json_option
@server_option
@debug_option
def list_targets(team: str, as_json: bool, server: str | None) -> int:
    """List the targets of a team."""
    from assay.client import admin as calls

    found = called(server, lambda client: calls.list_targets(client, team))
    if as_json:
        print_document([dataclasses.asdict(each) for each in found])
    else:
        rows = (
            (clean(each.name), clean(each.team), clean(each.address), clean(", ".join(each.secrets)), each.created_at)
            for each in found
        )
        click.echo(table([("target", "team", "address", "secrets", "created"), *rows]))
    return 0


@targets.command("delete")
@click.argument("name")
@team_option
@server_option
@debug_option
def delete_target(name: str, team: str, server: str | None) -> int:
    """Remove the target NAME: runs that are created or resumed are refused there."""
    from assay.client import admin as calls

    called(server, lambda client: calls.delete_target(client, name, team))
    click.echo(f"deleted target {clean(name)}")
    return 0
