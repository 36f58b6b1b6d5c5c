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
    from assay.client.admin import TeamQuotas, TeamUsage
    from assay.client.client import Client

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


_default_option = click.option("--default", "is_default", is_flag=True, help="The quotas of teams without their own.")


@quotas.command("set")
@click.argument("team", default="")
@_default_option
@_quota_options
@client_options
def set_quotas(team: str, is_default: bool, server: str | None, **options: str | None) -> int:
    """Set quotas of TEAM, or with --default those of teams without their own. Other quotas stay unchanged."""
    from assay.client import admin as calls

    if is_default == bool(team):
        raise InvalidInputError([Problem("is missing: name a team, or --default, not both", "TEAM")])
    amounts, removed = _read(options)
    if is_default:
        called(server, lambda client: calls.update_default_quotas(client, amounts, removed))
    else:
        called(server, lambda client: calls.update_quotas(client, team, amounts, removed))
    changed = [f"{quota.value} {quota.shown(amount)}" for quota, amount in amounts.items()]
    changed += [f"{quota.value} none" for quota in removed]
    whose = clean(team) if team else "teams without their own"
    click.echo(f"set quotas of {whose}: {', '.join(changed)}; they hold within 30 s")
    return 0


@quotas.command("show")
@click.argument("team", default="")
@_default_option
@json_client_options
def show_quotas(team: str, is_default: bool, as_json: bool, server: str | None) -> int:
    """Show the quotas of TEAM, by default your own; with --default those of teams without their own."""
    from assay.client import admin as calls

    async def read(client: Client) -> TeamQuotas:
        if is_default:
            return calls.TeamQuotas(await calls.get_default_quotas(client), {})
        return await calls.get_quotas(client, team)

    if is_default and team:
        raise InvalidInputError([Problem("name a team, or --default, not both", "TEAM")])
    shown = called(server, read)
    if as_json:
        print_document("quotas", {"quotas": {quota.value: amount for quota, amount in shown.in_force.items()}})
    elif shown.in_force:
        rows = (
            (quota.value, quota.shown(amount), "own" if quota in shown.own else "default")
            for quota, amount in shown.in_force.items()
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

    teams = called(server, lambda client: calls.list_team_usage(client, team))
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
    removed: list[Quota] = []
    problems: list[Problem] = []
    for quota in Quota:
        text = options[quota.name.lower()]
        if text == _NONE:
            removed.append(quota)
        elif text is not None:
            try:
                amounts[quota] = quota.parse(text)
            except ValueError as problem:
                problems.append(Problem(str(problem), f"--{quota.value}"))
    if not problems and not amounts and not removed:
        problems.append(Problem("is missing: name at least one quota, such as --active-runs 5", "a quota"))
    if problems:
        raise InvalidInputError(problems)
    return amounts, removed


def _row(usage: TeamUsage) -> tuple[str, ...]:
    return (clean(usage.team), f"{usage.queued_row_count:,}", *(_shown(usage, quota) for quota in Quota))


def _shown(usage: TeamUsage, quota: Quota) -> str:
    used, limit = quota.shown(usage.used[quota]), usage.quotas.get(quota)
    return used if limit is None else f"{used} of {quota.shown(limit)}"


def _document(usage: TeamUsage) -> dict[str, Any]:
    uses = {quota.value: {"used": used, "limit": usage.quotas.get(quota)} for quota, used in usage.used.items()}
    return {"team": usage.team, "queued_row_count": usage.queued_row_count, **uses}
