"""`assay login` and `assay logout`: store and remove the token for a server."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem, SetupError
from assay.text.unsafe_text import clean
from assay_cli.options.shared import client_options, debug_option, run_async, server_option

if TYPE_CHECKING:
    from assay.client.admin import TokenInfo
    from assay.local_stack.credentials import Credentials

_MAX_TOKEN_CHARS = 200


@click.command()
@server_option
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="ASSAY_TLS_CA",
    help="Certificate authorities of the server, PEM; default: $ASSAY_TLS_CA, else gRPC's own.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="ASSAY_TLS_CERT",
    help="Client certificate, PEM, if the server requires one; default: $ASSAY_TLS_CERT, else none.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="ASSAY_TLS_KEY",
    help="Private key of the client certificate, PEM, without a passphrase; default: $ASSAY_TLS_KEY.",
)
@debug_option
def login(server: str | None, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None) -> int:
    """Store a token for a server, for later commands; prompts for it, or reads stdin.

    The token is stored in the desktop's keyring if the package keyring finds one, else below ASSAY_HOME in a file that
    only you can read. ASSAY_TOKEN overrides it.
    """
    from assay.local_stack.credentials import Credentials, keep_credentials

    address = _required(server)
    token = _given_token()
    files = [str(path.expanduser().absolute()) if path is not None else "" for path in (tls_ca, tls_cert, tls_key)]
    credentials = Credentials(token, *files)
    identity = run_async(_identity(address, credentials))
    place = keep_credentials(address, credentials)
    until = f", until {identity.expires_at}" if identity.expires_at else ""
    click.echo(
        f"logged in at {address}: team {clean(identity.team)}, role {clean(identity.role)}, token "
        f"{clean(identity.token_id)} ({clean(identity.name)}){until}; stored in {place}"
    )
    return 0


@click.command()
@client_options
def logout(server: str | None) -> int:
    """Remove the stored token of a server; the token itself stays valid until it is revoked or expires."""
    from assay.local_stack.credentials import forget_credentials

    address = _required(server)
    if not forget_credentials(address):
        raise SetupError(f"no token is stored for {address}: `assay login --server ADDRESS` stores one")
    click.echo(f"removed the stored token for {address}")
    return 0


def _required(server: str | None) -> str:
    if not server:
        raise InvalidInputError([Problem("is missing: name the server, such as assay.example.org:7070", "--server")])
    return server


def _given_token() -> str:
    """Read the token from a prompt or stdin; never from an argument, which other processes can read.

    Raises:
        InvalidInputError: The text is not a token.
    """
    from assay.identity.tokens import parse_token

    if sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt("token", hide_input=True, err=True)
    else:
        text = sys.stdin.read(_MAX_TOKEN_CHARS) if sys.stdin is not None else ""
    token = text.strip()
    if not token:
        raise InvalidInputError("no token was given: type it, or pipe it, as in `assay login --server ADDRESS < FILE`")
    if parse_token(token) is None:
        raise InvalidInputError("the token is cut off or mistyped: copy it again, from `assay_` to its end")
    return token


async def _identity(address: str, credentials: Credentials) -> TokenInfo:
    from assay.client.admin import get_identity
    from assay.client.client import Client
    from assay_cli.options.shared import reach

    async with Client(address, **dataclasses.asdict(credentials)) as client:
        await reach(client)
        return await get_identity(client)
