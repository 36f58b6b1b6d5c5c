"""`python -m assay_orchestrator.identity.bootstrap`: creates the first operator's token, at the database.

It needs no token: access to the database is access to every row. It is also the way back in if the last operator's
token is lost.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from assay.errors import AssayError, InvalidInputError
from assay.identity.audit import OPERATORS, AuditEntry
from assay.identity.rights import Role
from assay.identity.tokens import Token, new_token
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import audit, tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy as sa


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Create a token and print it on stdout; return 0, 2 for wrong settings, 3 if the database cannot be used."""
    try:
        # It serves nothing, so the environment's address of the orchestrator does not matter.
        settings = Settings.read(["--listen", "127.0.0.1:0", *arguments], environment)
        token = asyncio.run(make_operator_token(settings))
    except InvalidInputError as error:
        for problem in error.problems:
            sys.stderr.write(f"assay admin bootstrap: {problem}\n")
        return 2
    except AssayError as error:
        sys.stderr.write(f"assay admin bootstrap: {error.message}\n")
        return 3
    sys.stderr.write(
        f"operator's token {token.token_id} of the team {OPERATORS}, shown only once; "
        "`assay login --server ADDRESS` takes it:\n"
    )
    sys.stdout.write(f"{token.text}\n")
    return 0


async def make_operator_token(settings: Settings) -> Token:
    """Store a new operator's token and return it.

    Raises:
        StorageError: The database cannot be opened, or an orchestrator has the file.
    """
    token = new_token()

    def make(connection: sa.Connection) -> None:
        if not tokens.has_team(connection, OPERATORS):
            tokens.create_team(connection, OPERATORS)
        record = tokens.create_token(connection, token, tokens.NewToken(OPERATORS, Role.OPERATOR, "bootstrap"))
        audit.append(connection, AuditEntry(OPERATORS, "bootstrap", record.token_id))

    database = open_database(settings)
    try:
        await database.write(make)
    finally:
        database.close()
    return token


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
