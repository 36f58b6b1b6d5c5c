"""A checkout of another revision, and Python environments that join packages of two versions."""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

PRESENT = Path(__file__).resolve().parents[2]
BASE_VARIABLE = "ASSAY_COMPAT_BASE"
"""The interpreter of the base, for the tests of databases."""

_COMMAND = ("library", "cli")
_SERVICES = ("services/embedder", "services/judge", "services/orchestrator")
_SHIM_INIT = """
# What a test imports of a service has the version of its commands; `python -m` starts the other version.
__path__.append({own!r})
"""
_SHIM_MAIN = """
import os, sys
os.execv({python!r}, [{python!r}, "-P", "-m", {package!r}, *sys.argv[1:]])
"""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of Assay that can be run.

    Args:
        name: The version for people.
        checkout: Its files.
        python: An interpreter that imports this version's packages, and all others from the present environment.
    """

    name: str
    checkout: Path
    python: Path


def newest_release() -> str | None:
    """Return the newest tag that the present revision has behind it; None where there is none."""
    found = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=PRESENT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


def check_out(revision: str, folder: Path) -> Version:
    """Return a version from the repository, in a folder of its own.

    Raises:
        SystemExit: The repository has no such revision.
    """
    resolved = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        cwd=PRESENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if resolved.returncode != 0:
        raise SystemExit(f"error: BASE: the repository has no revision {revision!r}: fetch it, or name another one")
    archive = subprocess.run(
        ["git", "archive", resolved.stdout.strip()], cwd=PRESENT, capture_output=True, check=True
    ).stdout
    checkout = folder / "checkout"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(checkout, filter="data")
    return _version(revision, checkout, folder / "environment")


def present(folder: Path) -> Version:
    """Return the version of this checkout, uncommitted changes included."""
    return _version("this version", PRESENT, folder / "environment")


def join(commands: Version, services: Version, folder: Path) -> Path:
    """Return an interpreter whose `assay` is of one version, while each service that it starts is of another."""
    shims = folder / "shims"
    for root in _SERVICES:
        package = f"assay_{Path(root).name}"
        (shims / package).mkdir(parents=True)
        own = str(commands.checkout / root / package)
        (shims / package / "__init__.py").write_text(_SHIM_INIT.format(own=own))
        (shims / package / "__main__.py").write_text(_SHIM_MAIN.format(python=str(services.python), package=package))
    return _environment(folder / "environment", [shims, *(commands.checkout / root for root in _COMMAND)])


def _version(name: str, checkout: Path, environment: Path) -> Version:
    roots = [checkout / root for root in (*_COMMAND, *_SERVICES)]
    return Version(name, checkout, _environment(environment, roots))


def _environment(folder: Path, roots: list[Path]) -> Path:
    """Make an environment with some roots of Assay's packages, and every package installed here but Assay."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    installed = sysconfig.get_path("purelib")
    hidden = [str(PRESENT / root) for root in (*_COMMAND, *_SERVICES) if PRESENT / root not in roots]
    # Lines of a .pth file are paths, or statements that begin with `import`.
    (packages / "assay.pth").write_text("".join(f"{root}\n" for root in roots))
    (packages / "packages.pth").write_text(
        f"import site, sys; site.addsitedir({installed!r}); "
        f"sys.path[:] = [path for path in sys.path if path not in {hidden!r}]\n"
    )
    return folder / "bin" / "python"
