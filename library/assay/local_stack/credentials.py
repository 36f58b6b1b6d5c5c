"""The credentials of `assay login`: a token per server, in the keyring or in a file that only its owner reads."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local_stack.home import Home
from assay.local_stack.install_hint import install_hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keyring.backend import KeyringBackend

TOKEN_VARIABLE, CA_VARIABLE = "ASSAY_TOKEN", "ASSAY_TLS_CA"
CERT_VARIABLE, KEY_VARIABLE = "ASSAY_TLS_CERT", "ASSAY_TLS_KEY"
_FILE = "credentials.json"


_SERVICE = "assay"
_LEAST_PRIORITY = 1
"""Backends below it keep nothing, or a plain file."""


def keep_token(address: str, token: str) -> bool:
    """Store a token in the keyring; return whether it is there: not where no keyring works."""
    if find_spec("keyring") is None:
        return False
    from keyring.errors import KeyringError

    try:
        backend = _backend()
        if backend.priority < _LEAST_PRIORITY:
            return False
        backend.set_password(_SERVICE, address, token)
        return backend.get_password(_SERVICE, address) == token
    except (KeyringError, OSError, RuntimeError):
        return False


def kept_token(address: str) -> str:
    """Return the token from the keyring.

    Raises:
        SetupError: It cannot be read, or is missing.
    """
    if find_spec("keyring") is None:
        raise SetupError(f"{_advice(address)}: keyring is not installed: {install_hint('keyring')}")
    from keyring.errors import KeyringError

    try:
        token = _backend().get_password(_SERVICE, address)
    except (KeyringError, OSError, RuntimeError) as problem:
        raise SetupError(f"{_advice(address)}: unlock it ({problem})") from None
    if not token:
        raise SetupError(f"{_advice(address)}: it is no longer there")
    return token


def forget_token(address: str) -> None:
    """Remove a token from the keyring; a missing token is no error.

    Raises:
        SetupError: The keyring is not installed, or locked.
    """
    if find_spec("keyring") is None:
        raise SetupError(f"{_advice(address)}: keyring is not installed: {install_hint('keyring')}")
    from keyring.errors import KeyringError, PasswordDeleteError

    try:
        _backend().delete_password(_SERVICE, address)
    except PasswordDeleteError:
        return
    except (KeyringError, OSError, RuntimeError) as problem:
        raise SetupError(f"{_advice(address)}: unlock it ({problem})") from None


def _backend() -> KeyringBackend:
    import keyring  # imported here: only `assay login` and what it has stored there need it

    return keyring.get_keyring()


def _advice(address: str) -> str:
    return f"the token for {address}, which `assay login` has stored in the keyring, cannot be read"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's token, its certificate, and the authorities that it trusts.

    Args:
        token: An API token; empty for none.
        tls_ca: A file with the server's authorities, PEM; empty for gRPC's own list.
        tls_cert: A file with the client's own certificate, PEM; empty if the server does not ask for one.
        tls_key: A file with its private key, PEM.
    """

    token: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


def credentials_for(address: str, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials for a server: the variables ASSAY_TOKEN and ASSAY_TLS_…, else those of `assay login`.

    A unix socket, such as the local stack's, is used without TLS, whatever the ASSAY_TLS_… variables contain.

    Raises:
        SetupError: The credentials that `assay login` stored cannot be used, or other users can read them.
    """
    token = environment.get(TOKEN_VARIABLE, "")
    names = () if address.startswith("unix:") else (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE)
    ca, cert, key = (environment.get(name, "") for name in names) if names else ("", "", "")
    if token and ca and cert:
        return Credentials(token, ca, cert, key)
    kept = _read(_path()).get(address, {})
    if not token:
        token = kept_token(address) if kept.get("keyring") else str(kept.get("token", ""))
    if not cert:
        cert, key = str(kept.get("tls_cert", "")), str(kept.get("tls_key", ""))
    return Credentials(token, ca or str(kept.get("tls_ca", "")), cert, key)


def keep_credentials(address: str, credentials: Credentials) -> str:
    """Store the credentials for a server, replacing earlier ones; return where its token is."""
    path = _path()
    kept = _read(path)
    in_keyring = keep_token(address, credentials.token)
    token = {"keyring": True} if in_keyring else {"token": credentials.token}
    files = {name: getattr(credentials, name) for name in ("tls_ca", "tls_cert", "tls_key")}
    kept[address] = {**token, **files}
    _write(path, kept)
    return "the keyring" if in_keyring else str(path)


def forget_credentials(address: str) -> bool:
    """Remove the credentials for a server; return whether there were any."""
    path = _path()
    kept = _read(path)
    removed = kept.pop(address, None)
    if removed is None:
        return False
    if removed.get("keyring"):
        forget_token(address)
    _write(path, kept)
    return True


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
