"""Whether a run's spend cap may be changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.specs.judging import check_judge

if TYPE_CHECKING:
    from assay.model.run import Run, SpendCap


def check_spend_cap(run: Run, cap: SpendCap) -> None:
    """Raise unless a run may get this cap on its judging spend.

    Raises:
        InvalidInputError: The run has no judge, or the cap is not an amount of money.
    """
    judge = run.settings.judge
    if judge is None:
        raise InvalidInputError([Problem(f"run {run.run_id} has no judge, so it spends nothing", "spend_cap")])
    if problems := check_judge(dataclasses.replace(judge, spend_cap_usd=cap.usd)):
        raise InvalidInputError(problems)
