"""`assay admin audit`: list, export and verify the audit log of a shared server."""

from __future__ import annotations

import csv
import sys
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from assay.reports.atomic import atomic_writer
from assay.text.csv_text import csv_text
from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.commands.admin.calls import called
from assay_cli.exit_status import EXIT_GATE
from assay_cli.options.groups import combined
from assay_cli.options.shared import client_options
from assay_cli.output.documents import print_line, record
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.client.client import Client
    from assay.identity.audit import StoredEntry

_COLUMNS = (
    "team", "sequence", "at", "action", "resource", "outcome", "actor", "actor_name", "actor_team", "role", "address",
    "request_id", "count", "digest",
)  # fmt: skip


_filters = combined(
    click.option(
        "--team", metavar="TEAM", default="", help="Only entries of this team; default: all that you may see."
    ),
    click.option("--actor", metavar="TOKEN_ID", default="", help="Only actions of this token; default: all."),
    click.option(
        "--action",
        metavar="ACTION",
        default="",
        help="Only this action, such as delete-run or login; default: all.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        default="",
        help="Only entries from this time on, such as 2026-05-01T09:30:00Z; default: all.",
    ),
    click.option("--until", metavar="TIME", default="", help="Only entries before this time; default: all."),
)


@click.group(cls=Group)
def audit() -> None:
    """Show, export and verify the audit log; for operators, and for team admins in their team."""


@audit.command("list")
@_filters
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number of entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of a table.")
@client_options
def list_entries(limit: int, as_json: bool, server: str | None, **conditions: str) -> int:
    """List the entries, newest first."""
    entries = called(server, lambda client: _entries(client, conditions, limit))
    if as_json:
        for stored in entries:
            print_line("audit-entry", _document(stored))
        return 0
    head = ("at", "team", "action", "resource", "outcome", "by", "role", "from")
    click.echo(table([head, *map(_row, entries)]))
    return 0


@audit.command()
@_filters
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="JSON lines or CSV.",
)
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="Output file; default: stdout.")
@client_options
def export(file_format: str, output: Path | None, server: str | None, **conditions: str) -> int:
    """Write all entries as JSON lines or CSV, newest first, with the digests that `verify` checks."""
    from assay.client.audit import AuditFilter, list_audit

    async def write(client: Client) -> int:
        count = 0
        with nullcontext(sys.stdout) if output is None else atomic_writer(output, option="--output") as out:
            put = _csv_writer(out) if file_format == "csv" else _line_writer(out)
            async with aclosing(list_audit(client, AuditFilter(**conditions))) as entries:
                async for stored in entries:
                    put(stored)
                    count += 1
        return count

    count = called(server, write)
    if output is not None:
        click.echo(f"wrote {count:,} entries to {clean(str(output))}")
    return 0


@audit.command()
@click.option("--team", metavar="TEAM", default="", help="Only entries of this team; default: all that you may see.")
@client_options
def verify(team: str, server: str | None) -> int:
    """Check that no entry was changed or removed; exit with 1 otherwise.

    Entries removed at the end leave no gap: compare the newest digests with an earlier export.
    """
    from assay.client.audit import AuditFilter, ChainCheck, list_audit

    async def check(client: Client) -> ChainCheck:
        checked = ChainCheck()
        async with aclosing(list_audit(client, AuditFilter(team=team))) as entries:
            async for stored in entries:
                checked.add(stored)
        checked.finish()
        return checked

    checked = called(server, check)
    rows = [(name, f"{stored.sequence:,}", stored.digest) for name, stored in sorted(checked.newest.items())]
    click.echo(table([("team", "newest entry", "digest"), *rows]))
    for problem in checked.problems:
        click.echo(clean(problem), err=True)
    click.echo(f"{checked.count:,} entries: {'changed' if checked.problems else 'unchanged'}", err=True)
    return EXIT_GATE if checked.problems else 0


async def _entries(client: Client, conditions: dict[str, str], limit: int) -> list[StoredEntry]:
    from assay.client.audit import AuditFilter, list_audit

    async with aclosing(list_audit(client, AuditFilter(**conditions), limit)) as entries:
        return [stored async for stored in entries]


def _document(stored: StoredEntry) -> dict[str, Any]:
    values = {"sequence": stored.sequence, "at": stored.at, "digest": stored.digest, **record(stored.entry)}
    return {name: values[name] for name in _COLUMNS}


def _line_writer(out: IO[str]) -> Callable[[StoredEntry], None]:
    return lambda stored: print_line("audit-entry", _document(stored), out)


def _csv_writer(out: IO[str]) -> Callable[[StoredEntry], None]:
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    return lambda stored: writer.writerow(
        ["" if value is None else csv_text(str(value)) for value in _document(stored).values()]
    )


def _row(stored: StoredEntry) -> tuple[str, ...]:
    entry = stored.entry
    times = f" ({entry.count:,} times)" if entry.count > 1 else ""
    by = f"{entry.actor} ({entry.actor_name})" if entry.actor else "-"
    return (
        stored.at, entry.team, entry.action, entry.resource or "-", entry.outcome + times, by, entry.role or "-",
        entry.address or "-",
    )  # fmt: skip
