"""`assay admin targets`: addresses that a team's runs may call, and the secrets that may be sent there."""

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
    """Register addresses that a team's runs may call, and the secrets that may be sent there; for team admins."""


@targets.command("create")
@click.argument("name")
@click.argument("address")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="Secret of the team that may be sent there; specs refer to it as secret://NAME; repeatable.",
)
@team_option
@json_option
@server_option
@debug_option
def create_target(
    name: str, address: str, secrets: tuple[str, ...], team: str, as_json: bool, server: str | None
) -> int:
    """Allow agents and judges at ADDRESS: https://HOST[:PORT], HOST:PORT, HOST or *.example.org."""
    from assay.client import admin as calls

    target = called(server, lambda client: calls.create_target(client, name, address, secrets=secrets, team=team))
    if as_json:
        print_document(dataclasses.asdict(target))
    else:
        sent = f", with {clean(', '.join(target.secrets))}" if target.secrets else ", without secrets"
        click.echo(f"created target {clean(target.name)} of team {clean(target.team)}: {clean(target.address)}{sent}")
    return 0


@targets.command("list")
@team_option
@json_option
@server_option
@debug_option
def list_targets(team: str, as_json: bool, server: str | None) -> int:
    """List the targets of a team."""
    from assay.client import admin as calls

    listed = called(server, lambda client: calls.list_targets(client, team))
    if as_json:
        print_document([dataclasses.asdict(target) for target in listed])
    else:
        rows = (
            (
                clean(target.name),
                clean(target.team),
                clean(target.address),
                clean(", ".join(target.secrets)),
                target.created_at,
            )
            for target in listed
        )
        click.echo(table([("target", "team", "address", "secrets", "created"), *rows]))
    return 0


@targets.command("delete")
@click.argument("name")
@team_option
@server_option
@debug_option
def delete_target(name: str, team: str, server: str | None) -> int:
    """Remove the target NAME; new and resumed runs can no longer call it."""
    from assay.client import admin as calls

    called(server, lambda client: calls.delete_target(client, name, team))
    click.echo(f"deleted target {clean(name)}")
    return 0
