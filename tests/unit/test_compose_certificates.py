"""deploy/compose/certificates.py: an authority, a certificate for each service, renewed in time and otherwise kept."""

from __future__ import annotations

import importlib.util
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from tests.support.docs.compose_file import ROOT

if TYPE_CHECKING:
    from types import ModuleType

WANTED = ["api=server:localhost,127.0.0.1", "judge=server:judge", "orchestrator=client"]


def script() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("compose_certificates", ROOT / "deploy/compose/certificates.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["compose_certificates"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES = script()


def make(folder: Path, *options: str) -> dict[str, bytes]:
    """Run the script; return the content of all files by their path."""
    assert CERTIFICATES.main([str(folder), *options, *WANTED]) == 0
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shift(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let the script run at another time."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + by

    monkeypatch.setattr(CERTIFICATES, "datetime", Later)


def test_each_service_has_what_tls_needs(tmp_path: Path) -> None:
    """Key and certificate belong together and to the authority; only their owner reads private keys."""
    files = make(tmp_path)
    for service in ("api", "judge", "orchestrator"):
        assert files[f"{service}/ca.crt"] == files["authority/ca.crt"]
        context = ssl.create_default_context(cafile=tmp_path / service / "ca.crt")
        context.load_cert_chain(tmp_path / service / "tls.crt", tmp_path / service / "tls.key")
        assert stat.S_IMODE((tmp_path / service / "tls.key").stat().st_mode) == 0o400
    assert stat.S_IMODE((tmp_path / "authority").stat().st_mode) == 0o700
    certificate = x509.load_pem_x509_certificate(files["api/tls.crt"])
    assert CERTIFICATES.names_of(certificate) == {"localhost", "127.0.0.1"}
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files["authority/ca.crt"]))


def test_what_is_right_is_kept_and_what_expires_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later start changes nothing until 30 days before the end; the authority always stays."""
    files = make(tmp_path)
    assert make(tmp_path) == files
    shift(monkeypatch, timedelta(days=334))
    assert make(tmp_path) == files
    shift(monkeypatch, timedelta(days=336))
    renewed = make(tmp_path)
    assert {path for path in files if files[path] != renewed[path]} == {
        f"{service}/{name}" for service in ("api", "judge", "orchestrator") for name in ("tls.crt", "tls.key")
    }


def test_new_names_and_a_lost_authority_make_new_certificates(tmp_path: Path) -> None:
    """Names are of what clients reach alone; where a certificate is of another authority, it is replaced."""
    files = make(tmp_path)
    named = make(tmp_path, "--names", "assay.example.org")
    assert {path for path in files if files[path] != named[path]} == {"api/tls.crt", "api/tls.key"}
    for path in (tmp_path / "authority").iterdir():
        path.unlink()
    again = make(tmp_path, "--names", "assay.example.org")
    assert all(again[path] != named[path] for path in named)


@pytest.mark.parametrize("left", ["tls.key", "tls.crt"])
def test_a_start_that_was_interrupted_is_made_up_for(tmp_path: Path, left: str) -> None:
    """After an interruption at any file, the next start makes a matching pair."""
    make(tmp_path)
    for name in {"tls.key", "tls.crt", "ca.crt"} - ({"tls.key"} if left == "tls.key" else {"tls.key", "tls.crt"}):
        (tmp_path / "judge" / name).unlink()
    make(tmp_path)
    ssl.create_default_context().load_cert_chain(tmp_path / "judge" / "tls.crt", tmp_path / "judge" / "tls.key")


@pytest.mark.parametrize("wrong", ["judge", "judge=both:judge", "judge=server", "=client"])
def test_a_wrong_argument_is_named(tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument is named, and nothing is made."""
    with pytest.raises(SystemExit) as ended:
        CERTIFICATES.main([str(tmp_path / "new"), wrong])
    assert ended.value.code == 2
    assert "must be SERVICE=server:NAME" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
