"""`assay admin`: teams, tokens, quotas and destinations of a shared server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from assay.errors import InvalidInputError, Problem
from assay.identity.rights import Role
from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.audit import audit
from assay_cli.commands.admin.calls import called, team_option
from assay_cli.commands.admin.destinations import destinations
from assay_cli.commands.admin.quotas import quotas, status
from assay_cli.commands.admin.team_data import delete_team, set_retention, shown
from assay_cli.options.shared import client_options, debug_option, json_client_options, parse_period
from assay_cli.output.documents import print_document, print_listing, print_object, record

if TYPE_CHECKING:
    from assay.client.admin import Team, TokenInfo


_database_option = click.option(
    "--database",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="SQLite file of the orchestrator, which must not run; overrides $ASSAY_DATABASE_URL; default: "
    "$ASSAY_ORCHESTRATOR_DATABASE.",
)
_database_url_option = click.option(
    "--database-url",
    metavar="URL",
    help="PostgreSQL of the orchestrator; default: $ASSAY_DATABASE_URL, which is safer for a URL with a password.",
)
_NEVER = "never"


@click.group(cls=Group)
def admin() -> None:
    """Manage teams, tokens, quotas, destinations and tables of a shared server; read its audit log."""


admin.add_command(audit)
admin.add_command(quotas)
admin.add_command(status)
admin.add_command(destinations)


@admin.command()
@_database_option
@_database_url_option
@debug_option
def bootstrap(database: Path | None, database_url: str | None) -> None:
    """Create the first operator's token in the database, and print it once.

    Use it also if every operator's token is lost.
    """
    _become("assay_orchestrator.identity.bootstrap", database, database_url)


@admin.command()
@_database_option
@_database_url_option
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if PostgreSQL lacks migrations of this version."
)
@debug_option
def migrate(database: Path | None, database_url: str | None, check: bool) -> None:
    """Bring the orchestrator's tables up to date; for orchestrators with `--migrations wait`.

    Refuses to change the tables while an orchestrator of an older version uses them, and names that process.
    """
    _become("assay_orchestrator.store.migrate", database, database_url, *(["--check"] if check else []))


def _become(module: str, database: Path | None, database_url: str | None, *more: str) -> NoReturn:
    from assay_cli.commands.serve import become_service

    options = {"--database": database, "--database-url": database_url}
    arguments = [part for flag, value in options.items() if value is not None for part in (flag, str(value))]
    become_service("orchestrator", module, [*arguments, *more])


@admin.group(cls=Group)
def teams() -> None:
    """Create, list, disable, enable and delete teams, and set their retention; for operators."""


teams.add_command(delete_team)
teams.add_command(set_retention)


@teams.command("create")
@click.argument("team")
@json_client_options
def create_team(team: str, as_json: bool, server: str | None) -> int:
    """Add TEAM: 1 to 63 lower-case letters, digits and "-"."""
    from assay.client import admin as calls

    created = called(server, lambda client: calls.create_team(client, team))
    name = clean(created.team)
    sentence = f"created team {name}; `assay admin tokens create NAME --team {name}` makes a token"
    print_object("team", created, sentence, as_json=as_json)
    return 0


@teams.command("list")
@json_client_options
def list_teams(as_json: bool, server: str | None) -> int:
    """List all teams."""
    from assay.client import admin as calls

    head = ("team", "created", "keeps runs", "keeps audit", "state")
    print_listing("teams", called(server, calls.list_teams), head, _team_row, as_json=as_json)
    return 0


def _team_row(team: Team) -> tuple[str, ...]:
    return (team.team, team.created_at, shown(team.keep_runs_days), shown(team.keep_audit_days), _state(team))


def _state(team: Team) -> str:
    if team.deleted_at:
        return f"deleted {team.deleted_at}" + ("" if team.erased_at else ", its data is being deleted")
    return f"disabled {team.disabled_at}" if team.disabled_at else "active"


@teams.command("disable")
@click.argument("team")
@client_options
def disable_team(team: str, server: str | None) -> int:
    """Disable TEAM: refuse its tokens within 60 s, and pause its active runs. Nothing is deleted."""
    from assay.client import admin as calls

    changed, paused = called(server, lambda client: calls.update_team(client, team, disabled=True))
    click.echo(f"disabled team {clean(changed.team)}; {paused:,} active runs are paused")
    return 0


@teams.command("enable")
@click.argument("team")
@client_options
def enable_team(team: str, server: str | None) -> int:
    """Accept the tokens of TEAM again; its runs stay paused until they are resumed."""
    from assay.client import admin as calls

    changed, _ = called(server, lambda client: calls.update_team(client, team, disabled=False))
    click.echo(f"enabled team {clean(changed.team)}")
    return 0


@admin.group(cls=Group)
def tokens() -> None:
    """Create, list and revoke tokens; for operators, and team admins in their team."""


@tokens.command("create")
@click.argument("name")
@team_option
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.RUNNER.value,
    show_default=True,
    help="Rights of the holder: read; run, pause and delete; manage the team's tokens; manage all teams.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default="90d",
    show_default=True,
    help="Lifetime of the token: hours, days or weeks such as 12h, 90d, 52w, or never.",
)
@json_client_options
def create_token(name: str, team: str, role: str, expires: str, as_json: bool, server: str | None) -> int:
    """Create a token for NAME, a person or a job, and print it once, on stdout."""
    from assay.client import admin as calls

    lifetime_s, never = _lifetime_s(expires), expires == _NEVER
    created = called(
        server,
        lambda client: calls.create_token(client, role, name, team=team, lifetime_s=lifetime_s, never_expires=never),
    )
    if as_json:
        print_document("new-token", {"secret": created.secret, **record(created.token)})
        return 0
    until = f", until {created.token.expires_at}" if created.token.expires_at else ""
    role = f"role {created.token.role}{until}"
    click.echo(
        f"token {created.token.token_id} of team {clean(created.token.team)}, {role}, shown this once:", err=True
    )
    click.echo(created.secret)
    return 0


@tokens.command("list")
@team_option
@json_client_options
def list_tokens(team: str, as_json: bool, server: str | None) -> int:
    """List the tokens of a team, oldest first, without their secrets."""
    from assay.client import admin as calls

    listed = called(server, lambda client: calls.list_tokens(client, team))
    head = ("token", "team", "role", "name", "created", "last used", "state")
    print_listing("tokens", listed, head, _token_row, as_json=as_json)
    if not (team or as_json):
        click.echo("these are your own team's tokens; operators list another team's with --team TEAM", err=True)
    return 0


@tokens.command("revoke")
@click.argument("token_id")
@json_client_options
def revoke_token(token_id: str, as_json: bool, server: str | None) -> int:
    """Revoke the token TOKEN_ID; within 60 s it is refused and its streams end."""
    from assay.client import admin as calls

    revoked = called(server, lambda client: calls.revoke_token(client, token_id))
    sentence = f"revoked token {clean(revoked.token_id)} ({clean(revoked.name)}) of team {clean(revoked.team)}"
    print_object("token", revoked, sentence, as_json=as_json)
    return 0


def _lifetime_s(text: str) -> float | None:
    """Parse a lifetime; return seconds, or None for never.

    Raises:
        InvalidInputError: The text is not a lifetime.
    """
    if text == _NEVER:
        return None
    lifetime = parse_period(text, "hdw")
    if not lifetime:
        raise InvalidInputError(
            [Problem(f"must be a time such as 12h, 90d, 52w, or never, not {text[:40]!r}", "--expires")]
        )
    return lifetime.total_seconds()


def _token_row(token: TokenInfo) -> tuple[str, ...]:
    state = f"expires {token.expires_at}" if token.expires_at else "valid"
    if token.expires_at and datetime.fromisoformat(token.expires_at) <= datetime.now(UTC):
        state = f"expired {token.expires_at}"
    if token.revoked_at:
        state = f"revoked {token.revoked_at}"
    # Stored as the hour, which may begin before the token was created.
    used = f"within the hour from {token.last_used_at}" if token.last_used_at else "never"
    return (token.token_id, token.team, token.role, token.name, token.created_at, used, state)
