"""Options that several commands share."""

from __future__ import annotations

import gc
import json
import os
import re
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from assay.datasets.choices import ON_BAD_CASE
from assay.errors import AssayError, InvalidInputError, NotFoundError, Problem, UnavailableError
from assay.parsing.names import nearest
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from assay.client.client import Client
    from assay.datasets import DatasetInfo
    from assay.local_stack.stack import LocalStack

_NEW_OBJECTS = 50_000
"""Collection threshold while a command runs: the user's agent may create cyclic garbage."""

_PERIODS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


_MOST = 1000


async def with_suggestion(client: Client, error: NotFoundError, run_ids: Sequence[str]) -> NotFoundError:
    """Return the error for an unknown run, extended by the closest id if there is one.

    Args:
        client: Lists the stored runs.
        error: The error of the command's call.
        run_ids: The run ids on the command line, in order.
    """
    if error.reason != "RUN_NOT_FOUND" or not run_ids:
        return error
    try:
        listed = [run.run_id for run in await client.list_runs(limit=_MOST)]
    except AssayError:
        return error
    unknown = next((run_id for run_id in run_ids if run_id not in listed), None)
    if unknown is None:
        return error
    close = nearest(unknown, listed)
    if close is None:
        return error
    return NotFoundError(f"there is no run {unknown!r}: did you mean {close!r}?", reason=error.reason)


def _origin(ctx: click.Context, param: click.Parameter) -> str:
    """Return the source of a parameter's value: the name of the variable or of the option."""
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return param.opts[0]


def check_address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the service address, checked; callback of an option.

    Raises:
        InvalidInputError: The address is a URL, or lacks a port or a valid host; names the variable or the option.
    """
    if not value:
        return value
    from assay.http.addresses import service_address_problem  # imported here: few commands get an address

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
# `failures.show_error` reads it from the command line.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show Assay's own traceback of a failure."
)


def client_options(command: F) -> F:
    """Add --server and --debug, the options of a command that calls an orchestrator."""
    return server_option(debug_option(command))


def json_client_options(command: F) -> F:
    """Add --json, --server and --debug."""
    return json_option(client_options(command))


overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a value of the spec, e.g. agent.timeout=5s; repeatable.",
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
    help="Format of the dataset; default: the spec's, else recognised.",
)

prices_option = click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Price list for a judge that this command starts, as YAML or JSON; default: Assay's list.",
)

map_option = click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=NAME",
    help="Name of a field in the dataset, e.g. input=frage; repeatable.",
)


def parse_period(text: str, units: str) -> timedelta | None:
    """Parse a number with a unit, such as 30d; return None for any other text.

    Args:
        text: The text.
        units: The accepted units, of m, h, d and w.
    """
    match = re.fullmatch(rf"(\d{{1,5}})([{units}])", text, re.ASCII)
    return timedelta(**{_PERIODS[match[2]]: int(match[1])}) if match else None


def use_prices(path: Path | None, server: str | None) -> None:
    """Set the price list of the judge that this command starts.

    Raises:
        InvalidInputError: The judge runs on a server.
    """
    if path is None:
        return
    if server is not None:
        message = "applies to a judge that this command starts: on a server the operator sets the judge's prices"
        raise InvalidInputError([Problem(message, "--prices")])
    from assay.judging.prices import VARIABLE  # imported here: it imports the YAML parser

    os.environ[VARIABLE] = str(path.resolve())


def field_map(mapping: Sequence[str]) -> dict[str, str]:
    """Return the mapping that --map gives, Assay's field to the dataset's; an empty name switches a field off.

    Raises:
        InvalidInputError: A value is not FIELD=NAME.
    """
    return pairs_of(mapping, "--map", "FIELD=NAME, such as input=question", key=r"\w[\w -]*")


def pairs_of(values: Sequence[str], option: str, form: str, *, key: str = ".+") -> dict[str, str]:
    """Parse the values of an option of the form KEY=VALUE.

    Args:
        values: The values.
        option: Name of the option, for error messages.
        form: The expected form, with an example.
        key: Regular expression of a key.

    Raises:
        InvalidInputError: A value has another form; lists every problem.
    """
    pairs = {value: value.partition("=") for value in values}
    wrong = [value for value, (name, sign, _) in pairs.items() if not sign or not re.fullmatch(key, name.strip())]
    if wrong:
        raise InvalidInputError([Problem(f"must be {form}, not {value!r}", option) for value in wrong])
    return {name.strip(): text.strip() for name, _, text in pairs.values()}


def dataset_overrides(dataset_format: str | None, mapping: Sequence[str], on_bad_case: str | None) -> tuple[str, ...]:
    """Return the overrides of a spec that --format, --map and --on-bad-case stand for."""
    overrides = [f"map.{name}={json.dumps(source)}" for name, source in field_map(mapping).items()]
    if dataset_format is not None:
        overrides.append(f"format={json.dumps(dataset_format)}")
    if on_bad_case is not None:
        overrides.append(f"on_bad_case={on_bad_case}")
    return tuple(overrides)


def print_warnings(info: DatasetInfo) -> None:
    """Print the warnings on a dataset, and the bad records that were left out, on stderr."""
    for warning in info.warnings:
        click.echo(f"warning: {clean(str(warning))}", err=True)
    list_left_out_records(info)


def list_left_out_records(info: DatasetInfo) -> None:
    """List the bad records that were left out, on stderr."""
    for problem in info.left_out:
        click.echo(f"left out: {clean(str(problem))}", err=True)
    more = info.left_out_count - len({problem.field.partition(",")[0] for problem in info.left_out})
    if more > 0:
        click.echo(f"left out: {clean(info.name)}: ... and {more:,} more", err=True)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. Ctrl-C and SIGTERM cancel it and raise KeyboardInterrupt."""
    import asyncio
    import signal

    from assay.agent_host.concurrency.event_loop import run_event_loop
    from assay_cli.agent_process import isolate_forks

    gc.freeze()  # imported objects live as long as the process
    gc.set_threshold(_NEW_OBJECTS)

    async def stoppable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGTERM)  # a second SIGTERM kills the command
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        return await main

    isolate_forks()
    try:
        return run_event_loop(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def call_orchestrator(server: str | None, call: Callable[[Client], Awaitable[T]]) -> T:
    """Connect to an orchestrator, make a call and return its result.

    Args:
        server: Address of the server; None for the local stack.
        call: The call.
    """

    async def main() -> T:
        async with connect(server) as (client, _):
            return await call(client)

    return run_async(main())


@asynccontextmanager
async def connect(
    server: str | None,
    models: Sequence[str] = (),
    *,
    judge_keys: Sequence[str] | None = None,
    stack: LocalStack | None = None,
    on_listening: Callable[[Client], None] | None = None,
) -> AsyncIterator[tuple[Client, LocalStack | None]]:
    """Connect to a server, or to a local stack that is started here and stopped on exit.

    Args:
        server: Address of the server; None for the local stack.
        models: Embedding models that the run needs.
        judge_keys: Variables with the judge's API keys; None if no judge is needed.
        stack: A stack that was started early; None to start one here.
        on_listening: Called when a local orchestrator accepts connections, before it is ready.
    """
    import asyncio

    if server is None:
        from assay.local_stack.home import Home
        from assay.local_stack.stack import LocalStack

        stack = stack or LocalStack(Home.open())
        stack.start(models=models, judge=judge_keys is not None, judge_keys=judge_keys or ())
    try:
        # Imported here: the services start meanwhile.
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
    """Wait until the orchestrator of a server is ready.

    Raises:
        UnavailableError: It does not answer; names the source of the address.
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
    """Return the run ids on the command line, in order."""
    context = click.get_current_context(silent=True)
    parameters = context.params if context is not None else {}
    named = (*map(parameters.get, ("run_id", "resume_id", "failed_of")), *parameters.get("run_ids", ()))
    return [run_id for run_id in named if run_id]


def _restarter(stack: LocalStack | None) -> Callable[[], Awaitable[None]] | None:
    """Return a function that restarts killed services of a local stack; None for a server."""
    if stack is None:
        return None

    async def restart() -> None:
        stack.restart_killed()

    return restart
