"""Certificates for tests of TLS, generated without tools or packages; they never expire."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# The curve P-256 of FIPS 186: field, order of the base point, the base point; its a is -3.
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _OID, _TEXT, _TIME = 0x30, 0x31, 0x02, 0x03, 0x04, 0x06, 0x0C, 0x18


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its private key, both as PEM."""

    certificate_pem: bytes
    key_pem: bytes


def certificate_for(host: str) -> Certificate:
    """Return a certificate for a host name or IPv4 address; clients must trust it as an authority."""
    key = secrets.randbelow(_N - 1) + 1
    point = _times(key, _G)
    public = b"\x00\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big")
    curve = _der(_SEQUENCE, _oid("2a8648ce3d0201"), _oid("2a8648ce3d030107"))
    signing = _der(_SEQUENCE, _oid("2a8648ce3d040302"))  # ECDSA with SHA-256
    name = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _oid("550403"), _der(_TEXT, host.encode()))))
    today = datetime.now(UTC)
    times = [_der(_TIME, f"{today + timedelta(days=days):%Y%m%d%H%M%SZ}".encode()) for days in (-1, 30)]
    names = _der(_SEQUENCE, _alternative(host))
    is_authority = _der(_SEQUENCE, b"\x01\x01\xff")
    content = _der(
        _SEQUENCE,
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(63)),
        signing,
        name,
        _der(_SEQUENCE, *times),
        name,
        _der(_SEQUENCE, curve, _der(_BITS, public)),
        _der(0xA3, _der(_SEQUENCE, _extension("551d11", names), _extension("551d13", is_authority))),
    )
    signed = _der(_SEQUENCE, content, signing, _der(_BITS, b"\x00", _signature(key, content)))
    secret = _der(_SEQUENCE, _integer(1), _der(_OCTETS, key.to_bytes(32, "big")))
    packed = _der(_SEQUENCE, _integer(0), curve, _der(_OCTETS, secret))
    return Certificate(_pem("CERTIFICATE", signed), _pem("PRIVATE KEY", packed))


def _alternative(host: str) -> bytes:
    """Return a host as an alternative name of a certificate: an address or a DNS name."""
    try:
        return _der(0x87, ipaddress.IPv4Address(host).packed)
    except ValueError:
        return _der(0x82, host.encode())


def _signature(key: int, content: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(content).digest(), "big")
    while True:
        once = secrets.randbelow(_N - 1) + 1
        r = _times(once, _G)[0] % _N
        s = pow(once, -1, _N) * (digest + r * key) % _N
        if r and s:
            return _der(_SEQUENCE, _integer(r), _integer(s))


def _times(count: int, point: tuple[int, int]) -> tuple[int, int]:
    found: tuple[int, int] | None = None
    while count:
        if count & 1:
            found = point if found is None else _sum(found, point)
        point = _sum(point, point)
        count >>= 1
    assert found is not None, "the count is at least 1"
    return found


def _sum(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = first, second
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P) if first == second else (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _integer(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(hexadecimal: str) -> bytes:
    return _der(_OID, bytes.fromhex(hexadecimal))


def _extension(oid: str, value: bytes) -> bytes:
    return _der(_SEQUENCE, _oid(oid), _der(_OCTETS, value))


def _pem(label: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content).decode()
    return f"-----BEGIN {label}-----\n{lines}-----END {label}-----\n".encode()
