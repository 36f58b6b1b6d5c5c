"""`assay serve`: one service in the foreground."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from assay.errors import SetupError
from assay.names import unknown_name

__all__ = ["serve"]

_MODULES = {"embedder": "assay_embedder", "orchestrator": "assay_orchestrator"}
_NEEDS = {"embedder": "sentence_transformers", "orchestrator": "sqlalchemy"}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("service")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(service: str, arguments: tuple[str, ...]) -> None:
    """Run one service (embedder or orchestrator) in the foreground; `assay serve SERVICE --help` lists its flags.

    The service takes this process's place, so signals reach it directly.
    """
    if service in ("-h", "--help"):
        click.echo(click.get_current_context().get_help())
        return
    if service == "judge":
        raise click.UsageError("the judge service is not part of this version")
    if service not in _MODULES:
        raise click.UsageError(unknown_name("service", service, _MODULES))
    if importlib.util.find_spec(_MODULES[service]) is None or importlib.util.find_spec(_NEEDS[service]) is None:
        raise SetupError(f"the {service} is not installed: pip install 'assay[{service}]'")
    os.execv(sys.executable, [sys.executable, "-P", "-m", _MODULES[service], *arguments])  # noqa: S606 - no shell
