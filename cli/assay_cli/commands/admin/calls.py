"""Calls of `assay admin` to a shared server."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from assay.errors import InvalidInputError, Problem
from assay_cli.options.shared import call_orchestrator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.client.client import Client

T = TypeVar("T")

team_option = click.option("--team", metavar="TEAM", default="", help="The team; default: your token's.")


def called(server: str | None, call: Callable[[Client], Awaitable[T]]) -> T:
    """Connect to the server, make a call and return its result.

    Raises:
        InvalidInputError: No server is given; the local stack has no teams.
    """
    if not server:
        raise InvalidInputError([Problem("is missing: the local stack has no teams; name a server", "--server")])
    return call_orchestrator(server, call)
