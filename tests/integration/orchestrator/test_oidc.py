"""Tokens of OIDC issuers: which are taken, and which attacks on JSON Web Tokens are refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.support.services.shared_installation import Clock, SharedInstallation, shared_installation

from assay.client import admin
from assay.errors import InvalidInputError, PermissionDeniedError, UnauthenticatedError, UnavailableError
from assay.identity.rights import Role
from assay_orchestrator.identity.issuers import Issuer, read_issuers
from assay_orchestrator.identity.oidc import FRESH_S, KEPT_S, PAUSE_S, KeySet, OidcVerifier
from assay_orchestrator.identity.verifier import KEEP_S, TokenVerifier

if TYPE_CHECKING:
    from pathlib import Path

ISSUER, AUDIENCE = "https://login.example.org", "assay"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, key_id: str) -> dict[str, Any]:
    """Return the public part of a key as a JWK."""
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig"}


def store_keys(path: Path, *keys: dict[str, Any]) -> None:
    """Store a JWK set."""
    path.write_text(json.dumps({"keys": list(keys)}))


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a token that is taken, with changes; None leaves one out."""
    own = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "exp": int(time.time()) + 600, "assay_team": "search",
        "assay_role": "runner",
    }  # fmt: skip
    return {name: value for name, value in {**own, **changes}.items() if value is not None}


def signed(key: Any = RSA, algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a token."""
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": "one", **(header or {})})


def forged(header: dict[str, Any], secret: bytes | None) -> str:
    """Return a token that no library would make: with any header, and an HMAC or no signature."""
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "kid": "one", **header}, claims())]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    digest = b"" if secret is None else hmac.digest(secret, text, hashlib.sha256)
    return (text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def with_issuer(shared: SharedInstallation, keys: Path) -> TokenVerifier:
    """Return what knows the tokens of an installation and of an issuer."""
    issuer = Issuer(ISSUER, AUDIENCE, str(keys), ("RS256",))
    oidc = OidcVerifier([issuer], shared.database, monotonic_s=shared.clock)
    return TokenVerifier(shared.database, oidc, monotonic_s=shared.clock)


async def test_a_token_of_an_issuer_admits_to_its_team(tmp_path: Path) -> None:
    """Over the wire, with its role; beside tokens of Assay, and no longer than it is valid."""
    store_keys(tmp_path / "keys", jwk(RSA, "one"))
    (tmp_path / "oidc.yaml").write_text(
        f"issuers:\n- {{issuer: '{ISSUER}', audience: {AUDIENCE}, keys: '{tmp_path}/keys', algorithms: [RS256]}}\n"
    )
    async with shared_installation(tmp_path, oidc=tmp_path / "oidc.yaml") as shared:
        assert (await admin.get_identity(await shared.member("search"))).team == "search"
        client = await shared.client(signed())
        own = await admin.get_identity(client)
        assert (own.team, own.role, own.name, own.token_id[:5]) == ("search", "runner", "ana", "oidc-")
        assert await client.list_runs() == []
        with pytest.raises(PermissionDeniedError):
            await admin.list_tokens(client)
        leader = await shared.client(signed(assay_role="team-admin"))
        assert (await admin.create_token(leader, "viewer", "x")).token.created_by.startswith("oidc-")


async def test_attacks_on_tokens_are_refused(tmp_path: Path) -> None:
    """No algorithm, a public key as a secret, keys that the token brings along, claims for others: none admits."""
    store_keys(tmp_path / "keys", jwk(RSA, "one"), jwk(CURVE, "curve"))
    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    own_jwk = jwk(OTHER, "one")
    soon = int(time.time())
    refused = {
        "no algorithm": forged({"alg": "none"}, None),
        "no algorithm, spelled otherwise": forged({"alg": "nOnE"}, None),
        "the public key as a secret": forged({"alg": "HS256"}, public),
        "the JWK as a secret": forged({"alg": "HS256"}, json.dumps(jwk(RSA, "one")).encode()),
        "an algorithm of the list with an HMAC": forged({"alg": "RS256"}, public),
        "another key under the same id": signed(OTHER),
        "a key in the header": signed(OTHER, header={"jwk": own_jwk}),
        "a URL of keys in the header": signed(OTHER, header={"jku": "https://evil.example.org/keys"}),
        "an algorithm that is not the issuer's": signed(CURVE, "ES256", header={"kid": "curve"}),
        "an algorithm of the same key that is not the issuer's": signed(RSA, "RS512"),
        "a key of another type": signed(RSA, header={"kid": "curve"}),
        "an unknown key": signed(RSA, header={"kid": "two"}),
        "another audience": signed(aud="other"),
        "no audience": signed(aud=None),
        "another issuer": signed(iss="https://evil.example.org"),
        "an issuer that begins alike": signed(iss=f"{ISSUER}/"),
        "not yet valid": signed(nbf=soon + 3600),
        "no end": signed(exp=None),
        "an end in years": signed(exp=soon + 10**9),
        "an end beyond time": signed(exp=10**30),
        "no subject": signed(sub=None),
        "a team that is not here": signed(assay_team="nothing"),
        "no team": signed(assay_team=None),
        "a list of teams": signed(assay_team=["search"]),
        "the role of operators": signed(assay_role="operator"),
        "no role": signed(assay_role=None),
    }
    async with shared_installation(tmp_path) as shared:
        await shared.token("search")
        verifier = with_issuer(shared, tmp_path / "keys")
        assert (await verifier.authenticate(signed())).role is Role.RUNNER
        for attack, text in refused.items():
            with pytest.raises(UnauthenticatedError) as caught:
                await verifier.authenticate(text)
            assert caught.value.reason == "TOKEN_UNKNOWN", attack
            assert text not in caught.value.message
        malformed = ("a.b.c", signed()[:-1] + "!", "x" * 20_000, "é.b.c", jwt.encode(claims(), RSA, "RS256"), "..")
        for text in malformed:
            with pytest.raises(UnauthenticatedError) as caught:
                await verifier.authenticate(text)
            assert caught.value.reason in ("TOKEN_MALFORMED", "TOKEN_UNKNOWN"), text


async def test_an_expired_token_is_refused_though_it_is_remembered(tmp_path: Path) -> None:
    """Clocks may differ by 30 s, and no more."""
    store_keys(tmp_path / "keys", jwk(RSA, "one"))
    async with shared_installation(tmp_path) as shared:
        await shared.token("search")
        verifier = with_issuer(shared, tmp_path / "keys")
        late = signed(exp=int(time.time()) - 20)
        assert (await verifier.authenticate(late)).team == "search"
        with pytest.raises(UnauthenticatedError) as caught:
            await verifier.authenticate(signed(exp=int(time.time()) - 40))
        assert caught.value.reason == "TOKEN_EXPIRED"
        shared.clock.now_s += KEEP_S
        await verifier.authenticate(signed())


async def test_keys_are_rotated_and_outlive_an_issuer_that_is_away(tmp_path: Path) -> None:
    """A new key is found within a minute, a removed one refused within an hour; tokens make no fetch sooner."""
    path, clock = tmp_path / "keys", Clock()
    store_keys(path, jwk(RSA, "one"))
    keys = KeySet(str(path), clock)
    assert await keys.find("one") is not None
    store_keys(path, jwk(OTHER, "two"))
    assert await keys.find("two") is None  # too soon after the last fetch
    clock.now_s += PAUSE_S
    assert await keys.find("two") is not None
    assert await keys.find("one") is None
    path.unlink()
    clock.now_s += FRESH_S
    assert await keys.find("two") is not None
    clock.now_s += KEPT_S
    with pytest.raises(UnavailableError):
        await keys.find("two")
    store_keys(path, jwk(RSA, "one"))
    clock.now_s += PAUSE_S
    assert await keys.find("one") is not None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"keys": 1}', '{"keys": [1]}', '{"keys": ["kid"]}', "[" * 99_999, "x" * (2 << 20)]
)
async def test_a_damaged_key_set_is_no_key_set(tmp_path: Path, content: str) -> None:
    """It is UNAVAILABLE, and no defect."""
    (tmp_path / "keys").write_text(content)
    with pytest.raises(UnavailableError):
        await KeySet(str(tmp_path / "keys"), Clock()).find("one")


@pytest.mark.parametrize("reply", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b""])
async def test_a_garbled_reply_is_no_key_set(reply: bytes) -> None:
    """What speaks no HTTP at the address of the keys, or ends too soon, is UNAVAILABLE, and no defect."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError, match="the keys of the token's issuer cannot be fetched"):
            await KeySet(f"http://127.0.0.1:{port}/keys", Clock()).find("one")


def test_a_wrong_file_of_issuers_names_every_problem(tmp_path: Path) -> None:
    """Shared secrets, keys over plain HTTP, unknown and missing settings, at once."""
    path = tmp_path / "oidc.yaml"
    path.write_text(
        "issuers:\n"
        "- {issuer: a, audience: b, keys: 'http://login.example.org/keys', algorithms: [HS256]}\n"
        "- {issuer: c, audience: '', keys: k, algorithms: [none], tem_claim: x}\n"
        "- 7\n"
    )
    with pytest.raises(InvalidInputError) as caught:
        read_issuers(path)
    assert [problem.field for problem in caught.value.problems] == [
        "issuers[0].algorithms", "issuers[0].keys", "issuers[1].tem_claim", "issuers[1].audience",
        "issuers[1].algorithms", "issuers[2]",
    ]  # fmt: skip
    for text in (
        "",
        "issuers: []",
        "issuers: 1",
        "{",
        "issuers: [{issuer: a, audience: b, keys: k, algorithms: [[]]}]",
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError):
            read_issuers(path)
    with pytest.raises(InvalidInputError):
        read_issuers(tmp_path / "none")
