"""The Python API `assay.list_runs` and `assay.get_run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.client.api.evaluate import connected
from assay.client.api.evaluation import Evaluation
from assay.client.api.frames import arrow_table, data_frame, run_record
from assay.client.api.loop_thread import run_to_end
from assay.client.run_references import find_run_id
from assay.errors import WrongStateError
from assay.filters.run_filter import run_conditions
from assay.model.run import Run
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class Runs(tuple[Run, ...]):
    """Stored runs, newest first."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return a line per run: id, state, verdict and pass rate."""
        lines = [f"<{count_text(len(self), 'run')}>"]
        for item in self:
            rate = item.summary.pass_rate if item.summary is not None else None
            cells = [item.run_id, item.state.value, item.summary.overall_status if item.summary is not None else ""]
            lines.append("  ".join(filter(None, [*cells, f"{rate:.1%} passed" if rate is not None else ""])))
        return "\n ".join(lines)

    def to_pandas(self) -> Any:
        """Return the runs as a pandas DataFrame: a line per run, a column per metric.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame([run_record(run) for run in self])

    def to_arrow(self) -> Any:
        """Return the runs as an Arrow table.

        Raises:
            SetupError: pyarrow is not installed.
        """
        return arrow_table([run_record(run) for run in self])

    def _repr_html_(self) -> str:
        from assay.reports.formats.notebook import runs_html

        return runs_html([run_record(run) for run in self])


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
                    include_figures=True,
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
