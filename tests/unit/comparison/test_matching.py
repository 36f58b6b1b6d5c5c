"""Which cases of two runs are compared: those of one id or, where most ids differ, those of one content."""

from __future__ import annotations

from tests.unit.comparison.comparing import METRICS, facts

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.model import Comparison, ComparisonSettings


def run(name: str, cases: dict[str, tuple[bytes, float]]) -> ComparedRun:
    """Return a run of cases by id, each with its content and whether it is right."""
    metrics = {"exact_match": METRICS["exact_match"]}
    scores = CaseScores(tuple(metrics))
    for case_id, (content, value) in cases.items():
        scores.take(case_id, {"exact_match": value}, passed=value == 1, content=content)
    return ComparedRun(facts(name, metrics, total=len(cases), finished=len(cases)), scores)


def compared(*runs: dict[str, tuple[bytes, float]]) -> Comparison:
    return compare_runs([run(f"run-{at}", cases) for at, cases in enumerate(runs)], ComparisonSettings())


def numbered(count: int, value: float, start: int = 0) -> dict[str, tuple[bytes, float]]:
    return {f"n{at}": (f"q{at}".encode(), value) for at in range(start, start + count)}


def test_equal_questions_under_other_ids_are_one_case() -> None:
    """A dataset whose ids were set later is the same dataset; each case has its id in each run."""
    hashed = {f"h{at}": (f"q{at}".encode(), 1.0) for at in reversed(range(10))}
    comparison = compared(hashed, numbered(10, 1.0) | {"n3": (b"q3", 0.0)})
    (pair,) = comparison.pairs
    assert (
        pair.matched_by,
        pair.common_case_count,
        pair.a_only_case_count,
        pair.b_only_case_count,
        pair.changed_case_count,
    ) == ("content", 10, 0, 0, 0)
    assert not comparison.mismatches
    ((lost,), counts) = pair.flipped_cases, (pair.lost_case_count, pair.won_case_count)
    assert (lost.case_id, lost.case_id_b, counts) == ("h3", "n3", (1, 0))


def test_half_of_the_ids_are_enough_to_match_by_id() -> None:
    """If half of the ids match, content is ignored: a changed question is a changed case."""
    moved = {f"n{at}": (f"q{at + 1}".encode(), 1.0) for at in range(5)}
    others = {f"x{at}": (f"q{at}".encode(), 1.0) for at in range(5, 10)}
    (pair,) = compared(numbered(10, 1.0), moved | others).pairs
    assert (pair.matched_by, pair.common_case_count, pair.changed_case_count) == ("id", 5, 5)


def test_ids_do_not_match_where_contents_do() -> None:
    """Never both: a case of an id that means another question in each run is in one run alone."""
    other = {"n0": (b"new", 1.0)} | {f"x{at}": (f"q{at}".encode(), 1.0) for at in range(1, 10)}
    (pair,) = compared(numbered(10, 1.0), other).pairs
    assert (
        pair.matched_by,
        pair.common_case_count,
        pair.a_only_case_count,
        pair.b_only_case_count,
        pair.changed_case_count,
    ) == ("content", 9, 1, 1, 0)


def test_ids_that_find_the_same_cases_are_kept() -> None:
    """Two selections of one dataset have few ids in common, and no case of another id: ids match them."""
    (pair,) = compared(numbered(6, 1.0), numbered(6, 1.0, 4)).pairs
    assert (pair.matched_by, pair.common_case_count, pair.a_only_case_count, pair.b_only_case_count) == ("id", 2, 4, 4)


def test_copies_are_matched_one_by_one() -> None:
    """Equal cases are matched in order; a surplus copy belongs to its run alone."""
    one = {f"a{at}": (b"same", float(at > 0)) for at in range(3)}
    other = {f"b{at}": (b"same", float(at > 0)) for at in range(4)}
    (pair,) = compared(one, other).pairs
    assert (pair.common_case_count, pair.b_only_case_count, pair.metric("exact_match").tie_count) == (3, 1, 3)


def test_every_run_is_matched_with_the_first() -> None:
    """Of three runs, two with other ids are compared with each other too."""
    third = {f"t{at}": (f"q{at}".encode(), 0.0) for at in range(8)}
    comparison = compared(numbered(8, 1.0), {f"s{at}": (f"q{at}".encode(), 1.0) for at in range(8)}, third)
    assert [(pair.matched_by, pair.common_case_count, pair.lost_case_count) for pair in comparison.pairs] == [
        ("content", 8, 0),
        ("content", 8, 8),
        ("content", 8, 8),
    ]
