"""Suggestions for mistyped run ids, from the runs that the client may list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import AssayError, NotFoundError
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client

_MOST = 1000


async def with_suggestion(client: Client, error: NotFoundError, run_ids: Sequence[str]) -> NotFoundError:
    """Return the error for an unknown run, extended by the closest id if there is one.

    Args:
        client: Lists the stored runs.
        error: The error of the command's call.
        run_ids: The run ids on the command line, in order.
    """
    if error.reason != "RUN_NOT_FOUND" or not run_ids:
        return error
    try:
        listed = [run.run_id for run in await client.list_runs(limit=_MOST)]
    except AssayError:
        return error
    unknown = next((run_id for run_id in run_ids if run_id not in listed), None)
    if unknown is None:
        return error
    close = nearest(unknown, listed)
    if close is None:
        return error
    return NotFoundError(f"there is no run {unknown!r}: did you mean {close!r}?", reason=error.reason)
