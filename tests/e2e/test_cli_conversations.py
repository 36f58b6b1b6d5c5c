"""Conversations through the command: every turn is scored, and stands in the report."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

ADK = {
    "eval_set_id": "library",
    "eval_cases": [
        {
            "eval_id": "borrow",
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": "Have you got Emma?"}]},
                    "final_response": {"role": "model", "parts": [{"text": "Yes, two copies."}]},
                    "intermediate_data": {"tool_uses": [{"name": "search", "args": {"title": "Emma"}}]},
                },
                {
                    "user_content": {"role": "user", "parts": [{"text": "Keep one for me."}]},
                    "final_response": {"role": "model", "parts": [{"text": "Done."}]},
                },
            ],
        }
    ],
}
PLAIN = [
    {
        "id": "borrow",
        "turns": [
            {"input": "Have you got Emma?", "references": ["Yes, two copies."], "expected_tools": ["search"]},
            {"input": "Keep one for me.", "references": ["Done."]},
        ],
    }
]
AGENT = """
def answer(request):
    if request.turn_index == 1:
        return {last}
    return {first}
"""
RUDE = '{"text": "I do not know, go away", "tool_calls": []}'
LAST = '{"text": "Done.", "tool_calls": []}'
GOOD = '{"text": "Yes, two copies.", "tool_calls": [{"name": "search", "arguments": {"title": "Emma"}}]}'
SPEC: dict[str, Any] = {
    "name": "talks",
    "agent": {"adapter": "python", "target": "agent:answer", "retries": 0},
    "metrics": ["exact_match", "tool_calls", "latency"],
    "gates": ["pass_rate == 1"],
}


def asked(
    cli: Cli, dataset: object, first: str, *, status: int, last: str = '"Done."', **spec: Any
) -> tuple[dict[str, Any], str]:
    """Run over a dataset with an agent whose answer to the first turn is given; return the report and the output."""
    cli.write("talks.json", json.dumps(dataset))
    cli.write("agent.py", AGENT.format(first=first, last=last))
    cli.write("assay.yaml", {**SPEC, "dataset": "talks.json", **spec})
    shutil.rmtree(cli.folder / "out", ignore_errors=True)  # a report replaces none of another run
    done = cli.run("run", "assay.yaml", "--output-dir", "out", status=status)
    report: dict[str, Any] = json.loads((cli.folder / "out/results.json").read_text("utf-8"))
    return report, done.stdout


@pytest.mark.parametrize("dataset", [ADK, PLAIN], ids=["adk", "plain"])
def test_a_wrong_first_turn_fails_the_conversation(shared_cli: Cli, dataset: object) -> None:
    """An agent that fails the first of two turns does not pass by the second: value, verdict, reason, report."""
    report, console = asked(shared_cli, dataset, RUDE, status=1)
    (row,) = report["rows"]
    assert row["passed"] is False
    assert (row["scores"]["exact_match"]["value"], row["scores"]["tool_calls"]["value"]) == (0.5, 0.0)
    assert row["message"].startswith(
        'exact_match: the answer is "I do not know, go away", the reference "Yes, two copies." (turn 1); '
        "tool_calls: missing tool search (expected search"
    )
    assert row["message"].endswith("; called no tool) (turn 1)")
    assert "verdict  FAIL" in console
    failing = console[console.index("  borrow: exact_match") :].splitlines()
    assert failing[1:5] == [
        "    turn 1 of 2", "    asked: Have you got Emma?", "    got:   I do not know, go away",
        "    want:  Yes, two copies.",
    ]  # fmt: skip
    assert not failing[5].strip(), "the second turn is right"
    view = shared_cli.run("runs", "show", report["run"]["run_id"], "--case", "borrow").stdout
    places = [
        view.index(part)
        for part in ("turn 1 of 2", "got:    I do", "missing: ", "turn 2 of 2", "Done.", "scores:\n  e")
    ]
    assert places == sorted(places)
    first, second = row["turns"]
    assert (first["question"], first["answer"]) == ("Have you got Emma?", "I do not know, go away")
    assert first["references"] == ["Yes, two copies."]
    assert (first["scores"]["exact_match"]["value"], second["scores"]["exact_match"]["value"]) == (0.0, 1.0)
    assert first["scores"]["tool_calls"]["detail"]["missing"] == ["search"]
    assert "tool_calls" not in second["scores"]  # the second turn expects no call
    assert (second["question"], second["answer"]) == (row["question"], row["answer"]) == ("Keep one for me.", "Done.")


@pytest.mark.parametrize("dataset", [ADK, PLAIN], ids=["adk", "plain"])
def test_a_conversation_passes_with_all_its_turns(shared_cli: Cli, dataset: object) -> None:
    """Right answers and calls in every turn pass; the calls of every turn are in the report."""
    report, _ = asked(shared_cli, dataset, GOOD, status=0)
    (row,) = report["rows"]
    assert (row["passed"], row["scores"]["exact_match"]["value"], row["scores"]["tool_calls"]["value"]) == (True, 1, 1)
    assert [call["name"] for call in row["turns"][0]["response"]["tool_calls"]] == ["search"]


def test_an_adk_eval_set_is_scored_as_by_adk(shared_cli: Cli) -> None:
    """1 or 0 a turn by name and exact arguments, the mean over all turns: those that expect no call count, too."""
    rule = {"tool_calls": {"trajectory": "exact", "score": "match", "without_expected": "no_calls"}}
    further = GOOD.replace('"Emma"}', '"Emma", "n": 1}')
    for first, value in ((GOOD, 1.0), (further, 0.5), ('{"text": "Yes.", "tool_calls": []}', 0.5)):
        report, _ = asked(shared_cli, ADK, first, status=0, metrics=[rule], gates=["agent_errors <= 0"], last=LAST)
        (row,) = report["rows"]
        assert row["scores"]["tool_calls"]["value"] == value
        assert row["passed"] is (value == 1.0)
    report, console = asked(shared_cli, ADK, GOOD, status=3, metrics=[rule], gates=["tool_calls >= 0"])
    assert "do not report their tool calls" in console  # the second turn is answered with a plain text
    assert report["rows"][0]["passed"] is None


def test_a_spec_chooses_mean_worst_or_last(shared_cli: Cli) -> None:
    """`turns: worst` takes the lowest value, `last` the last answer alone; another word is refused with its line."""
    worst, _ = asked(shared_cli, PLAIN, RUDE, status=1, turns="worst")
    assert worst["results"]["exact_match"]["value"] == 0.0
    assert worst["config"]["turns"] == "worst"
    last, _ = asked(shared_cli, PLAIN, RUDE, status=0, turns="last")
    assert last["results"]["exact_match"]["value"] == 1.0
    assert last["results"]["tool_calls"]["skipped_count"] == 1
    assert last["rows"][0]["turns"][0]["answer"] == "I do not know, go away"
    shared_cli.write("assay.yaml", {**SPEC, "dataset": "talks.json", "turns": "all"})
    refused = shared_cli.run("validate", "assay.yaml", status=2)
    assert "turns" in refused.stderr
    assert "must be one of mean, worst, last, not 'all'" in refused.stderr


def test_a_single_question_has_no_turns_in_the_report(shared_cli: Cli) -> None:
    """The rows of other cases keep their shape."""
    report, _ = asked(shared_cli, [{"id": "a", "question": "Emma?", "references": ["x"]}], '"x"', status=0)
    (row,) = report["rows"]
    assert "turns" not in row
    assert row["scores"]["exact_match"]["detail"] == {"version": "1"}


def test_a_middle_turn_that_fails_is_an_agent_error(shared_cli: Cli) -> None:
    """Later turns are not asked, and stand in the report without an answer."""
    talk = [{"id": "t", "turns": [{"input": str(n), "references": [str(n)]} for n in range(3)]}]
    shared_cli.write("talks.json", json.dumps(talk))
    shared_cli.write(
        "agent.py", "def answer(question):\n    if question == '1': raise RuntimeError('down')\n    return question\n"
    )
    shared_cli.write("assay.yaml", {**SPEC, "dataset": "talks.json", "max_agent_errors": "100%"})
    shared_cli.run("run", "assay.yaml", "--output-dir", "out", status=1)
    (row,) = json.loads((shared_cli.folder / "out/results.json").read_text("utf-8"))["rows"]
    assert (row["status"], row["passed"]) == ("error", False)
    assert [turn["answer"] for turn in row["turns"]] == ["0", "", None]
    assert [turn["status"] for turn in row["turns"]] == ["success", "error", None]
    assert [turn["scores"]["exact_match"]["value"] for turn in row["turns"]] == [1.0, 0.0, 0.0]


def test_replay_says_that_earlier_turns_are_not_scored(shared_cli: Cli) -> None:
    """A dataset records the last answer alone: validate counts the cases whose earlier turns expect something."""
    talk = {**PLAIN[0], "recorded": "Done."}
    shared_cli.write("talks.json", json.dumps([talk, {**talk, "id": "other"}]))
    shared_cli.write("assay.yaml", {**SPEC, "dataset": "talks.json", "agent": {"adapter": "replay"}})
    out = shared_cli.run("validate", "assay.yaml", status=0).stdout
    assert "earlier turns" in out
    assert "(and 1 more)" in out
    shared_cli.run("run", "assay.yaml", "--output-dir", "out", status=0)
    rows = json.loads((shared_cli.folder / "out/results.json").read_text("utf-8"))["rows"]
    assert [row["scores"]["exact_match"]["value"] for row in rows] == [1.0, 1.0]
    assert [turn["scores"] for turn in rows[0]["turns"]] == [{}, {}]
