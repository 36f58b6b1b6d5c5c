"""`assay serve`: run one service in the foreground."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.parsing.names import unknown_name
from assay_cli.output.streams import pass_stdout_on

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEEDS = {"embedder": "sentence_transformers", "judge": "openai", "orchestrator": "sqlalchemy"}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("service")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(service: str, arguments: tuple[str, ...]) -> None:
    """Run one service in the foreground: embedder, judge or orchestrator; `assay serve SERVICE --help` lists its flags.

    The service replaces this process, so signals reach it directly.
    """
    if service in ("-h", "--help"):
        click.echo(click.get_current_context().get_help())
        return
    if service not in _NEEDS:
        raise click.UsageError(unknown_name("service", service, _NEEDS))
    become_service(service, f"assay_{service}", arguments)


def become_service(service: str, module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process with a module of a service.

    Raises:
        SetupError: The service is not installed.
    """
    if importlib.util.find_spec(f"assay_{service}") is None or importlib.util.find_spec(_NEEDS[service]) is None:
        raise SetupError(f"the {service} is not installed: {install_hint(service)}")
    pass_stdout_on()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])  # noqa: S606 - no shell
