"""Stored runs in Python: `assay.runs` and `assay.run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.client.evaluate import connected
from assay.client.evaluation import Evaluation
from assay.client.frames import arrow_table, data_frame, run_record
from assay.client.loop_thread import run_to_end
from assay.client.run_references import find_run_id
from assay.errors import WrongStateError
from assay.model.run import Run
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class Runs(tuple[Run, ...]):
    """Stored runs, newest first."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return a line for each run: its id, state, verdict and pass rate."""
        lines = [f"<{count_text(len(self), 'run')}>"]
        for one in self:
            rate = one.summary.pass_rate if one.summary is not None else None
            found = [one.run_id, one.state.value, one.summary.overall_status if one.summary is not None else ""]
            lines.append("  ".join(filter(None, [*found, f"{rate:.1%} passed" if rate is not None else ""])))
        return "\n ".join(lines)

    def to_pandas(self) -> Any:
        """Return them as a pandas DataFrame: one line per run, one column per metric.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame([run_record(run) for run in self])

    def to_arrow(self) -> Any:
        """Return them as an Arrow table.

        Raises:
            SetupError: pyarrow is not installed.
        """
        return arrow_table([run_record(run) for run in self])

    def _repr_html_(self) -> str:
        from assay.reports.formats.notebook import runs_html

        return runs_html([run_record(run) for run in self])


def runs(
    limit: int = 20,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    where: str = "",
    order_by: str = "",
    server: str | None = None,
) -> Runs:
    """Return stored runs with the figures of their summaries, newest first.

    Args:
        limit: How many at most.
        name: Only runs of this name.
        labels: Only runs with these labels.
        where: Further conditions, such as "state:succeeded since:2026-11-01" (docs/filters.md).
        order_by: "created", "ended", "name" or "pass_rate", behind "-" the largest first; empty for "-created".
        server: An orchestrator's address; None for the local stack.

    Raises:
        InvalidInputError: `where` or `order_by` is wrong; holds every problem.
        AssayError: They cannot be read.
    """

    async def read() -> Runs:
        async with connected(server) as (client, _):
            return Runs(
                await client.list_runs(
                    limit, name=name, labels=labels or {}, where=where, order_by=order_by, include_figures=True
                )
            )

    return run_to_end(read())


def run(reference: str = "latest", *, server: str | None = None) -> Evaluation:
    """Return a stored run with its rows, as `assay.evaluate` returned it; of an unfinished one, the rows so far.

    Args:
        reference: A run's id, a unique beginning of one, or "latest".
        server: An orchestrator's address; None for the local stack.

    Raises:
        NotFoundError: There is no such run.
        WrongStateError: It has no row yet.
    """

    async def read() -> Evaluation:
        async with connected(server) as (client, _):
            found = await client.get_run(await find_run_id(client, reference))
            if found.summary is None:
                raise WrongStateError(f"run {found.run_id} has no row yet")
            return Evaluation(found, tuple([row async for row in client.list_results(found.run_id)]))

    return run_to_end(read())
