"""`assay baseline`: names for the runs that other runs are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.options.cases import find_run
from assay_cli.options.shared import call_orchestrator, client_options, json_client_options
from assay_cli.output.documents import print_document, print_listing, record

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.baseline import Baseline


@click.group(cls=Group)
def baseline() -> None:
    """Name the runs that `assay compare` and `assay run --against` compare with."""


@baseline.command("set")
@click.argument("run")
@click.argument("name", required=False)
@click.option("--name", "named", metavar="NAME", help="Name of the baseline; default: the name of the run's spec.")
@json_client_options
def set_(run: str, name: str | None, named: str | None, as_json: bool, server: str | None) -> int:
    """Make RUN the baseline of its spec, or name it NAME; a name moves from its previous run.

    \b
        assay baseline set latest
        assay baseline set latest release-1
    """
    if None not in (name, named) and name != named:
        raise click.UsageError(f"{name} and --name {named} are two names: leave one out")
    replaced, current = call_orchestrator(server, lambda client: _set(client, run, name or named or ""))
    if as_json:
        previous = replaced.run_id if replaced is not None else None
        print_document("baseline", {**record(current), "previous_run_id": previous})
        return 0
    click.echo(f"{clean(current.name)} is run {clean(current.run_id)}")
    if replaced is not None:
        click.echo(f"{clean(current.name)} was {replaced.description}")
    return 0


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The previous run of a baseline."""

    run_id: str
    description: str


async def _set(client: Client, reference: str, name: str) -> tuple[_Replaced | None, Baseline]:
    """Set a baseline; return its previous run, if it was another, and the new baseline."""
    from assay.client.baselines import find_baseline, set_baseline

    run_id = await find_run(client, reference)
    name = name or (await client.get_run(run_id, partial=False)).spec.baseline_name
    before = await find_baseline(client, name)
    replaced = await _replaced(client, before) if before is not None and before.run_id != run_id else None
    return replaced, await set_baseline(client, name, run_id)


async def _replaced(client: Client, before: Baseline) -> _Replaced:
    """Describe the run of a baseline: it may belong to another project, which would lose its baseline."""
    from assay.errors import NotFoundError

    try:
        run = await client.get_run(before.run_id, partial=False)
    except NotFoundError:
        return _Replaced(before.run_id, f"run {clean(before.run_id)}, which was deleted")
    spec, created = clean(run.spec.spec_name or run.spec.name), run.created_at[:19].replace("T", " ")
    return _Replaced(before.run_id, f"run {clean(before.run_id)} of spec {spec}, created {created}")


@baseline.command("list")
@json_client_options
def list_(as_json: bool, server: str | None) -> int:
    """List the baselines with their runs."""
    from assay.client.baselines import list_baselines

    none = "no baselines yet: name one with `assay baseline set RUN`"
    baselines = call_orchestrator(server, list_baselines)
    print_listing("baselines", baselines, ("name", "run", "set at"), _row, as_json=as_json, if_empty=none)
    return 0


def _row(entry: Baseline) -> tuple[str, ...]:
    return (entry.name, entry.run_id + ("" if entry.exists else " (deleted)"), entry.set_at)


@baseline.command("delete")
@click.argument("name")
@client_options
def delete(name: str, server: str | None) -> int:
    """Delete the baseline NAME; its run is kept."""
    from assay.client.baselines import delete_baseline

    call_orchestrator(server, lambda client: delete_baseline(client, name))
    click.echo(f"deleted baseline {clean(name)}; its run is kept")
    return 0
