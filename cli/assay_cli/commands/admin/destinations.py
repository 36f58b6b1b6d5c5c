"""`assay admin destinations`: addresses that a team's runs may call, and the secrets that may be sent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.calls import called, team_option
from assay_cli.options.shared import client_options, json_client_options
from assay_cli.output.documents import print_listing, print_object

if TYPE_CHECKING:
    from assay.client.admin import Destination


@click.group(cls=Group)
def destinations() -> None:
    """Register addresses that a team's runs may call, and the secrets that may be sent there; for team admins."""


@destinations.command("create")
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
def create_destination(
    name: str, address: str, secrets: tuple[str, ...], team: str, as_json: bool, server: str | None
) -> int:
    """Allow agents and judges at ADDRESS: https://HOST[:PORT], HOST:PORT, HOST or *.example.org."""
    from assay.client import admin as calls

    destination = called(
        server, lambda client: calls.create_destination(client, name, address, secrets=secrets, team=team)
    )
    sent = f"with {', '.join(destination.secrets)}" if destination.secrets else "without secrets"
    sentence = f"created destination {destination.name} of team {destination.team}: {destination.address}, {sent}"
    print_object("destination", destination, clean(sentence), as_json=as_json)
    return 0


@destinations.command("list")
@team_option
@json_client_options
def list_destinations(team: str, as_json: bool, server: str | None) -> int:
    """List the destinations of a team."""
    from assay.client import admin as calls

    listed = called(server, lambda client: calls.list_destinations(client, team))
    print_listing(
        "destinations", listed, ("destination", "team", "address", "secrets", "created"), _row, as_json=as_json
    )
    return 0


def _row(destination: Destination) -> tuple[str, ...]:
    return (
        destination.name,
        destination.team,
        destination.address,
        ", ".join(destination.secrets),
        destination.created_at,
    )


@destinations.command("delete")
@click.argument("name")
@team_option
@client_options
def delete_destination(name: str, team: str, server: str | None) -> int:
    """Remove the destination NAME; new and resumed runs can no longer call it."""
    from assay.client import admin as calls

    called(server, lambda client: calls.delete_destination(client, name, team))
    click.echo(f"deleted destination {clean(name)}")
    return 0
