"""The headers that a spec may send with a question: HTTP headers and gRPC metadata."""

from __future__ import annotations

import re

from assay.errors import Problem
from assay.parsing.names import kind_of
from assay.specs.variables import NAMED

# Host selects a site behind the address, whatever host was allowed. The others frame the request and control the
# connection; a wrong value lets requests run into each other.
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
                          "upgrade", "expect", "proxy-connection", "proxy-authenticate",
                          "proxy-authorization"})  # fmt: skip
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token",
                                 "x-goog-api-key", "ocp-apim-subscription-key", "private-token"})  # fmt: skip
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def read_headers(value: object, where: str, problems: list[Problem]) -> dict[str, str]:
    """Return the HTTP headers of a spec; append problems to `problems`.

    Args:
        value: The value in the spec; None if missing.
        where: The field of the value.
        problems: The spec's problems.
    """
    headers = read_texts(value, where, problems)
    problems += [
        Problem(problem, f"{where}.{name}")
        for name, text in headers.items()
        if (problem := _header_problem(name, text))
    ]
    return headers


def credential_problem(name: str, value: str) -> str:
    """Return why a header's value is refused: it is a secret itself, not a reference to one."""
    if name.lower() in _CREDENTIAL_HEADERS and not NAMED.search(value):
        return (
            "holds a secret, which would be stored with the run: put it into an environment variable, as in ${NAME}, "
            "or name it, as in secret://NAME"
        )
    return ""


def _header_problem(name: str, value: str) -> str:
    if not _HEADER_NAME.fullmatch(name) or "\n" in value or "\r" in value:
        return "is not a valid header"
    if name.lower() in OWN_HEADERS:
        return "is set by Assay, from the target, the body and the connection: remove it"
    return credential_problem(name, value)


def read_texts(value: object, where: str, problems: list[Problem]) -> dict[str, str]:
    """Return a mapping of names to texts; a number becomes a text.

    Args:
        value: The value in the spec; None if missing.
        where: The field of the value.
        problems: Receives the problems.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(Problem(f"must be a mapping of names to strings, not {kind_of(value)}", where))
        return {}
    texts = {}
    for name, item in value.items():
        if isinstance(item, bool | list | dict) or item is None:
            problems.append(Problem(f"must be a string, not {kind_of(item)}", f"{where}.{name}"))
        else:
            texts[str(name)] = str(item)
    return texts
