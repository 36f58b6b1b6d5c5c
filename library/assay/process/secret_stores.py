"""Stores of secret values: a folder of files, environment variables, or the operator's own store.

A store is queried when a value is used, so a rotated secret needs no restart. Only checked references reach it, so it
need not know the rights of teams.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import Problem
from assay.parsing.secret_references import SecretReference, parse_path
from assay.process.redaction import RECOGNISABLE_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

REREAD_S = 5.0
"""How long a value in use is not read again."""

MAX_SECRET_BYTES = 8 * 1024
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class SecretStore(Protocol):
    """A store of secret values."""

    def read(self, reference: SecretReference) -> str | None:
        """Return the current value of a secret; None if there is none.

        Called on the event loop, at most every 5 s per secret in use: a store slower than a small file must cache.

        Args:
            reference: The reference, with its team.
        """


class FolderSecrets:
    """Files TEAM/NAME in a folder, as Kubernetes mounts each team's Secret; a final line feed is ignored.

    Links are followed only within the team's folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, reference: SecretReference) -> str | None:
        """Return the text of a file; None if it is missing, another team's, larger than 8 KiB or not UTF-8."""
        own = self._folder.resolve() / reference.team
        try:
            real = (own / reference.name).resolve(strict=True)
            if not real.is_relative_to(own):
                return None
            content = _content(real)
        except (OSError, RuntimeError):  # a loop of links is a RuntimeError before Python 3.13
            return None
        if content is None or len(content) > MAX_SECRET_BYTES:
            return None
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class VariableSecrets:
    """Environment variables of this process that the operator has named.

    Args:
        names: The variable of each secret.
        environ: The environment.
    """

    names: Mapping[SecretReference, str]
    environ: Mapping[str, str]

    def read(self, reference: SecretReference) -> str | None:
        """Return the value of a variable; None if it is empty or not named."""
        return self.environ.get(self.names.get(reference, "")) or None


@dataclass(frozen=True, slots=True)
class SeveralStores:
    """Several stores, queried in turn.

    Args:
        stores: The stores; the first one with a value wins.
    """

    stores: Sequence[SecretStore]

    def read(self, reference: SecretReference) -> str | None:
        """Return the value from the first store that has one."""
        return next((value for store in self.stores if (value := store.read(reference)) is not None), None)


def open_secrets(folder: Path | None, names: Mapping[SecretReference, str], environ: Mapping[str, str]) -> SecretStore:
    """Return the store of a process.

    Args:
        folder: The folder of files; None for none.
        names: The variable of each secret in the environment.
        environ: The environment of the process.
    """
    stores: list[SecretStore] = [FolderSecrets(folder)] if folder is not None else []
    return SeveralStores([*stores, VariableSecrets(names, environ)])


def read_secret_variables(text: str) -> dict[SecretReference, str]:
    """Return the variable of each secret, of a setting such as `search/agent-key=SEARCH_AGENT_KEY`.

    Raises:
        ValueError: The text is invalid; the message describes valid input.
    """
    names: dict[SecretReference, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        path, _, variable = part.partition("=")
        reference = parse_path(path)
        if reference is None or not reference.team or not variable:
            raise ValueError(f"must be TEAM/NAME=VARIABLE, comma-separated, not {part[:80]!r}")
        names[reference] = variable
    return names


def value_problem(value: str | None, shown: str, setting: str) -> str:
    """Return why a value cannot be used; empty if it can.

    Args:
        value: The value from a store.
        shown: The reference as the spec has it.
        setting: The owner of the setting for secrets, e.g. "of the judge service".
    """
    if not value:
        # The same for a secret of another team, of which nothing may be known.
        return (
            f"the team has no secret {shown} where it is used: its operator makes a file TEAM/NAME below --secrets "
            f"{setting}"
        )
    if len(value) < RECOGNISABLE_CHARS:
        return (
            f"the secret {shown} is shorter than {RECOGNISABLE_CHARS} characters, so that it could not be taken out of "
            "logs and answers: use a longer one"
        )
    return ""


def folder_problem(folder: Path | None, flag: str = "--secrets") -> list[Problem]:
    """Return a problem if the path of secrets is not a folder."""
    if folder is None or folder.is_dir():
        return []
    return [Problem(f"{folder} is no folder: mount the secrets there, or leave the flag out", flag)]


def _content(path: Path) -> bytes | None:
    """Return the first bytes of a plain file; None for a device, a pipe or a folder."""
    descriptor = os.open(path, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(MAX_SECRET_BYTES + 1)
