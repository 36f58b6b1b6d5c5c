"""Recorded answers and verdicts: `recorded`, `judge: {replay: FILE}` and `--record-verdicts FILE`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import assay
from assay.testing.judges import says, user_of
from assay.testing.providers import ScriptedProvider

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli

    from assay.testing.providers import ProviderRequest, Reply


AGENT = """\
def answer(request):
    return request.input.upper() + MARK
"""
RUBRIC = """\
name: tone
description: Whether it is friendly.
scale: {minimum: 1, maximum: 5, whole: true}
criteria:
  - {name: politeness, description: Whether the customer is treated with respect.}
"""
MODEL = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9"}
STRUCTURED = {"reasoning": "Nearly.", "accuracy": 0.9, "completeness": 0.8, "relevance": 1.0, "overall_score": 0.85}


@pytest.fixture
def cases(judged_project: Cli) -> Cli:
    """Return a project of three cases and an agent that answers in capitals, over the shared stack and its judge."""
    return with_cases(judged_project)


def with_cases(project: Cli) -> Cli:
    """Give a project three cases and an agent that answers in capitals."""
    lines = [{"id": f"c{n}", "question": f"q{n}", "reference": f"Q{n}"} for n in range(3)]
    project.write("qa.jsonl", "\n".join(map(json.dumps, lines)))
    project.write("agent.py", AGENT.replace("MARK", "''"))
    return project


def spec(cli: Cli, judge: dict[str, Any], metric: str = "quality", **more: Any) -> None:
    """Write a spec with this judge."""
    agent = {"adapter": "python", "target": "agent:answer"}
    cli.write("assay.yaml", {"name": "r", "dataset": "qa.jsonl", "agent": agent, "metrics": [metric], "judge": judge,
                             **more})  # fmt: skip


def write_verdicts(cli: Cli, *lines: dict[str, Any]) -> None:
    """Write a file of recorded verdicts."""
    cli.write("verdicts.jsonl", "\n".join(map(json.dumps, lines)))


def recorded(case: str, answer: str, score: object = 5, **more: Any) -> dict[str, Any]:
    """Return one line of such a file."""
    verdict = {"reasoning": "By hand.", "score": score}
    return {"case": case, "rubric": "quality", "answer": answer, "judge": "by hand", "verdict": verdict, **more}


def report(cli: Cli, folder: str) -> dict[str, Any]:
    """Return the report that a run wrote."""
    found: dict[str, Any] = json.loads((cli.folder / folder / "results.json").read_text())
    return found


@pytest.mark.parametrize(
    ("metric", "verdict", "rubric"),
    [
        ("quality", {"reasoning": "It is right.", "score": 4}, {}),
        ("judge_score", STRUCTURED, {}),
        ("judge_score", {"reasoning": "Warm.", "politeness": 5}, {"rubric": "tone.yaml"}),
    ],
)
def test_verdicts_of_one_run_take_the_judges_place_in_another(
    metric: str, verdict: dict[str, Any], rubric: dict[str, Any], cases: Cli
) -> None:
    """With a judge and --record-verdicts, then with the file alone: the same scores and reasons, nothing paid."""
    cases.write("tone.yaml", RUBRIC)
    with ScriptedProvider(says(verdict)) as provider:
        judge = {"provider": "openai", "model": "m", "base_url": provider.openai_url, "canaries": 0, **rubric}
        spec(cases, judge, metric, repeats=2)
        done = cases.run("run", "assay.yaml", "--output-dir", "asked", "--record-verdicts", "verdicts.jsonl")
        assert "verdicts: 6 recorded in verdicts.jsonl" in done.stderr
        asked = len(provider.requests)
    assert asked == 6
    spec(cases, {"replay": "verdicts.jsonl", **rubric}, metric, repeats=2)
    done = cases.run("run", "assay.yaml", "--output-dir", "again")
    assert "judge  none is asked: verdicts recorded in verdicts.jsonl (openai:m@" in done.stderr
    assert "verdicts  6: 6 recorded in verdicts.jsonl (openai:m@" in done.stdout
    assert done.stdout.count("no judge was asked") == 1
    assert "$" not in done.stdout
    before, after = report(cases, "asked"), report(cases, "again")
    assert after["results"][metric]["value"] == before["results"][metric]["value"]
    for first, second in zip(before["rows"], after["rows"], strict=True):
        assert second["scores"][metric]["value"] == first["scores"][metric]["value"]
        assert second["scores"][metric]["judgements"][0]["reasoning"] == verdict["reasoning"]
        assert second["scores"][metric]["judgements"][0].get("cost_usd") is None
    judging = after["summary"]["judging"]
    assert (judging["recorded_count"], judging["asked_count"], judging["failed_count"], judging["cost_usd"]) == (
        6,
        0,
        0,
        None,
    )


def test_verdicts_of_checks_are_recorded_by_their_criterion(cases: Cli) -> None:
    """Two checks of one rubric on one answer are two verdicts; an edited criterion has none."""
    checks = [{"type": "llm-rubric", "value": text} for text in ("is loud", "is short")]
    case = {"id": "c0", "question": "q0", "assertions": checks}
    cases.write("qa.jsonl", json.dumps(case))

    def script(request: ProviderRequest) -> Reply:
        return says({"reasoning": "So.", "score": 0.9 if "is loud" in user_of(request) else 0.6})(request)

    with ScriptedProvider(script) as provider:
        spec(cases, {**MODEL, "base_url": provider.openai_url, "canaries": 0}, "assertions")
        done = cases.run("run", "assay.yaml", "--record-verdicts", "verdicts.jsonl")
        assert "verdicts: 2 recorded" in done.stderr
    spec(cases, {"replay": "verdicts.jsonl"}, "assertions")
    done = cases.run("run", "assay.yaml", "--output-dir", "out")
    assert "warning" not in done.stderr
    (row,) = report(cases, "out")["rows"]
    assert [check["score"] for check in row["scores"]["assertions"]["detail"]["checks"]] == [0.9, 0.6]
    assert report(cases, "out")["summary"]["judging"]["recorded_count"] == 2
    checks[1]["value"] = "is very short"
    cases.write("qa.jsonl", json.dumps(case))
    done = cases.run("run", "assay.yaml", "--output-dir", "edited", status=3)
    assert "1 case lacks a recorded verdict that the metrics need (c0)" in done.stderr
    (row,) = report(cases, "edited")["rows"]
    found = [(check["score"], check["reason"]) for check in row["scores"]["assertions"]["detail"]["checks"]]
    assert found == [(0.9, ""), (None, "not_recorded")]


def test_each_turn_of_a_conversation_has_its_own_verdict(cases: Cli) -> None:
    """The same answer in two turns is two verdicts, and each counts for its turn alone."""
    turns = [{"input": f"q{number}", "references": ["same"]} for number in range(2)]
    cases.write("qa.jsonl", json.dumps({"id": "c0", "turns": turns}))
    cases.write("agent.py", "def answer(request):\n    return 'same'\n")

    def script(request: ProviderRequest) -> Reply:
        asked_first = "q1" not in user_of(request)
        return says({"reasoning": "First." if asked_first else "Second.", "score": 5 if asked_first else 4})(request)

    with ScriptedProvider(script) as provider:
        spec(cases, {**MODEL, "base_url": provider.openai_url, "canaries": 0})
        done = cases.run("run", "assay.yaml", "--record-verdicts", "verdicts.jsonl")
        assert "verdicts: 2 recorded" in done.stderr
    spec(cases, {"replay": "verdicts.jsonl"})
    cases.run("run", "assay.yaml", "--output-dir", "out")
    assert report(cases, "out")["results"]["quality"]["value"] == 4.5
    (row,) = report(cases, "out")["rows"]
    said = [turn["scores"]["quality"]["judgements"][0]["reasoning"] for turn in row["turns"]]
    assert said == ["First.", "Second."]
    assert report(cases, "out")["summary"]["judging"]["recorded_count"] == 2


def test_recorded_verdicts_need_no_judge_service(project: Cli) -> None:
    """No judge is started, with no key set: as for users who have not installed one."""
    cases = with_cases(project)
    write_verdicts(cases, *(recorded(f"c{n}", f"Q{n}") for n in range(3)))
    spec(cases, {"replay": "verdicts.jsonl"})
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        cases.env.pop(name, None)
    cases.run("run", "assay.yaml", "--output-dir", "out")
    assert {path.stem for path in (cases.home / "logs").glob("*.log")} == {"orchestrator"}
    assert report(cases, "out")["results"]["quality"]["value"] == 5.0


def test_an_answer_without_a_recorded_verdict_is_an_error_of_its_row(cases: Cli) -> None:
    """The message names the case and the way to record; the run is incomplete, and no score is made up."""
    write_verdicts(cases, *(recorded(f"c{n}", f"Q{n}") for n in range(3)))
    spec(cases, {"replay": "verdicts.jsonl"})
    cases.write("agent.py", AGENT.replace("MARK", "('!' if request.input == 'q1' else '')"))
    done = cases.run("run", "assay.yaml", "--output-dir", "out", status=3)
    assert "verdicts.jsonl has no verdict on this answer to case c1 by the rubric quality" in done.stdout
    assert "--record-verdicts FILE" in done.stdout
    assert "1 not recorded; no judge was asked" in done.stdout
    rows = report(cases, "out")["rows"]
    assert [row["scores"]["quality"]["value"] for row in rows] == [5, None, 5]
    assert (rows[1]["scores"]["quality"]["status"], rows[1]["scores"]["quality"]["reason"]) == ("error", "not_recorded")
    assert rows[1]["passed"] is None


def test_a_verdict_on_something_else_is_not_used(cases: Cli) -> None:
    """What a line states besides the answer must hold now; the warning says so before the run starts."""
    write_verdicts(
        cases,
        recorded("c0", "Q0", question="another question"),
        recorded("c1", "Q1", references=["another reference"]),
        recorded("c2", "Q2", question="q2", references=["Q2"]),
    )
    spec(cases, {"replay": "verdicts.jsonl"})
    done = cases.run("run", "assay.yaml", "--output-dir", "out", status=3)
    assert "2 recorded verdicts are on another question, reference or context" in done.stderr
    assert "2 cases lack a recorded verdict that the metrics need (c0, c1)" in done.stderr
    assert [row["scores"]["quality"]["reason"] for row in report(cases, "out")["rows"]] == [
        "not_recorded", "not_recorded", None
    ]  # fmt: skip


def test_each_repeat_may_have_its_own_verdict(cases: Cli) -> None:
    """A line with `repeat` is for that one, a line without for all others."""
    write_verdicts(cases, recorded("c0", "Q0", 2, repeat=2), *(recorded(f"c{n}", f"Q{n}") for n in range(3)))
    spec(cases, {"replay": "verdicts.jsonl"}, repeats=2)
    cases.run("run", "assay.yaml", "--output-dir", "out", status=None)
    found = [row["scores"]["quality"]["value"] for row in report(cases, "out")["rows"]]
    assert found == [5, 2, 5, 5, 5, 5]


def test_another_version_of_a_rubric_has_no_verdicts(cases: Cli) -> None:
    """A rubric of one's own that was edited since: its verdicts are not used, and the command says to record again."""
    cases.write("tone.yaml", RUBRIC)
    with ScriptedProvider(says({"reasoning": "Warm.", "politeness": 4})) as provider:
        judge = {"provider": "openai", "model": "m", "base_url": provider.openai_url, "rubric": "tone.yaml"}
        spec(cases, judge, "judge_score")
        cases.run("run", "assay.yaml", "--record-verdicts", "verdicts.jsonl", status=None)
    cases.write("tone.yaml", RUBRIC.replace("with respect", "with warmth"))
    spec(cases, {"replay": "verdicts.jsonl", "rubric": "tone.yaml"}, "judge_score")
    done = cases.run("run", "assay.yaml", "--output-dir", "out", status=3)
    assert "3 recorded verdicts are by another version of the rubric and not used" in done.stderr
    assert {row["scores"]["judge_score"]["reason"] for row in report(cases, "out")["rows"]} == {"not_recorded"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "verdicts.jsonl:1: is not valid JSON"),
        ("[]", "verdicts.jsonl:1: must be an object"),
        (json.dumps({"case": "c0"}), "has no rubric, answer, judge, verdict"),
        (json.dumps({**recorded("c0", "Q0"), "anser": "x"}), "did you mean 'answer'?"),
        (json.dumps(recorded("c0", "Q0", 6)), "must have a whole number from 1 to 5 in score"),
        (json.dumps(recorded("c0", "Q0", True)), "must have a whole number from 1 to 5 in score"),
        (json.dumps({**recorded("c0", "Q0"), "rubric": "answer"}), "must have a number from 0 to 1 in accuracy"),
        (json.dumps(recorded("c0", "Q0", repeat=-1)), "must be a whole number from 1 to 100"),
        (json.dumps(recorded("c\x1b[31m", "Q0")), "must not hold control characters"),
        ("\n".join([json.dumps(recorded("c0", "Q0"))] * 2), "verdicts.jsonl:2: is on the same answer as line 1"),
        ("", "holds no verdict"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(line: str, said: str, cases: Cli) -> None:
    """Before anything is started, by `validate` as by `run`; nothing of a terminal comes through."""
    cases.write("verdicts.jsonl", line)
    spec(cases, {"replay": "verdicts.jsonl"})
    refused = cases.run("validate", "assay.yaml", status=2)
    assert said in refused.stderr
    assert "\x1b" not in refused.stderr


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ({"replay": "none.jsonl"}, "none.jsonl: cannot be read: No such file"),
        ({"replay": 3}, "judge.replay: must be a file of recorded verdicts"),
        (
            {"replay": "verdicts.jsonl", "provider": "openai", "model": "m"},
            "judge.provider: is for a judge that is asked",
        ),
        ({"replay": "verdicts.jsonl", "spend_cap": 2}, "judge.spend_cap: is for a judge that is asked"),
        ({"replay": "verdicts.jsonl", "canaries": 0.1}, "judge.canaries: is for a judge that is asked"),
        ({"replay": "verdicts.jsonl", "rubric": "house"}, "judge.rubric: must be a YAML file beside `replay`"),
        ({"provider": "none", "record": "f"}, "assay run SPEC --record-verdicts FILE"),
    ],
)
def test_a_spec_that_cannot_replay_is_refused(judge: dict[str, Any], said: str, cases: Cli) -> None:
    """Each with its field and what to do."""
    write_verdicts(cases, recorded("c0", "Q0"))
    spec(cases, judge)
    assert said in cases.run("validate", "assay.yaml", status=2).stderr


@pytest.mark.parametrize(
    ("judge", "metric", "said"),
    [
        ({"replay": "verdicts.jsonl"}, "quality", "has nothing to record"),
        ({"provider": "none"}, "quality", "needs a judge"),
        (MODEL, "exact_match", "needs a judge"),
        ({"jury": [{**MODEL, "model": name} for name in "ab"]}, "quality", "the spec names a jury"),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_once(judge: dict[str, Any], metric: str, said: str, cases: Cli) -> None:
    """Before any agent is called, and without touching the file."""
    write_verdicts(cases, recorded("c0", "Q0"))
    before = (cases.folder / "verdicts.jsonl").read_text()
    spec(cases, judge, metric)
    assert said in cases.run("run", "assay.yaml", "--record-verdicts", "verdicts.jsonl", status=2).stderr
    assert (cases.folder / "verdicts.jsonl").read_text() == before


def test_python_replays_verdicts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`assay.evaluate` reads the file beside the spec."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    (tmp_path / "verdicts.jsonl").write_text(json.dumps(recorded("c0", "Q0", 3)))
    monkeypatch.chdir(tmp_path)
    done = assay.evaluate(
        {"metrics": ["quality"], "judge": {"replay": "verdicts.jsonl"}},
        agent=lambda question: question.upper(),
        dataset=[{"id": "c0", "question": "q0"}],
    )
    assert [score.value for row in done.rows for score in row.scores] == [3.0]


def write(cli: Cli, records: list[dict[str, Any]], **spec: Any) -> None:
    """Write a dataset and a spec."""
    cli.write("qa.jsonl", "\n".join(map(json.dumps, records)))
    cli.write("assay.yaml", {"name": "r", "dataset": "qa.jsonl", "agent": {"adapter": "replay"}, **spec})


def recorded_report(cli: Cli) -> dict[str, Any]:
    """Return the report of the run."""
    found: dict[str, Any] = json.loads((cli.folder / "out" / "results.json").read_text())
    return found


def test_each_repeat_has_the_answer_that_was_recorded_for_it(shared_cli: Cli) -> None:
    """`recorded` as a list: one row each, in order; `assay score` scores all of them."""
    record = {"id": "a", "question": "q", "reference": "yes", "recorded": ["yes", {"text": "no"}, "yes"]}
    write(shared_cli, [record], metrics=["exact_match"], repeats=3, gates=["exact_match >= 0.6"])
    shared_cli.run("run", "assay.yaml", "--output-dir", "out")
    assert [row["answer"] for row in recorded_report(shared_cli)["rows"]] == ["yes", "no", "yes"]
    scored = shared_cli.run("score", "exact_match", "--file", "qa.jsonl", "--json")
    assert json.loads(scored.stdout)["summary"]["scored_count"] == 3


def test_recorded_answers_that_do_not_fit_the_repeats_are_told(cli: Cli) -> None:
    """Too few are refused by their case; one for all repeats is a warning where they are compared."""
    write(cli, [{"id": "a", "question": "q", "recorded": ["x", "y"]}], metrics=["latency"], repeats=3)
    refused = cli.run("validate", "assay.yaml", status=2).stderr
    assert "case a: holds 2 recorded answers, and the run has 3 repeats" in refused
    write(cli, [{"id": "a", "question": "q", "recorded": "x"}], metrics=["consistency"], repeats=3)
    said = cli.run("validate", "assay.yaml").stdout
    assert "1 of 1 cases have a single recorded answer, which all repeats share" in said
    write(cli, [{"id": "a", "question": "q", "recorded": ["x", "y", "z"]}], metrics=["consistency"], repeats=3)
    assert "warning" not in cli.run("validate", "assay.yaml").stdout


def test_questions_without_an_answer_are_counted_apart(shared_cli: Cli) -> None:
    """The console has their count and how many were declined; a gate may be on it; invented events raise nothing."""
    found = {"text": "Here", "events": [{"title": "E"}]}
    records = [
        {"id": "a", "question": "q", "recorded": found},
        {"id": "b", "question": "q", "recorded": {"text": "Here", "events": []}},
        {"id": "c", "question": "q", "category": "out_of_scope", "recorded": {"text": "I do not know."}},
        {"id": "d", "question": "q", "category": "out_of_scope", "recorded": found},
    ]
    gates = ["coverage >= 0.5", "coverage.declined_rate >= 0.5"]
    write(shared_cli, records, metrics=["coverage"], gates=gates)
    done = shared_cli.run("run", "assay.yaml", "--output-dir", "out")
    assert "coverage  2 rows unanswerable (50.0%), not in the rate: 1 declined" in done.stdout
    assert "gate  PASS  coverage.declined_rate >= 0.5  actual 0.5" in done.stdout
    result = recorded_report(shared_cli)["results"]["coverage"]
    assert (result["value"], result["scored_count"], result["unanswerable"], result["declined"]) == (0.5, 2, 2, 1)
    scores = [row["scores"]["coverage"] for row in recorded_report(shared_cli)["rows"]]
    assert [score["reason"] for score in scores] == [None, "nothing_retrieved", "unanswerable", "unanswerable"]
