"""`assay admin targets`: addresses that a team's runs may call, and the secrets that may be sent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.calls import called, team_option
from assay_cli.options.shared import client_options, json_client_options
from assay_cli.output.documents import print_listing, print_object

if TYPE_CHECKING:
    from assay.client.admin import Target


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
@json_client_options
def create_target(
    name: str, address: str, secrets: tuple[str, ...], team: str, as_json: bool, server: str | None
) -> int:
    """Allow agents and judges at ADDRESS: https://HOST[:PORT], HOST:PORT, HOST or *.example.org."""
    from assay.client import admin as calls

    target = called(server, lambda client: calls.create_target(client, name, address, secrets=secrets, team=team))
    sent = f"with {', '.join(target.secrets)}" if target.secrets else "without secrets"
    sentence = f"created target {target.name} of team {target.team}: {target.address}, {sent}"
    print_object("target", target, clean(sentence), as_json=as_json)
    return 0


@targets.command("list")
@team_option
@json_client_options
def list_targets(team: str, as_json: bool, server: str | None) -> int:
    """List the targets of a team."""
    from assay.client import admin as calls

    listed = called(server, lambda client: calls.list_targets(client, team))
    print_listing("targets", listed, ("target", "team", "address", "secrets", "created"), _row, as_json=as_json)
    return 0


def _row(target: Target) -> tuple[str, ...]:
    return (target.name, target.team, target.address, ", ".join(target.secrets), target.created_at)


@targets.command("delete")
@click.argument("name")
@team_option
@client_options
def delete_target(name: str, team: str, server: str | None) -> int:
    """Remove the target NAME; new and resumed runs can no longer call it."""
    from assay.client import admin as calls

    called(server, lambda client: calls.delete_target(client, name, team))
    click.echo(f"deleted target {clean(name)}")
    return 0
