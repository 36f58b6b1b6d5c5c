"""The command that installs an extra of Assay, into a checkout's environment or from the package index."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

DISTRIBUTION = "assay-scoring"
"""The name of Assay's package: `assay` on PyPI belongs to another project."""
_PACKAGE = Path(__file__).resolve().parent.parent


def checkout(package: Path = _PACKAGE) -> Path | None:
    """Return the root of the checkout that this process runs from; None for an installed package.

    Args:
        package: The folder of `assay`.
    """
    root = package.parent.parent
    return root if (root / "pyproject.toml").is_file() and (root / "tools" / "install").is_file() else None


def install_hint(*extras: str, package: Path = _PACKAGE) -> str:
    """Return the command that installs extras, for the user's shell and current folder.

    Args:
        extras: Names of extras of Assay, e.g. "judge".
        package: The folder of `assay`.

    Returns:
        `pip install 'assay-scoring[judge]'`, for which pip fetches only the extra's packages if Assay is installed. In
        a checkout `.venv/bin/pip install -e '.[judge]'`, because the pip on PATH often belongs to another environment.
    """
    named = f"[{','.join(extras)}]"
    root = checkout(package)
    if root is None:
        return f"pip install {shlex.quote(f'{DISTRIBUTION}{named}')}"
    pip = _shown(Path(sys.prefix) / "bin" / "pip") if sys.prefix != sys.base_prefix else "pip"
    return f"{shlex.quote(pip)} install -e {shlex.quote(_shown(root) + named)}"


def _shown(path: Path) -> str:
    """Return the shortest form of a path in the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the current folder is gone
        return str(path)
