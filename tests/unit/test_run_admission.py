"""What a request for a run may say: told at the door, before anything is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import SpecError
from assay.results import AgentSettings, DatasetReading, MetricSettings, RunSettings
from assay_orchestrator.admission import check_settings
from assay_orchestrator.settings import Settings


@pytest.mark.parametrize(("count", "accepted"), [(100, True), (1000, False)])
def test_what_a_client_says_about_its_file_is_kept_within_bounds(count: int, accepted: bool) -> None:
    """It is stored with the run and sent with every look at it, so that it may not be large."""
    reading = DatasetReading("qa.jsonl", "plain/jsonl", "0" * 64, {"input": "q"}, warnings=("w" * 1000,) * count)
    settings = RunSettings("r", AgentSettings("replay"), (MetricSettings("latency"),), dataset=reading)
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    if accepted:
        assert check_settings(settings, limits).dataset == reading
        return
    with pytest.raises(SpecError, match="leave warnings out") as caught:
        check_settings(settings, limits)
    assert [problem.field for problem in caught.value.problems] == ["dataset"]
