"""The environment that a local service took from the command that started it.

Another command may have other keys, prices or precision. A record next to the service's socket distinguishes them by
salted digests, so that no key and no setting is written anywhere.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""Where the providers' keys usually are."""

_FILES = ("ASSAY_JUDGE_LIMITS", "ASSAY_JUDGE_PRICES", "ASSAY_JUDGE_REPLAY", "ASSAY_JUDGE_RUBRIC")

_VOLATILE = frozenset({
    "_", "ASSAY_IDLE_S", "COLUMNS", "GRPC_VERBOSITY", "LINES", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST", "SHLVL",
    # the terminal or notebook that a command runs in
    "JPY_PARENT_PID", "JPY_SESSION_NAME", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "STY", "TERM_SESSION_ID", "TMUX",
    "TMUX_PANE", "WINDOW", "WINDOWID", "XDG_SESSION_ID",
})  # fmt: skip
"""Variables that differ between commands without a meaning for services; the folder counts under its own name."""

_IDENTITY = ("version of Assay", "interpreter", "current folder")


def environment_of_service() -> dict[str, str]:
    """Return the environment of a service that this process starts, with what else it takes from this process."""
    identity = (__version__, sys.executable, _current_folder())
    return {**os.environ, **dict(zip(_IDENTITY, identity, strict=True))}


def record_variables(path: Path, environment: Mapping[str, str]) -> None:
    """Store the record of a starting service's environment.

    Args:
        path: The record, readable only for its owner.
        environment: The service's environment.
    """
    salt = os.urandom(16).hex()
    digests = {name: _digest(salt, name, environment[name]) for name in sorted(_counted(environment))}
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump({"salt": salt, "digests": digests}, file)


def changed_variables(
    path: Path, environment: Mapping[str, str], prefix: str = "", keys: Sequence[str] = ()
) -> list[str]:
    """Return the sorted variables in which a running service differs from one that this environment would start.

    A key that is not set here does not count: the service may have one. Settings count whether they are set or not,
    including the files that they name.

    Args:
        path: The running service's record.
        environment: The environment of the command that needs the service.
        prefix: The prefix of the variables that count; empty for all.
        keys: Further variables with the keys that it needs.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        salt, digests = str(record["salt"]), dict(record["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        salt, digests = "", {}
    names = {name for name in _counted(environment) | _counted(digests) if name.startswith(prefix)}
    names |= {name for name in keys if environment.get(name)}
    return sorted(name for name in names if not _is_same(digests.get(name), salt, name, environment.get(name, "")))


def _counted(names: Mapping[str, object]) -> set[str]:
    return {name for name in names if names[name] and name not in _VOLATILE}


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


def _is_same(recorded: object, salt: str, name: str, value: str) -> bool:
    import hmac

    return isinstance(recorded, str) and bool(value) and hmac.compare_digest(recorded, _digest(salt, name, value))


def _digest(salt: str, name: str, value: str) -> str:
    import hashlib
    import hmac

    content = f"{value}\0{_state_of(value)}" if name in _FILES else value
    return hmac.new(salt.encode(), content.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _state_of(file: str) -> str:
    """Return a value that changes with a file."""
    try:
        status = Path(file).stat()
    except OSError:
        return "absent"
    return f"{status.st_mtime_ns} {status.st_size}"
