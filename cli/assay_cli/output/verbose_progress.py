"""The progress of `assay run --verbose`: a block for each row that is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.progress.run_progress import PlainProgress
from assay.model.run import CaseResult
from assay_cli.output.row_blocks import RowBlocks

if TYPE_CHECKING:
    from typing import TextIO

    from assay.model.run import Run, StateChange


class VerboseProgress(PlainProgress):
    """Blocks in place of lines on how far the run is.

    Args:
        out: Where the blocks go.
    """

    every_s = float("inf")

    def __init__(self, run: Run, out: TextIO) -> None:
        super().__init__(run)
        self._blocks = RowBlocks(run, out)

    def take(self, event: Run | StateChange | CaseResult) -> None:
        """Take one snapshot or event."""
        super().take(event)
        if isinstance(event, CaseResult):
            self._blocks.write(event, self._done)

    def show(self) -> None:
        """Show nothing: each block has its number."""
