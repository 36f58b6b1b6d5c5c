"""The run whose stored answers another run scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import Problem, SpecError, WrongStateError
from assay_orchestrator.store.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from assay.model.run import DatasetRef, Run, RunSettings


def check_source(source: Run, settings: RunSettings) -> None:
    """Raise unless the answers of a run can be scored with other settings.

    Raises:
        WrongStateError: It is active, so that answers may still come.
        SpecError: It has another number of repeats.
    """
    if source.state in ACTIVE_STATES:
        raise WrongStateError(
            f"run {source.run_id} is {source.state.value}: its answers can be scored when it has ended or is paused",
            reason="RUN_ACTIVE",
        )
    if source.settings.repeats != settings.repeats:
        raise SpecError([Problem(f"must be {source.settings.repeats}, as in run {source.run_id}", "repeats")])


def check_same_dataset(source: Run, dataset: DatasetRef) -> None:
    """Raise unless a dataset is that of the run whose answers are scored.

    Raises:
        SpecError: It is another one.
    """
    if source.dataset.dataset_id != dataset.dataset_id:
        raise SpecError([Problem(f"must be that of run {source.run_id}, whose answers are scored", "dataset_id")])
