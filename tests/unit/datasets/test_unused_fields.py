"""What cases bring along for metrics that a run does not compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.client.input_checks import check_inputs
from assay.datasets import open_dataset, records_dataset
from assay.specs.loader import spec_from_mapping

Write = Callable[..., str]

CHECKED = {"question": "q", "assertions": [{"type": "contains", "value": "a"}]}


def warnings_of(records: list[dict[str, Any]], *metrics: Any) -> list[str]:
    """Return the warnings about some records in a run of some metrics, without those about the metrics."""
    spec = spec_from_mapping({"metrics": list(metrics)}, needs_dataset=False, needs_agent=False)
    warnings = check_inputs(spec, records_dataset(records)).warnings
    return [str(warning) for warning in warnings if not warning.field.startswith("metrics.")]


@pytest.mark.parametrize(
    ("record", "metrics", "message"),
    [
        ({"thresholds": {"rouge": 0.3}}, ["exact_match"], "thresholds.rouge: holds a threshold that nothing is"),
        ({"thresholds": {"rogue": 0.3}}, ["rouge"], "the run computes no rogue; did you mean 'rouge'?"),
        ({"thresholds": {"mine": 0.3}}, [{"mine": {"kind": "rouge"}}], None),
        ({"thresholds": {"rouge": 0.3}}, [{"mine": {"kind": "rouge"}}], "the run computes no rouge: add the metric"),
        ({"threshold": 0.3}, ["latency"], "the run computes neither semantic_similarity nor assertions"),
        ({"threshold": 0.3}, ["assertions"], None),
        ({"threshold": 0.3}, ["semantic_similarity"], None),
        ({"threshold": 0.3}, [{"checks": {"kind": "assertions"}}], None),
        ({"thresholds": {"semantic_similarity": 0.3}}, ["assertions"], "no semantic_similarity: add the metric"),
        ({"assertions": CHECKED["assertions"]}, ["latency"], "assertions: holds checks that nothing is compared with"),
        ({"assertions": CHECKED["assertions"]}, [{"checks": {"kind": "assertions"}}], None),
    ],
)
def test_a_warning_tells_what_nothing_reads(record: dict[str, Any], metrics: list[Any], message: str | None) -> None:
    """Thresholds and checks of a case that no metric of the run reads are told, once a kind, with their place."""
    warnings = warnings_of([{"question": "p"}, {"question": "q", **record}, {"question": "r", **record}], *metrics)
    if message is None:
        assert warnings == []
    else:
        (warning,) = warnings
        assert warning.startswith("records: record 2, ")
        assert message in warning
        assert warning.endswith("(and 1 more)")


def test_very_many_names_are_not_all_kept() -> None:
    """Memory stays bounded, whatever the dataset."""
    records = [{"question": str(number), "thresholds": {f"m{number}": 1}} for number in range(1000)]
    assert len(warnings_of(records, "latency")) == 200


def test_a_file_tells_the_line(write: Write) -> None:
    """In a file the warning names the line of the first such record."""
    (brought,) = open_dataset(write("x.jsonl", [{"question": "p"}, CHECKED])).check().optional_fields
    assert (brought.field, brought.case_count, brought.record, brought.line) == ("assertions", 1, 2, 2)
