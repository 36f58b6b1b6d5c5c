"""`python -m assay_orchestrator.store.migrate`: update the tables in a separate step, or check them.

For installations whose orchestrators run with `--migrations wait`: one process, which may change tables, applies the
migrations, and the others start once it is done.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING

from assay.errors import AssayError, InvalidInputError, Problem
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHECK = "--check"
_MISSING = 1


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Apply missing migrations; with --check, change nothing.

    Returns:
        0 if the tables are up to date, 1 if --check finds missing migrations, 2 for wrong settings, 3 if the database
        cannot be used.
    """
    checks = CHECK in arguments
    try:
        settings = _settings([argument for argument in arguments if argument != CHECK], environment, checks=checks)
        open_database(settings).close()
    except InvalidInputError as error:
        for problem in error.problems:
            sys.stderr.write(f"assay admin migrate: {problem}\n")
        return 2
    except AssayError as error:
        sys.stderr.write(f"assay admin migrate: {error.message}\n")
        return _MISSING if checks and error.reason == "MIGRATIONS_MISSING" else 3
    sys.stdout.write(f"the tables are up to date: schema {TABLES.head_revision}\n")
    return 0


def _settings(arguments: Sequence[str], environment: Mapping[str, str], *, checks: bool) -> Settings:
    """Return the settings of a process that serves nothing and decides itself whether to apply migrations."""
    settings = Settings.read(["--listen", "127.0.0.1:0", "--migrations", "apply", *arguments], environment)
    if not checks:
        return settings
    if not settings.database_url:
        raise InvalidInputError([Problem("needs PostgreSQL (--database-url): a file is upgraded at its start", CHECK)])
    return dataclasses.replace(settings, migrations="wait", database_patience_s=0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
