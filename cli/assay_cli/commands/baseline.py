"""`assay baseline`: names for the runs that others are compared with."""

from __future__ import annotations

import dataclasses

import click

from assay.model.baseline import DEFAULT_BASELINE
from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.options import connect, debug_option, json_option, print_document, run_async, server_option
from assay_cli.output.terminal import table
from assay_cli.run_options import find_run

_name_option = click.option(
    "--name", metavar="NAME", default=DEFAULT_BASELINE, help=f"Name of the baseline; default: {DEFAULT_BASELINE}."
)


@click.group(cls=Group)
def baseline() -> None:
    """Name the runs that `assay compare` and `assay run --against` compare with."""


@baseline.command("set")
@click.argument("run")
@_name_option
@json_option
@server_option
@debug_option
def set_(run: str, name: str, as_json: bool, server: str | None) -> int:
    """Give RUN the name, taking it from the run that had it."""
    from assay.client.baselines import set_baseline
    from assay.model.baseline import Baseline

    async def main() -> Baseline:
        async with connect(server) as (client, _):
            return await set_baseline(client, name, await find_run(client, run))

    found = run_async(main())
    if as_json:
        print_document(dataclasses.asdict(found))
    else:
        click.echo(f"{clean(found.name)} is run {clean(found.run_id)}")
    return 0


@baseline.command("list")
@json_option
@server_option
@debug_option
def list_(as_json: bool, server: str | None) -> int:
    """List the baselines with their runs."""
    from assay.client.baselines import list_baselines
    from assay.model.baseline import Baseline

    async def main() -> list[Baseline]:
        async with connect(server) as (client, _):
            return await list_baselines(client)

    found = run_async(main())
    if as_json:
        print_document([dataclasses.asdict(each) for each in found])
    elif not found:
        click.echo("there is no baseline: name one with `assay baseline set RUN`")
    else:
        rows = [(each.name, each.run_id + ("" if each.exists else " (deleted)"), each.set_at) for each in found]
        click.echo(table([("name", "run", "set at"), *rows]))
    return 0


@baseline.command("delete")
@click.argument("name")
@server_option
@debug_option
def delete(name: str, server: str | None) -> int:
    """Forget NAME; its run stays."""
    from assay.client.baselines import delete_baseline

    async def main() -> None:
        async with connect(server) as (client, _):
            await delete_baseline(client, name)

    run_async(main())
    click.echo(f"deleted baseline {clean(name)}; its run is kept")
    return 0
