"""Every format on odd runs: it is written, says what is missing, and gives what the run's own report would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.report_documents import HOSTILE, agent_error, document, failed, metric, row, score, written

from assay.model.report_settings import REPORTS

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = metric(None, n_scored=0, passed=0, meets_threshold=None, interval=None)
OLD = {"metric": "semantic_similarity", "value": 0.5, "n_scored": 1, "n_skipped": 0, "n_error": 0, "passed": 0,
       "failed": 1, "threshold": None, "meets_threshold": None, "target": None, "meets_target": None,
       "rule": "at_least"}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "no rows": document([], {"similarity": NOTHING}, overall_status="NO_DATA", exit_status=3, gates=[]),
    "one row": document([row()]),
    "all errors": document([agent_error(f"c{index}") for index in range(3)], {"similarity": NOTHING}),
    "all equal": document([row(f"c{index}") for index in range(5)]),
    "no verdicts": document([row(passed=None, scores={"similarity": score(None)})], {"similarity": NOTHING}),
    "no metrics": document([row(scores={}, passed=None)], {}),
    "partial": document([row()], partial=True, total=9, finished=1),
    "repeats": document([row("c1"), failed("c1", repeat=1), row("c2"), row("c2", repeat=1)]),
    "an older version": document([row()], {"similarity": OLD}),
    "hostile": document([failed(HOSTILE, question=HOSTILE, answer=HOSTILE, references=[HOSTILE], reason=HOSTILE)]),
    "arabic": document([failed("حالة", question="ما هي عاصمة السودان؟", answer="الخرطوم.", references=["الخرطوم"])]),
    "long": document([failed("c1", question="q" * 100_000, answer="a " * 100_000)]),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("run", RUNS)
def test_a_format_is_written_for_any_run(tmp_path: Path, run: str, name: str) -> None:
    """No run is too odd for a report, and every file has something in it."""
    paths = written(tmp_path, RUNS[run], name)
    assert paths
    assert all(path.stat().st_size for path in paths) or (name, run) == ("jsonl", "no rows")
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_same_each_time(tmp_path: Path, name: str) -> None:
    """Writing it again later gives the same bytes: nothing in it is of the moment of writing."""
    found = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        found.append([path.read_bytes() for path in written(folder, RUNS["repeats"], name)])
    assert found[0] == found[1]
