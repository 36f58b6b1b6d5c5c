"""The OIDC issuers whose tokens an installation accepts: a YAML file of its operator."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name
from assay.parsing.yaml_nodes import parse_yaml
from assay.rpc.addresses import is_local

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Signatures with a public key: with a shared secret, every service that checks tokens could issue them."""

_REQUIRED = ("issuer", "audience", "keys")


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer.

    Args:
        issuer: The `iss` of its tokens.
        audience: The `aud` of its tokens for this installation.
        keys: Its public keys as a JWK set: an https URL, or a file.
        algorithms: The accepted signatures.
        team_claim: The claim with the team.
        role_claim: The claim with the role: viewer, runner or team-admin.
    """

    issuer: str
    audience: str
    keys: str
    algorithms: tuple[str, ...]
    team_claim: str = "assay_team"
    role_claim: str = "assay_role"


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read the file: `issuers`, a list of mappings with the fields of `Issuer`.

    Raises:
        InvalidInputError: It is not such a file; contains every problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError([Problem(f"cannot be read ({error})", file=str(path))]) from None
    problems: list[Problem] = []
    document, _ = parse_yaml(text, file=str(path), problems=problems)
    listed = document.get("issuers") if isinstance(document, dict) else None
    if not problems and (not isinstance(listed, list) or not listed):
        problems.append(Problem("must be a list with at least one issuer", "issuers", str(path)))
    entries = listed if isinstance(listed, list) else []
    for index, entry in enumerate(entries):
        problems += [Problem(message, f"issuers[{index}]{field}", str(path)) for field, message in _wrong(entry)]
    if problems:
        raise InvalidInputError(problems, reason="INVALID_SETTINGS")
    issuers = tuple(Issuer(**{**entry, "algorithms": tuple(entry["algorithms"])}) for entry in entries)
    if len({issuer.issuer for issuer in issuers}) < len(issuers):
        raise InvalidInputError([Problem("must differ from each other", "issuers[].issuer", str(path))])
    return issuers


def _wrong(entry: Any) -> list[tuple[str, str]]:
    """Return the problems of an entry: the field within it, and the problem."""
    if not isinstance(entry, dict):
        return [("", "must be a mapping")]
    known_names = [element.name for element in fields(Issuer)]
    problems = [(f".{name}", unknown_name("key", name, known_names)) for name in entry if name not in known_names]
    for name in known_names:
        value = entry.get(name)
        if name == "algorithms":
            if not isinstance(value, list) or not value or any(element not in sorted(ALGORITHMS) for element in value):
                problems.append((".algorithms", f"must be a list of {', '.join(sorted(ALGORITHMS))}"))
        elif (name in _REQUIRED or name in entry) and (not isinstance(value, str) or not value):
            problems.append((f".{name}", "must be a text"))
    keys = entry.get("keys")
    if isinstance(keys, str) and "://" in keys and not _is_safe(keys):
        problems.append((".keys", "must be an https URL or a file, because the keys decide which tokens are accepted"))
    return problems


def _is_safe(url: str) -> bool:
    """Return whether the content of a URL is protected in transit."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_local(f"{parts.hostname}:0"))
