"""The run that a mistyped id meant, among the runs that the asking client may list: no server suggests one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.errors import AssayError, NotFoundError
from assay.names import nearest

if TYPE_CHECKING:
    from assay.client import Client

__all__ = ["with_suggestion"]

_UNKNOWN_RUN = re.compile(r"there is no run '([^']+)'")
_MOST = 1000


async def with_suggestion(client: Client, error: NotFoundError) -> NotFoundError:
    """Return the error for an unknown run with the id that was probably meant, where one is close."""
    asked = _UNKNOWN_RUN.match(error.message)
    if asked is None:
        return error
    try:
        known = [run.run_id for run in await client.list_runs(limit=_MOST)]
    except AssayError:
        return error
    begun = next((run_id for run_id in known if run_id.startswith(asked[1])), None)
    close = begun or nearest(asked[1], known)
    if close is None:
        return error
    return NotFoundError(f"{asked[0]}: did you mean {close!r}?", reason=error.reason)
