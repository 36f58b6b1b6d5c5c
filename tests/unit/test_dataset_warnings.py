"""What is odd about a dataset is a warning of Python's, at the line that gave the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import assay

if TYPE_CHECKING:
    from pathlib import Path

ROWS = """{"answer": "a", "reference": "a"}
{"answer": "b", "reference": "c", "skip": true}
{"answer": "x", "weight": "heavy"}
"""


def test_a_file_that_is_scored_warns_where_it_was_named(tmp_path: Path) -> None:
    """What was skipped, and what was left out because it is wrong, is told; the category can be filtered."""
    file = tmp_path / "rows.jsonl"
    file.write_text(ROWS)
    with pytest.warns(assay.DatasetWarning) as caught:
        scores, _ = assay.score_file("exact_match", file, on_bad_case="skip")
    assert [score.value for score in scores] == [1.0]
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3
    assert any("1 record is skipped" in text for text in said)
    assert any("rows.jsonl:3" in text and "weight" in text for text in said)
    assert {warning.filename for warning in caught} == {__file__}


def test_a_file_with_wrong_records_is_refused_unless_they_may_be_left_out(tmp_path: Path) -> None:
    """Nothing is scored of a file that is wrong, unless the caller says so."""
    file = tmp_path / "rows.jsonl"
    file.write_text(ROWS)
    with pytest.raises(assay.AssayError, match="weight"):
        assay.score_file("exact_match", file)
