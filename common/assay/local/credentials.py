"""The tokens that `assay login` keeps, in a file that its owner alone reads."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local.home import Home
from assay.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE, CA_VARIABLE = "ASSAY_TOKEN", "ASSAY_TLS_CA"
_FILE = "credentials.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client proves its identity with, and how it recognises the server.

    Args:
        token: An API token; empty for none.
        tls_ca: A file with the server's authorities, PEM; empty for those that gRPC brings along.
    """

    token: str = field(default="", repr=False)
    tls_ca: str = ""


def credentials_for(address: str, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials for a server: ASSAY_TOKEN and ASSAY_TLS_CA, else those of `assay login`.

    A unix socket, such as that of the local stack, is used without TLS, whatever ASSAY_TLS_CA says.

    Raises:
        SetupError: The file of `assay login` cannot be used, or others can read it.
    """
    token = environment.get(TOKEN_VARIABLE, "")
    ca = environment.get(CA_VARIABLE, "") if not address.startswith("unix:") else ""
    if token and ca:
        return Credentials(token, ca)
    kept = _read(_path()).get(address, {})
    return Credentials(token or str(kept.get("token", "")), ca or str(kept.get("tls_ca", "")))


def keep_credentials(address: str, credentials: Credentials) -> Path:
    """Store the credentials for a server, replacing those of before; return the file."""
    path = _path()
    kept = _read(path)
    kept[address] = {"token": credentials.token, "tls_ca": credentials.tls_ca}
    _write(path, kept)
    return path


def forget_credentials(address: str) -> bool:
    """Remove the credentials for a server; return whether there were any."""
    path = _path()
    kept = _read(path)
    found = kept.pop(address, None) is not None
    if found:
        _write(path, kept)
    return found


def _path() -> Path:
    return Home.find().path / _FILE


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise SetupError(f"others can read the tokens in {path}: run `chmod 600 {path}`", reason="NOT_PRIVATE")
            servers: dict[str, dict[str, Any]] = json.load(file)["servers"]
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise SetupError(f"{path} cannot be read ({problem.strerror}): check its permissions") from None
    except (ValueError, KeyError, TypeError):
        raise SetupError(f"{path} is damaged: remove it, and use `assay login` again") from None
    return servers


def _write(path: Path, servers: dict[str, dict[str, Any]]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".credentials-", dir=path.parent)  # made with mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"servers": servers}, file, indent=1)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise SetupError(f"{path} cannot be written ({problem.strerror}): set ASSAY_TOKEN instead") from None
