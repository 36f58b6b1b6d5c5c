"""The keyring of the desktop, where `assay login` keeps tokens if the package keyring is installed and has one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

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
    """Return the token that is in the keyring.

    Raises:
        SetupError: It cannot be read, or is gone.
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
    """Remove a token from the keyring; one that is gone already stays so.

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
