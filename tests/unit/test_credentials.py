"""What `assay login` keeps: tokens in the keyring where one works, else in a file; certificates by their files."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from assay.client.client import Client
from assay.errors import SetupError
from assay.local_stack.credentials import Credentials, credentials_for, forget_credentials, keep_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADDRESS, TOKEN = "assay.example.org:7070", "assay_0123456789_text-of-a-token"


class MemoryKeyring(KeyringBackend):
    """A keyring that works, and may be locked."""

    priority = 9.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        """Return a password."""
        self._require_unlocked()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store a password."""
        self._require_unlocked()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Remove a password."""
        self._require_unlocked()
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")

    def _require_unlocked(self) -> None:
        if self.is_locked:
            raise KeyringLocked("the keyring is locked")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an ASSAY_HOME of the test's own."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def desktop(home: Path) -> Iterator[MemoryKeyring]:
    """Return the keyring of this process."""
    before, own = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(own)
    yield own
    keyring.set_keyring(before)


def file_of(home: Path) -> dict[str, Any]:
    """Return what the file has of the server."""
    path = home / "credentials.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found: dict[str, Any] = json.loads(path.read_text())["servers"].get(ADDRESS, {})
    return found


def test_a_keyring_has_the_token_and_the_file_the_rest(home: Path, desktop: MemoryKeyring) -> None:
    """The token is in no file; logging out removes it from the keyring, too."""
    given = Credentials(TOKEN, "/ca.pem", "/own.pem", "/own.key")
    assert keep_credentials(ADDRESS, given) == "the keyring"
    assert TOKEN not in (home / "credentials.json").read_text()
    assert desktop.kept == {("assay", ADDRESS): TOKEN}
    assert credentials_for(ADDRESS, {}) == given
    assert forget_credentials(ADDRESS)
    assert (desktop.kept, file_of(home)) == ({}, {})
    assert not forget_credentials(ADDRESS)


def test_a_keyring_that_does_not_work_leaves_the_file(home: Path, desktop: MemoryKeyring) -> None:
    """With a locked keyring, or one that stores nothing, the token is in the file."""
    desktop.is_locked = True
    assert keep_credentials(ADDRESS, Credentials(TOKEN)) == str(home / "credentials.json")
    assert file_of(home)["token"] == TOKEN
    desktop.is_locked, desktop.priority = False, 0.5
    keep_credentials(ADDRESS, Credentials(TOKEN))
    assert desktop.kept == {}
    assert credentials_for(ADDRESS, {}).token == TOKEN


def test_a_token_that_cannot_be_read_is_named_with_its_remedy(home: Path, desktop: MemoryKeyring) -> None:
    """A keyring that is locked now, and a token that was removed there; a variable replaces both."""
    keep_credentials(ADDRESS, Credentials(TOKEN))
    desktop.is_locked = True
    with pytest.raises(SetupError, match="unlock it"):
        credentials_for(ADDRESS, {})
    with pytest.raises(SetupError, match="unlock it"):
        forget_credentials(ADDRESS)
    desktop.is_locked = False
    desktop.kept.clear()
    with pytest.raises(SetupError, match="no longer there"):
        credentials_for(ADDRESS, {})
    assert credentials_for(ADDRESS, {"ASSAY_TOKEN": "t"}).token == "t"
    assert forget_credentials(ADDRESS)


def test_variables_replace_what_is_stored(home: Path, desktop: MemoryKeyring) -> None:
    """Each variable replaces a stored value; a local socket has no TLS in any case."""
    keep_credentials(ADDRESS, Credentials(TOKEN, "/ca.pem", "/own.pem", "/own.key"))
    given = {"ASSAY_TLS_CERT": "/other.pem", "ASSAY_TLS_KEY": "/other.key"}
    assert credentials_for(ADDRESS, given) == Credentials(TOKEN, "/ca.pem", "/other.pem", "/other.key")
    assert credentials_for("unix:/a", {**given, "ASSAY_TLS_CA": "/ca.pem"}) == Credentials()


async def test_a_certificate_needs_its_key(home: Path) -> None:
    """One without the other is refused before anything is connected."""
    with pytest.raises(SetupError, match="given together"):
        await Client(ADDRESS, token="t", tls_ca="", tls_cert="own.pem").__aenter__()
