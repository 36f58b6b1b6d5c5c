"""Options that several commands share."""

from __future__ import annotations

import gc
import json
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from assay.datasets.choices import ON_BAD_CASE
from assay.errors import InvalidInputError, NotFoundError, Problem, UnavailableError
from assay.text.unsafe_text import clean, json_text
from assay_cli.run_suggestions import with_suggestion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from typing import TextIO

    from assay.client.client import Client
    from assay.datasets import DatasetInfo
    from assay.local_stack.stack import LocalStack

_NEW_OBJECTS = 50_000
"""Garbage is looked for after as many more objects: an agent of the user may make some."""
_FIELD = re.compile(r"\w[\w -]*")

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


def _origin(ctx: click.Context, param: click.Parameter) -> str:
    """Return what gave a parameter its value, as users name it: the variable, or the option."""
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return param.opts[0]


def check_address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return an address of a service that can be dialled; the callback of an option.

    Raises:
        InvalidInputError: It is a URL, has no port, or no host that can be dialled; names the variable or the option.
    """
    if not value:
        return value
    from assay.http.addresses import service_address_problem  # imported here: few commands are given an address

    if problem := service_address_problem(value):
        raise InvalidInputError([Problem(problem, _origin(ctx, param))])
    return value


server_option = click.option(
    "--server",
    metavar="HOST:PORT",
    envvar="ASSAY_SERVER",
    callback=check_address,
    help="Orchestrator to use; default: $ASSAY_SERVER, else the local stack.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one machine-readable JSON document.")
# Read from the command line where an error is printed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show Assay's own traceback of a failure."
)
bad_case_option = click.option(
    "--on-bad-case",
    type=click.Choice(ON_BAD_CASE),
    help="Refuse a dataset with bad records, or skip and list them; default: refuse, unless the spec says skip.",
)

format_option = click.option(
    "--format",
    "dataset_format",
    metavar="NAME",
    help="Format of the dataset; default: recognised, unless the spec names one.",
)

prices_option = click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Prices of a judge that this command starts, as YAML or JSON; default: Assay's list prices.",
)

map_option = click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=NAME",
    help="Which name a field has in the dataset, e.g. input=frage; repeatable.",
)


def use_prices(path: Path | None, server: str | None) -> None:
    """Have the judge that this command starts use a file of prices.

    Raises:
        InvalidInputError: The judge is another machine's.
    """
    if path is None:
        return
    if server is not None:
        message = "is for a judge that is started here: on a server its operator gives the judge its prices"
        raise InvalidInputError([Problem(message, "--prices")])
    from assay.judging.prices import VARIABLE  # imported here: it reads YAML, which most commands do not

    os.environ[VARIABLE] = str(path.resolve())


def field_map(mapping: Sequence[str]) -> dict[str, str]:
    """Return what --map says, Assay's field to the dataset's; an empty name switches a field off.

    Raises:
        InvalidInputError: Some value is not FIELD=NAME.
    """
    pairs = [item.partition("=") for item in mapping]
    wrong = [
        item
        for item, (name, equals, _) in zip(mapping, pairs, strict=True)
        if not equals or not _FIELD.fullmatch(name.strip())
    ]
    if wrong:
        raise InvalidInputError(
            [Problem(f"must be FIELD=NAME, such as input=question, not {item!r}", "--map") for item in wrong]
        )
    return {name.strip(): source.strip() for name, _, source in pairs}


def dataset_overrides(dataset_format: str | None, mapping: Sequence[str], on_bad_case: str | None) -> tuple[str, ...]:
    """Return the changes to a spec that --format, --map and --on-bad-case stand for."""
    overrides = [f"map.{name}={json.dumps(source)}" for name, source in field_map(mapping).items()]
    if dataset_format is not None:
        overrides.append(f"format={json.dumps(dataset_format)}")
    if on_bad_case is not None:
        overrides.append(f"on_bad_case={on_bad_case}")
    return tuple(overrides)


def say_what_is_left_out(info: DatasetInfo) -> None:
    """List on stderr the records that were left out because they are wrong."""
    for problem in info.left_out:
        click.echo(f"left out: {clean(str(problem))}", err=True)
    more = info.left_out_count - len({problem.field.partition(",")[0] for problem in info.left_out})
    if more > 0:
        click.echo(f"left out: {clean(info.name)}: ... and {more:,} more", err=True)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C and SIGTERM cancel it and come out as KeyboardInterrupt."""
    import asyncio
    import signal

    from assay.agent_host.concurrency.event_loop import run_event_loop
    from assay_cli.agent_process.forks import isolate_forks

    gc.freeze()  # what is imported stays
    gc.set_threshold(_NEW_OBJECTS)

    async def stoppable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGTERM)  # a second one ends the command at once
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        return await main

    isolate_forks()
    try:
        return run_event_loop(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@asynccontextmanager
async def connect(
    server: str | None,
    models: Sequence[str] = (),
    *,
    judge_keys: Sequence[str] | None = None,
    stack: LocalStack | None = None,
    on_listening: Callable[[Client], None] | None = None,
) -> AsyncIterator[tuple[Client, LocalStack | None]]:
    """Connect to a server, or to a local stack that is started for it and stopped after.

    Args:
        server: Its address; None for the local stack.
        models: Embedding models that will be needed.
        judge_keys: The variables with the keys of the judge that will be needed; None where none will.
        stack: What was started early; None to start the local stack here.
        on_listening: Called when a local orchestrator takes connections, before it is ready.
    """
    import asyncio

    if server is None:
        from assay.local_stack.home import Home
        from assay.local_stack.stack import LocalStack

        stack = stack or LocalStack(Home.open())
        stack.start(models=models, judge=judge_keys is not None, judge_keys=judge_keys or ())
    try:
        # Imported while the services start.
        from assay.client.client import Client
        from assay.client.run_driver import wait_for_stack
        from assay.client.service_start import wait_for_downloads
        from assay_cli.output.waiting import show_waiting

        address = server or (stack.address if stack is not None else "")
        async with Client(address, on_lost=_restarter(stack)) as client:
            if server is None:
                waiting = wait_for_stack(client, stack, on_listening)
                await show_waiting(waiting, "starting the local orchestrator")
            else:
                await reach(client)
            if stack is not None and (missing := stack.models_to_download):
                await show_waiting(wait_for_downloads(stack), f"loading the embedding model {' and '.join(missing)}")
            try:
                yield client, stack
            except NotFoundError as error:
                raise await with_suggestion(client, error, _asked_runs()) from None
    finally:
        if stack is not None:
            await asyncio.shield(stack.wait_until_stopped())


async def reach(client: Client) -> None:
    """Wait until the orchestrator of a server takes work.

    Raises:
        UnavailableError: It does not answer; names what gave the address.
    """
    from assay.client.run_driver import wait_for_stack
    from assay_cli.output.waiting import show_waiting

    context = click.get_current_context()
    option = next(param for param in context.command.params if param.name == "server")
    origin = _origin(context, option)
    place = f"{client.address} ({origin})"
    try:
        await show_waiting(wait_for_stack(client, None), f"waiting for the orchestrator at {place}", in_logs=True)
    except UnavailableError as error:
        remedy = f"unset {origin}" if origin == option.envvar else f"leave out {origin}"
        raise UnavailableError(
            f"no orchestrator answers at {place}: check that it runs and that the address is right, or {remedy} to use "
            "the local stack; with TLS, `assay login --tls-ca FILE` or ASSAY_TLS_CA must name its authorities",
            reason=error.reason,
        ) from error


def _asked_runs() -> list[str]:
    """Return the run ids that the present command was given, in order."""
    context = click.get_current_context(silent=True)
    given = context.params if context is not None else {}
    named = (*map(given.get, ("run_id", "resume_id", "failed_of")), *given.get("run_ids", ()))
    return [run_id for run_id in named if run_id]


def _restarter(stack: LocalStack | None) -> Callable[[], Awaitable[None]] | None:
    """Return what starts killed services of a local stack again; None for a server."""
    if stack is None:
        return None

    async def restart() -> None:
        stack.restart_killed()

    return restart


def print_document(document: object, file: TextIO | None = None) -> None:
    """Print a document for programs, on lines for people who look at it."""
    click.echo(json_text(document, indent=1), file=file)


def print_line(document: object, file: TextIO | None = None) -> None:
    """Print a document on a line of its own, at once."""
    click.echo(json_text(document), file=file)
