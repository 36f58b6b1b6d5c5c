"""The run that a mistyped id meant, among the runs that the asking client may list: no server suggests one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import AssayError, NotFoundError
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client

_MOST = 1000


async def with_suggestion(client: Client, error: NotFoundError, asked: Sequence[str]) -> NotFoundError:
    """Return the error for an unknown run with the id that was probably meant, where one is close.

    Args:
        client: Lists the runs there are.
        error: What a call of the command ended with.
        asked: The run ids that the command was given, in order.
    """
    if error.reason != "RUN_NOT_FOUND" or not asked:
        return error
    try:
        known = [run.run_id for run in await client.list_runs(limit=_MOST)]
    except AssayError:
        return error
    unknown = next((run_id for run_id in asked if run_id not in known), None)
    if unknown is None:
        return error
    close = nearest(unknown, known)
    if close is None:
        return error
    return NotFoundError(f"there is no run {unknown!r}: did you mean {close!r}?", reason=error.reason)
