"""`assay admin quotas` and `assay admin status`: quotas of the teams of a shared server, and their usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from assay.errors import InvalidInputError, Problem
from assay.identity.quotas import Quota
from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.calls import called
from assay_cli.options.groups import combined
from assay_cli.options.shared import client_options, json_client_options
from assay_cli.output.documents import print_document
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.client.admin import QuotaUse, TeamStatus

_HELP = {
    Quota.ACTIVE_RUNS: ("N", "pending and running runs at once"),
    Quota.CONCURRENT_QUESTIONS: ("N", "questions in flight to agents, over all runs"),
    Quota.STORED_BYTES: ("SIZE", "bytes of datasets and rows, such as 500MB or 10GiB"),
    Quota.REQUESTS_PER_MINUTE: ("N", "calls a minute"),
    Quota.TOKENS_PER_DAY: ("N", "tokens of agents and judges a day (UTC)"),
    Quota.MONEY_PER_MONTH: ("USD", "US dollars for agents and judges a month (UTC)"),
}
_NONE = "none"


_quota_options = combined(
    *(
        click.option(
            f"--{quota.value}",
            quota.name.lower(),
            metavar=metavar,
            help=f"Maximum {unit}; none removes it; default: unchanged.",
        )
        for quota, (metavar, unit) in _HELP.items()
    )
)


@click.group(cls=Group)
def quotas() -> None:
    """Set and show the quotas of teams; only operators set them."""


@quotas.command("set")
@click.argument("team")
@_quota_options
@client_options
def set_quotas(team: str, server: str | None, **options: str | None) -> int:
    """Set quotas of TEAM; "default" sets them for every team without its own. Other quotas stay unchanged."""
    from assay.client import admin as calls

    amounts, cleared = _read(options)
    called(server, lambda client: calls.set_quotas(client, amounts, cleared, team=team))
    changed = [f"{quota.value} {quota.shown(amount)}" for quota, amount in amounts.items()]
    changed += [f"{quota.value} none" for quota in cleared]
    click.echo(f"set quotas of {clean(team)}: {', '.join(changed)}; they hold within 30 s")
    return 0


@quotas.command("show")
@click.argument("team", default="")
@json_client_options
def show_quotas(team: str, as_json: bool, server: str | None) -> int:
    """Show the quotas of TEAM, by default your own."""
    from assay.client import admin as calls

    in_force = called(server, lambda client: calls.get_quotas(client, team))
    if as_json:
        print_document("quotas", {"quotas": {entry.quota.value: entry.amount for entry in in_force}})
    elif in_force:
        rows = (
            (entry.quota.value, entry.quota.shown(entry.amount), "default" if entry.is_default else "own")
            for entry in in_force
        )
        click.echo(table([("quota", "amount", "set for"), *rows]))
    else:
        click.echo("no quotas")
    return 0


@click.command()
@click.option("--team", default="", metavar="TEAM", help="Team; default: all for an operator, else your own.")
@json_client_options
def status(team: str, as_json: bool, server: str | None) -> int:
    """Show the current usage of teams, beside their quotas."""
    from assay.client import admin as calls

    teams = called(server, lambda client: calls.get_status(client, team))
    if as_json:
        print_document("usage", {"teams": [_document(usage) for usage in teams]})
    else:
        head = ("team", "queued rows", *(quota.value for quota in Quota))
        click.echo(table([head, *map(_row, teams)]))
    return 0


def _read(options: dict[str, str | None]) -> tuple[dict[Quota, int], list[Quota]]:
    """Return the quotas that the options set, and the quotas that they remove.

    Raises:
        InvalidInputError: An option is wrong; lists every problem.
    """
    amounts: dict[Quota, int] = {}
    cleared: list[Quota] = []
    problems: list[Problem] = []
    for quota in Quota:
        text = options[quota.name.lower()]
        if text == _NONE:
            cleared.append(quota)
        elif text is not None:
            try:
                amounts[quota] = quota.parse(text)
            except ValueError as problem:
                problems.append(Problem(str(problem), f"--{quota.value}"))
    if not problems and not amounts and not cleared:
        problems.append(Problem("is missing: name at least one quota, such as --active-runs 5", "a quota"))
    if problems:
        raise InvalidInputError(problems)
    return amounts, cleared


def _row(team: TeamStatus) -> tuple[str, ...]:
    uses = {use.quota: use for use in team.uses}
    shown = (_shown(uses[quota]) if quota in uses else "-" for quota in Quota)
    return (clean(team.team), f"{team.queued_rows:,}", *shown)


def _shown(use: QuotaUse) -> str:
    used = use.quota.shown(use.used)
    return used if use.limit is None else f"{used} of {use.quota.shown(use.limit)}"


def _document(team: TeamStatus) -> dict[str, Any]:
    uses = {use.quota.value: {"used": use.used, "limit": use.limit} for use in team.uses}
    return {"team": team.team, "queued_rows": team.queued_rows, **uses}
