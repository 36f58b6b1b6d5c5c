"""Options that several commands share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.datasets import ON_BAD_CASE
from assay_cli.terminal import clean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from assay.client import Client
    from assay.datasets import DatasetInfo
    from assay.local.stack import LocalStack

__all__ = [
    "bad_case_option",
    "connect",
    "debug_option",
    "format_option",
    "json_option",
    "run_async",
    "say_what_is_left_out",
    "server_option",
]

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")

server_option = click.option(
    "--server", metavar="HOST:PORT", envvar="ASSAY_SERVER", help="Use this orchestrator instead of the local stack."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one machine-readable JSON document.")
debug_option = click.option("--debug", is_flag=True, help="Show Assay's own traceback when something fails.")
bad_case_option = click.option(
    "--on-bad-case",
    type=click.Choice(ON_BAD_CASE),
    help="Refuse a dataset with records that are wrong (the default), or skip and list them.",
)

format_option = click.option(
    "--format", "dataset_format", metavar="NAME", help="Read the dataset as this format, whatever it looks like."
)


def say_what_is_left_out(info: DatasetInfo) -> None:
    """List on stderr the records that were left out because they are wrong."""
    for problem in info.left_out:
        click.echo(f"left out: {clean(str(problem))}", err=True)
    more = info.left_out_count - len({problem.field.partition(",")[0] for problem in info.left_out})
    if more > 0:
        click.echo(f"left out: {clean(info.name)}: ... and {more:,} more", err=True)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C cancels it and comes out as KeyboardInterrupt."""
    return asyncio.run(main)


@asynccontextmanager
async def connect(server: str | None, models: Sequence[str] = ()) -> AsyncIterator[tuple[Client, LocalStack | None]]:
    """Connect to a server, or to a local stack that is started for it and stopped after.

    Args:
        server: Its address; None for the local stack.
        models: Embedding models that will be needed.
    """
    stack = None
    if server is None:
        from assay.local.home import Home
        from assay.local.stack import LocalStack

        stack = LocalStack(Home.open())
        stack.start(models=models)
    try:
        # Imported while the services start.
        from assay.client import Client
        from assay.evaluation import wait_for_stack

        async with Client(server or (stack.address if stack is not None else "")) as client:
            await wait_for_stack(client, stack)
            yield client, stack
    finally:
        if stack is not None:
            await asyncio.shield(stack.wait_until_stopped())
