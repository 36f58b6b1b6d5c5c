"""Gates from the spec to the exit status: what the console and the report say of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

SPEC = {
    "name": "gated",
    "dataset": "qa.jsonl",
    "agent": {"adapter": "replay"},
    "metrics": ["exact_match", "latency", "hit_rate"],
    "reports": ["json"],
}


def gated(cli: Cli, *gates: str, repeats: int = 1) -> Cli:
    """Write a spec with gates and a dataset in which 4 of 5 recorded answers are right."""
    lines = [
        {"id": f"c{i}", "question": "q", "answer": "right", "recorded": {"text": "right" if i else "wrong"},
         "category": "first part" if i < 2 else "rest", "tags": ["even"] if i % 2 == 0 else []}
        for i in range(5)
    ]  # fmt: skip
    cli.write("qa.jsonl", "\n".join(map(json.dumps, lines)))
    cli.write("assay.yaml", {**SPEC, "gates": list(gates), "repeats": repeats})
    return cli


def outcomes(cli: Cli) -> list[dict[str, Any]]:
    """The gates in the report."""
    found: list[dict[str, Any]] = json.loads((cli.folder / "out/results.json").read_text("utf-8"))["summary"]["gates"]
    return found


def test_gates_that_hold_exit_with_0_and_tell_of_targets(shared_cli: Cli) -> None:
    """Every kind of subject is compared; a goal that is missed is shown and decides nothing."""
    gated(
        shared_cli,
        "pass_rate >= 0.8, goal >= 0.9",
        "exact_match > 0.7, goal >= 0.8",
        'category."first part".pass_rate == 0.5',
        "tag.even.exact_match >= 0.6",
        "agent_errors <= 0",
        "pass_hat_k.2 >= 0.8",
        repeats=2,
    )
    shown = shared_cli.run("run", "assay.yaml", "--output-dir", "out").stdout
    assert [gate["outcome"] for gate in outcomes(shared_cli)] == ["pass"] * 6
    assert [gate["meets_goal"] for gate in outcomes(shared_cli)] == [False, True, None, None, None, None]
    assert [gate["actual"] for gate in outcomes(shared_cli)] == pytest.approx([0.8, 0.8, 0.5, 2 / 3, 0.0, 0.8])
    lines = [line for line in shown.splitlines() if line.startswith("gate  PASS")]
    assert len(lines) == 6
    assert lines[0] == "gate  PASS  pass_rate >= 0.8, goal >= 0.9  actual 0.8 [0.1335, 0.9905]  goal missed"
    assert lines[1].endswith("actual 0.8 [0.1335, 0.9905]  goal reached")
    assert "goal" not in lines[2]


@pytest.mark.parametrize(
    ("gates", "status", "expected"),
    [
        (["hit_rate >= 0"], 3, ["incomplete"]),
        (["category.last.pass_rate >= 0", "pass_rate >= 0.5"], 3, ["incomplete", "pass"]),
        (["hit_rate >= 0", "pass_rate > 0.8, goal > 0.9", "exact_match > 0"], 1, ["incomplete", "fail", "pass"]),
    ],
)
def test_the_worst_gate_decides_the_exit_status(
    shared_cli: Cli, gates: list[str], status: int, expected: list[str]
) -> None:
    """A gate that fails is 1, before one that is incomplete, 3; the others are reported all the same."""
    shown = gated(shared_cli, *gates).run("run", "assay.yaml", "--output-dir", "out", status=status).stdout
    assert [gate["outcome"] for gate in outcomes(shared_cli)] == expected
    for gate in outcomes(shared_cli):
        assert (gate["actual"] is None) is bool(gate["message"]) is (gate["outcome"] == "incomplete")
        assert f"gate  {gate['outcome'].upper()}  {gate['expression']}" in shown
        assert gate["message"] in shown


def test_wrong_gates_are_refused_before_anything_starts(cli: Cli) -> None:
    """Every wrong gate is named at its place, with what to write instead."""
    gated(cli, "pass_rat > 1", "pass_rate > 0.9, goal > 0.8", "pass_at_k.3 >= 0.5", "tag.even >= 1", repeats=2)
    said = cli.run("run", "assay.yaml", status=2).stderr
    for index, sentence in enumerate(
        ("did you mean 'pass_rate'?", "exchange them", "raise repeats", "tag.NAME.pass_rate")
    ):
        assert any(f"gates[{index}]" in line and sentence in line for line in said.splitlines())
    assert not cli.home.exists()
