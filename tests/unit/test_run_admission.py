"""What a request for a run may say: told at the door, before anything is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import SpecError
from assay.model.run import AgentSettings, DatasetReading, MetricSettings, RunSettings
from assay_orchestrator.runs.admission import check_settings
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


@pytest.mark.parametrize("name", ["\x1b]52;c;x\x07", "a b", "a\nb", "1a", "", "x" * 65, "é", "a\u2069"])
def test_the_name_of_a_metric_is_checked_for_every_client(name: str) -> None:
    """It is printed on other people's terminals; the rule is that of the spec."""
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    settings = RunSettings("r", AgentSettings("replay"), (MetricSettings(name, {}, "latency"),))
    with pytest.raises(SpecError, match="a metric's name has letters, digits and _") as refused:
        check_settings(settings, limits)
    assert [problem.field for problem in refused.value.problems] == ["metrics[0].name"]
    assert "\x1b" not in refused.value.message


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\u2028b", "a\x9bb"])
def test_names_of_runs_and_teams_hold_no_controls(text: str) -> None:
    """They are printed and logged."""
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    settings = RunSettings(text, AgentSettings("replay"), (MetricSettings("latency"),), team=text)
    with pytest.raises(SpecError, match="control characters") as refused:
        check_settings(settings, limits)
    assert [problem.field for problem in refused.value.problems] == ["name", "team"]
