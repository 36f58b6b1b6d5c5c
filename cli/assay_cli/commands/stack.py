"""`assay up` and `assay down`: start and stop a lasting local stack."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from assay.metrics.core.info import DEFAULT_MODEL
from assay_cli.options.shared import debug_option, prices_option, run_async, use_prices
from assay_cli.output.waiting import show_waiting

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option("--no-embedder", is_flag=True, help="Start the orchestrator without an embedder.")
@click.option("--judge", is_flag=True, help="Start a judge too, with the provider keys of the current environment.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help=f"Embedding model to load; repeatable; default: {DEFAULT_MODEL}.",
)
@prices_option
@debug_option
def up(no_embedder: bool, judge: bool, models: tuple[str, ...], prices: Path | None) -> int:
    """Start the local stack and keep it running, so that later runs start faster."""
    use_prices(prices, None)

    async def main() -> int:
        from assay.client.client import Client
        from assay.client.run_driver import STARTUP_TIMEOUT_S, wait_for_stack
        from assay.local_stack.home import Home
        from assay.local_stack.stack import LocalStack
        from assay.rpc.channel import open_channel, wait_for_ready

        home = Home.open()
        stack = LocalStack(home, stay=True)
        stack.start(models=() if no_embedder else models or (DEFAULT_MODEL,), judge=judge)
        needed = {} if no_embedder else {"embedder": "assay.embedder.v1.EmbedderService"}
        needed |= {"judge": "assay.judge.v1.JudgeService"} if judge else {}
        try:
            async with Client(stack.address) as client:
                await show_waiting(wait_for_stack(client, stack), "starting the local orchestrator")
            for service, name in needed.items():
                async with open_channel(f"unix:{home.socket(service)}") as channel:
                    is_ready = wait_for_ready(channel, name, STARTUP_TIMEOUT_S)
                    await show_waiting(is_ready, f"starting the local {service}")
        finally:
            await stack.wait_until_stopped()
        click.echo(f"the local stack is up at {stack.address}; stop it with `assay down`")
        return 0

    return run_async(main())


@click.command()
@debug_option
def down() -> int:
    """Stop the local stack; running runs are paused and can be resumed."""
    from assay.local_stack.home import Home
    from assay.local_stack.stack import running_services, stop_services

    home = Home.open()
    stopped = stop_services(home)
    if not stopped:
        click.echo("the local stack is not running")
        return 0

    async def wait() -> None:
        async with asyncio.timeout(20):
            while running_services(home):  # noqa: ASYNC110 - another process exits; there is nothing to await
                await asyncio.sleep(0.05)

    try:
        asyncio.run(wait())
    except TimeoutError:
        click.echo(f"still stopping: {', '.join(running_services(home))}", err=True)
        return 3
    click.echo(f"stopped: {', '.join(stopped)}")
    return 0
