"""The Python API `assay.list_runs` and `assay.get_run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.api.evaluate import connected
from assay.client.api.evaluation import Evaluation
from assay.client.api.loop_thread import run_to_end
from assay.client.api.runs import Runs
from assay.client.run_references import find_run_id
from assay.errors import WrongStateError
from assay.filters.run_filter import run_conditions
from assay.model.views import RunView

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_runs(
    limit: int = 20,
    *,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    where: str | None = None,
    order_by: str | None = None,
    server: str | None = None,
) -> Runs:
    """Return stored runs with the figures of their summaries, newest first.

    Args:
        limit: Maximum number of runs.
        name: Only runs of this name; None for any.
        labels: Only runs with these labels.
        where: Further conditions, such as "state:completed since:2026-11-01" (docs/filters.md); None for none.
        order_by: "created", "ended", "name", "pass_rate" or another figure, such as a metric, descending with a leading
            "-"; None for "-created".
        server: Address of an orchestrator; None for the local stack.

    Raises:
        InvalidInputError: `where` or `order_by` is wrong; lists every problem.
        AssayError: The runs cannot be read.
    """

    async def read() -> Runs:
        async with connected(server) as (client, _):
            return Runs(
                await client.list_runs(
                    limit,
                    where=run_conditions(where or "", name=name or "", labels=labels),
                    order_by=order_by or "",
                    view=RunView.FIGURES,
                )
            )

    return run_to_end(read())


def get_run(reference: str = "latest", *, server: str | None = None) -> Evaluation:
    """Return a stored run with its rows, as `assay.evaluate` does; an unfinished run has its rows so far.

    Args:
        reference: Id of a run, a unique prefix of it, or "latest".
        server: Address of an orchestrator; None for the local stack.

    Raises:
        NotFoundError: The run does not exist.
        WrongStateError: The run has no rows yet.
    """

    async def read() -> Evaluation:
        async with connected(server) as (client, _):
            stored = await client.get_run(await find_run_id(client, reference))
            if stored.summary is None:
                raise WrongStateError(f"run {stored.run_id} has no rows yet")
            return Evaluation(stored, tuple([row async for row in client.list_rows(stored.run_id)]))

    return run_to_end(read())
