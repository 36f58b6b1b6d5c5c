"""`assay datasets`: show how a file is read; list, show, read back and delete stored datasets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean, json_text, shorten
from assay_cli.commands import Group
from assay_cli.commands.datasets.inspection import inspect
from assay_cli.options.shared import call_orchestrator, client_options, connect, json_client_options, run_async
from assay_cli.output.documents import print_document, print_listing, record
from assay_cli.output.terminal import confirm_deletion, size_text, table

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.stored_dataset import StoredDataset

_ID = re.compile(r"[0-9a-f]{32}")
_NAME_WIDTH = 40
_NOTE_WIDTH = 60
_HEAD = ("dataset", "name", "cases", "size", "runs", "uploaded", "note")


@click.group(cls=Group)
def datasets() -> None:
    """Show how a file is read; list, show, read back and delete stored datasets."""


datasets.add_command(inspect)


@datasets.command("list")
@click.option("--name", metavar="NAME", help="Only the versions of this name, the current one first; default: all.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of datasets to list."
)
@json_client_options
def list_(name: str | None, limit: int, server: str | None, as_json: bool) -> int:
    """List stored datasets, the last uploaded first: one line for each name and version.

    \b
        assay datasets list
        assay datasets list --name qa.jsonl
    """
    stored = call_orchestrator(server, lambda client: client.list_datasets(limit, name=name or ""))
    empty = "no dataset has this name" if name else "no datasets yet: `assay run SPEC` stores one"
    print_listing("datasets", stored, _HEAD, _row, as_json=as_json, if_empty=empty)
    return 0


@datasets.command()
@click.argument("dataset")
@json_client_options
def show(dataset: str, server: str | None, as_json: bool) -> int:
    """Show a stored dataset: DATASET is an id, or a name for its current version.

    \b
        assay datasets show qa.jsonl
    """
    stored = call_orchestrator(server, lambda client: _find(client, dataset))
    if as_json:
        print_document("stored-dataset", record(stored))
        return 0
    lines = [
        ("dataset", stored.dataset_id),
        ("name", clean(stored.name)),
        ("cases", f"{stored.case_count:,}"),
        ("size", size_text(stored.size_bytes)),
        ("runs", f"{stored.run_count:,}"),
        ("created", _moment(stored.created_at)),
        ("uploaded", _moment(stored.uploaded_at)),
        ("parents", clean(" ".join(stored.parent_ids))),
        ("note", clean(stored.note)),
    ]
    click.echo("\n".join(f"{label:<9} {text}" for label, text in lines if text))
    return 0


@datasets.command()
@click.argument("dataset")
@client_options
def cases(dataset: str, server: str | None) -> int:
    """Print the cases of a stored dataset as JSON Lines, a file that `assay run` reads.

    DATASET is an id, or a name for its current version. Recorded verdicts are left out: they belong to a run.

    \b
        assay datasets cases qa.jsonl
    """

    async def main() -> int:
        from assay.datasets.cases.case_record import case_record

        async with connect(server) as (client, _):
            stored = await _find(client, dataset)
            async for case in client.list_cases(stored.dataset_id):
                click.echo(json_text(case_record(case)))
        return 0

    return run_async(main())


@datasets.command()
@click.argument("dataset")
@click.option("--dry-run", is_flag=True, help="Check whether the dataset can be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")
@json_client_options
def delete(dataset: str, dry_run: bool, yes: bool, server: str | None, as_json: bool) -> int:
    """Delete a stored dataset with its cases, under all its names.

    DATASET is an id, or a name for its current version. A dataset that runs use is kept: delete the runs first. Deleted
    data cannot be restored.

    \b
        assay datasets delete qa.jsonl
    """

    async def main() -> int:
        async with connect(server) as (client, _):
            found = await _find(client, dataset)
            stored = await client.delete_dataset(found.dataset_id, validate_only=True)
            click.echo(table([_HEAD, _row(stored)]), err=as_json)
            is_deleted = not dry_run
            if is_deleted:
                if not yes and (refusal := confirm_deletion(f"dataset {clean(stored.name)}")) is not None:
                    return refusal
                await client.delete_dataset(stored.dataset_id)
        if as_json:
            print_document("dataset-deletion", {"deleted": is_deleted, "dataset": record(stored)})
        elif is_deleted:
            click.echo(f"deleted dataset {stored.dataset_id}")
        return 0

    return run_async(main())


async def _find(client: Client, reference: str) -> StoredDataset:
    """Return the dataset of an id, or the current version of a name.

    Raises:
        NotFoundError: There is none.
    """
    if not _ID.fullmatch(reference):
        for current in await client.list_datasets(1, name=reference):
            return current
    return await client.get_dataset(reference)


def _row(stored: StoredDataset) -> tuple[str, ...]:
    return (
        stored.dataset_id,
        shorten(stored.name, _NAME_WIDTH),
        f"{stored.case_count:,}",
        size_text(stored.size_bytes),
        f"{stored.run_count:,}",
        _moment(stored.uploaded_at),
        shorten(stored.note, _NOTE_WIDTH),
    )


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")
