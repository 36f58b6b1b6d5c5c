"""Make the TLS files of docker-compose.yml: a certificate authority of the installation and certificates signed by it.

    python certificates.py FOLDER [--owner UID] [--names NAME,...] SERVICE=USE:NAME,... [...]

FOLDER/authority holds the authority with its private key. Each FOLDER/SERVICE gets tls.crt, tls.key and the authority's
ca.crt. USE is `server` or `client`; the NAMEs of a server are the host names and addresses in its certificate. Run it
at every start: it keeps certificates with these names that are valid for 30 more days, and renews the others.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
DAYS = 365
RENEWED_BEFORE = timedelta(days=30)
USES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateRequest:
    """A certificate that a service needs.

    Args:
        service: The name of the service and of its folder.
        use: `server` or `client`.
        names: Host names and addresses of a server.
    """

    service: str
    use: str
    names: tuple[str, ...]


def main(arguments: list[str]) -> int:
    """Make or renew all files; return 0, or 2 for invalid arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--owner", type=int, help="user id that alone may read the private keys of services")
    parser.add_argument(
        "--names", default="", help="further names for certificates that include `localhost`, comma-separated"
    )
    parser.add_argument("requests", nargs="+", type=read_request, metavar="SERVICE=USE:NAME,...")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    authority = open_authority(options.folder / "authority")
    for request in options.requests:
        provide(options.folder / request.service, authority, with_names(request, options.names), options.owner)
    return 0


def read_request(text: str) -> CertificateRequest:
    """Return the certificate that SERVICE=USE:NAME,... asks for."""
    service, _, rest = text.partition("=")
    use, _, names = rest.partition(":")
    if not service or use not in USES or (use == "server" and not names):
        raise argparse.ArgumentTypeError(f"must be SERVICE=server:NAME,... or SERVICE=client, not {text!r}")
    return CertificateRequest(service, use, tuple(names.split(",")) if names else ())


def with_names(request: CertificateRequest, more: str) -> CertificateRequest:
    """Return a certificate with the further names of this host, if the service is reachable from outside."""
    if "localhost" not in request.names:
        return request
    names = (name.strip() for name in more.split(","))
    return CertificateRequest(request.service, request.use, (*request.names, *(name for name in names if name)))


def open_authority(folder: Path) -> Pair:
    """Return the authority; make it if missing. An expiring authority is not replaced, because all clients trust it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if certificate.exists() and key.exists():
        authority = read_pair(certificate, key)
        if left(authority.certificate) < RENEWED_BEFORE:
            say(f"the authority expires on {day(authority.certificate)}: delete {folder} for a new one")
        return authority
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Assay installation")])
    builder = dated(name, name, own.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
    authority = Pair(builder.sign(own, hashes.SHA256()), own)
    write(key, private_pem(own), 0o400)
    write(certificate, authority.certificate.public_bytes(serialization.Encoding.PEM), 0o444)
    say(f"made the authority of this installation, until {day(authority.certificate)}")
    return authority


def provide(folder: Path, authority: Pair, request: CertificateRequest, owner: int | None) -> None:
    """Write the files of a service, unless its present files are valid for long enough."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_pem = authority.certificate.public_bytes(serialization.Encoding.PEM)
    present = folder / "tls.crt"
    known = folder / "ca.crt"
    if present.exists() and known.exists() and known.read_bytes() == authority_pem:
        certificate = x509.load_pem_x509_certificate(present.read_bytes())
        if left(certificate) >= RENEWED_BEFORE and names_of(certificate) == set(request.names):
            return
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = signed(authority, key, request)
    # tls.crt is written last: if this process dies earlier, the next start makes everything again. A server that reads
    # meanwhile keeps its old pair until key and certificate match.
    write(folder / "tls.key", private_pem(key), 0o400, owner)
    write(present, certificate.public_bytes(serialization.Encoding.PEM), 0o444)
    write(known, authority_pem, 0o444)
    names = ",".join(request.names) or "none"
    say(f"made a certificate: service={request.service} use={request.use} names={names} until={day(certificate)}")


def signed(authority: Pair, key: ec.EllipticCurvePrivateKey, request: CertificateRequest) -> x509.Certificate:
    """Return a new certificate signed by the authority."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, request.service)])
    builder = dated(name, authority.certificate.subject, key.public_key(), DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([USES[request.use]]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    if request.names:
        builder = builder.add_extension(x509.SubjectAlternativeName([general(name) for name in request.names]), False)
    return builder.sign(authority.key, hashes.SHA256())


def dated(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    """Return a certificate for some days. It starts an hour ago, because clocks differ."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))


def usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: signing handshakes, or signing certificates."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def general(name: str) -> x509.GeneralName:
    """Return a host name or an address in the form of certificates."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def names_of(certificate: x509.Certificate) -> set[str]:
    """Return the host names and addresses of a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def left(certificate: x509.Certificate) -> timedelta:
    """Return the remaining validity of a certificate."""
    return certificate.not_valid_after_utc - datetime.now(UTC)


def day(certificate: x509.Certificate) -> str:
    """Return the day on which a certificate expires, in UTC."""
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def read_pair(certificate: Path, key: Path) -> Pair:
    """Return a certificate and its key from their files."""
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        sys.exit(f"{key} is no key of an elliptic curve: delete its folder for a new authority")
    return Pair(x509.load_pem_x509_certificate(certificate.read_bytes()), private)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: Path, content: bytes, mode: int, owner: int | None = None) -> None:
    """Replace a file atomically: a reader sees the old content or the new one."""
    new = path.with_name(f".{path.name}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if owner is not None:
            os.fchown(descriptor, owner, owner)
    new.replace(path)


def say(text: str) -> None:
    """Print a line for the operator."""
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
