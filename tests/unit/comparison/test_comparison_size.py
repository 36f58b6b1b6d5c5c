"""A comparison travels in one message, whatever is compared."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.comparison.comparing import compared, facts

from assay.comparison.compare import MOST_RUNS, ComparedRun, compare_runs
from assay.comparison.facts import MetricFacts
from assay.comparison.model import ComparisonSettings
from assay.comparison.what_changed import changes
from assay.wire.comparison import COMPARISON

MESSAGE_BYTES = 4 * 2**20
METRICS = {name: MetricFacts(name, name, "%") for name in (f"metric_{number}_of_many" for number in range(20))}
CASES = 30


def run(number: int) -> ComparedRun:
    """Return one of the most runs that can be compared: no case comes out as in another one, and ids are long."""
    columns = {name: [float((number >> place % 5) & 1) for place in range(CASES)] for name in METRICS}
    made = compared(f"run-{number}", columns, ids=[f"{place:>0200}" for place in range(CASES)])
    config = {"prompts": {str(at): f"{number} {'Ω' * 100_000}" for at in range(20)}}
    return ComparedRun(replace(facts(f"run-{number}", METRICS), config=config), made.cases)


def test_the_largest_comparison_fits() -> None:
    """26 runs with 20 metrics, long ids and long prompts: fewer cases and shorter texts, and every figure."""
    found = compare_runs([run(number) for number in range(MOST_RUNS)], ComparisonSettings())
    assert COMPARISON.to_wire(found).ByteSize() < MESSAGE_BYTES
    assert sum(map(len, found.flipped.values())) <= 1_000
    assert max(map(len, found.flipped.values())) == 3
    assert max(found.flipped_count.values()) > 3
    assert len(found.changes) == 20


def test_long_texts_are_compared_whole() -> None:
    """Texts that differ at their ends have changed; what is shown says how long they are."""
    (found,) = changes([{"prompt": "a" * 10_000 + end} for end in "bc"])
    assert found.path == "prompt"
    assert found.values == ("a" * 4_000 + "… (10,001 characters)",) * 2
