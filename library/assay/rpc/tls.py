"""Certificates of servers and clients, read from files; a server picks up new ones without a restart."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from assay.errors import SetupError

_Stamp = tuple[tuple[int, int, int], ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The identity of a server, and the authorities of the clients that it accepts.

    Args:
        certificate: Its certificate and the intermediate certificates, PEM.
        key: Its private key, PEM.
        client_ca: The authorities of accepted clients, PEM; None to accept every client.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """The authorities that a client trusts, and the client's own identity.

    Args:
        ca: The authorities of servers, PEM; None for gRPC's own list.
        certificate: The client's own certificate, PEM; None if the server does not ask for one.
        key: Its private key, PEM.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def server_credentials(files: ServerFiles) -> grpc.ServerCredentials:
    """Return credentials that follow their files: each connection uses the current contents.

    Raises:
        SetupError: A file cannot be read, or key and certificate do not belong together.
    """
    followed = _FollowedFiles(files)
    return grpc.dynamic_ssl_server_credentials(
        followed.read(),
        followed.changed,  # type: ignore[arg-type]  # gRPC documents None for no change; its stub does not
        require_client_authentication=files.client_ca is not None,
    )


def channel_credentials(files: ClientFiles) -> grpc.ChannelCredentials:
    """Return the credentials of a client from the current contents of its files.

    Raises:
        SetupError: A file cannot be read, or key and certificate do not belong together.
    """
    if files.certificate is not None and files.key is not None:
        _require_pair(files.certificate, files.key)
    ca, key, certificate = (
        _read(path) if path is not None else None for path in (files.ca, files.key, files.certificate)
    )
    return grpc.ssl_channel_credentials(ca, key, certificate)


class _FollowedFiles:
    """Reads a server's files again when they change. While they do not match each other, the old contents stay in
    use."""

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        self._paths = [path for path in (files.certificate, files.key, files.client_ca) if path is not None]
        self._stamp: _Stamp = ()
        self._lock = threading.Lock()  # handshakes are made in threads of gRPC

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Return the contents of the files."""
        self._stamp = self._stamp_now()
        return self._configuration()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the contents for the next connection if the files have changed since the last read."""
        with self._lock:
            try:
                stamp = self._stamp_now()
                if stamp == self._stamp:
                    return None
                configuration = self._configuration()
                if self._stamp_now() != stamp:
                    return None  # they are being replaced: the next connection sees them whole
            except SetupError as problem:
                _log.warning("keeping the certificate in use: %s", problem.message)
                return None
            self._stamp = stamp
        _log.info("reloaded certificate: file=%s", self._files.certificate)
        return configuration

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        _require_pair(files.certificate, files.key)
        ca = _read(files.client_ca) if files.client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([(_read(files.key), _read(files.certificate))], ca)

    def _stamp_now(self) -> _Stamp:
        try:
            stats = [path.stat() for path in self._paths]
        except OSError as problem:
            raise _unreadable(Path(str(problem.filename)), problem) from None
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def _require_pair(certificate: Path, key: Path) -> None:
    import ssl  # imported here: commands without TLS do without it

    for path in (certificate, key):
        _read(path)
    try:
        # A key with a passphrase is refused: asking for it on the terminal would stop the service.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError):
        raise SetupError(
            f"{key} is not the private key of the certificate {certificate}, or one of them is no PEM file or needs a "
            "passphrase: give a pair, without a passphrase",
            reason="BAD_CERTIFICATE",
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: OSError) -> SetupError:
    return SetupError(f"{path} cannot be read ({problem.strerror}): check its path and permissions", reason="BAD_FILE")
