"""`assay judge calibrate` and `assay judge drift` as their users call them, with a service started for the command."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import psutil

from assay.testing.judges import says, user_of
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli

JUDGE = ("--provider", "openai", "--model", "judge-1")
LABELS = "question,answer,human_anna,human_ben\n" + "".join(
    f"q{n},answer with the score {score},{score},{min(5, score + n % 2)}\n"
    for n, score in enumerate([1, 2, 3, 4, 5] * 12)
)


class ScriptedJudge:
    """Scores an answer by the digit at its end, or by its length; `shift` moves every score."""

    def __init__(self) -> None:
        self.shift = 0

    def __call__(self, request: ProviderRequest) -> Reply:
        found = re.search(r"<<answer \w+>>\n(.*?)\n<<end of answer", user_of(request), re.DOTALL)
        assert found is not None
        text = found[1]
        score = int(text[-1]) if text[-1].isdecimal() else 1 + len(text) % 5
        return says({"reasoning": "So.", "score": max(1, min(5, score + self.shift))})(request)


def ready(cli: Cli, provider: ScriptedProvider) -> tuple[str, ...]:
    """Write the prices and return the options that name the judge."""
    cli.write("prices.yaml", "prices: [{model: '*', input: 1, output: 5}]")
    return (*JUDGE, "--prices", "prices.yaml", "--base-url", provider.openai_url)


def services_of(home: Path) -> list[int]:
    """Return the judges that run for a state directory."""
    lines = ((process.pid, " ".join(process.info["cmdline"] or [])) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, line in lines if str(home) in line and "assay_judge" in line]


def test_a_judge_is_calibrated(cli: Cli) -> None:
    """Figures, table, trust and cost for people and programs; verdicts are paid for once; no process stays."""
    cli.write("labels.csv", LABELS)
    with ScriptedProvider(ScriptedJudge()) as provider:
        options = ready(cli, provider)
        judge = {"provider": "openai", "model": options[3], "base_url": provider.openai_url}
        cli.write("assay.yaml", json.dumps({"judge": {**judge, "prices": {"input": 1, "output": 5}}}))
        first = cli.run("judge", "calibrate", "--labels", "labels.csv", "--spec", ".", "--observed", "80/100")
        again = cli.run("judge", "calibrate", "--labels", "labels.csv", *options, "--json", "--require", "trusted")
        assert len(provider.requests) == 60
    assert "TRUSTED  May stand in for people" in first.stdout
    assert "alpha_interval *" in first.stdout
    assert "cost  $0.1170" in first.stdout
    assert "as people would" in first.stdout
    document = json.loads(again.stdout)
    assert document["bill"]["cached"] == 60
    assert document["judges"][0]["calibration"]["figures"]["alpha_people"]["value"] > 0.8
    assert services_of(cli.home) == []


def test_all_that_is_wrong_is_said_at_once(cli: Cli) -> None:
    """Options and every line of the file, before anything is started."""
    cli.write("labels.jsonl", '{"question": "q", "human": 3}\n{"answer": "a", "human": "often"}\nno json\n')
    done = cli.run("judge", "calibrate", "--labels", "labels.jsonl", "--observed", "9/3", "--model", "m", status=2)
    for part in (
        "--provider: is missing",
        "--observed: must be PASSED/TOTAL",
        "labels.jsonl:1: answer: is missing",
        "labels.jsonl:2: question: is missing",
        'labels.jsonl:2: human: must be a score, or pass or fail, not "often"',
        "labels.jsonl:3: is not valid JSON",
    ):
        assert part in done.stderr
    assert not (cli.home / "judge-trust").exists()


def test_prices_are_listed(cli: Cli) -> None:
    """Those that come with Assay, or those of a file."""
    listed = cli.run("judge", "prices", "--provider", "anthropic").stdout.splitlines()
    assert listed[0].split() == ["provider", "model", "input", "output"]
    assert all(line.startswith("anthropic ") for line in listed[1:])
    cli.write("own.yaml", "prices: [{model: 'my-*', input: 0.25, output: 1}]")
    assert cli.run("judge", "prices", "--prices", "own.yaml").stdout.splitlines()[1].split() == [
        "*",
        "my-*",
        "0.25",
        "1",
    ]


def test_a_judge_that_needs_a_key_says_so(cli: Cli) -> None:
    """A sentence and status 3, no traceback."""
    cli.env.pop("OPENAI_API_KEY", None)
    cli.write("labels.csv", LABELS)
    done = cli.run(
        "judge", "calibrate", "--labels", "labels.csv", "--provider", "openai", "--model", "m", status=3
    )  # fmt: skip
    assert "OPENAI_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr


def test_drift_is_an_exit_status(judged_project: Cli) -> None:
    """0 while it judges as it did, 1 when it has moved, 2 for other anchors, 3 without verdicts."""
    cli, script = judged_project, ScriptedJudge()
    with ScriptedProvider(script) as provider:
        base = ("judge", "drift", "--baseline", "base.json", *JUDGE, "--base-url", provider.openai_url)
        missing = cli.run(*base, status=2)
        assert "save a baseline with --save" in missing.stderr
        assert "saved 23 scores" in cli.run(*base, "--save").stdout
        assert "exists already" in cli.run(*base, "--save", status=2).stderr
        assert "STEADY" in cli.run(*base).stdout
        script.shift = 1
        moved = cli.run(*base, "--json", status=1)
        cli.write("other.jsonl", '{"question": "q", "answer": "a 1"}\n{"question": "q", "answer": "b 1"}\n')
        assert "not those of the baseline" in cli.run(*base, "--anchors", "other.jsonl", status=2).stderr
        calls = len(provider.requests)
    document = json.loads(moved.stdout)
    assert document["drifted"] is True
    assert document["mean_difference"] > 0.2
    assert calls == 3 * 23
    done = cli.run(*base, "--spend-cap", "0", status=3)
    assert "NOT COMPUTED" in done.stdout
    assert "spend_cap_reached" in done.stderr


def test_a_run_whose_judge_likes_everything_is_marked(judged_project: Cli) -> None:
    """Console, report and stored run say that its verdicts are not to be trusted; its own numbers are what they are."""
    cli = judged_project
    with ScriptedProvider(says({"reasoning": "Lovely.", "score": 5})) as provider:
        who = {"provider": "openai", "model": "judge-1", "base_url": provider.openai_url, "canaries": 0.5}
        cli.write("assay.yaml", {
            "name": "judged", "dataset": "qa.jsonl", "agent": {"adapter": "python", "target": "agent:answer"},
            "metrics": ["quality"], "judge": who,
        })  # fmt: skip
        done = cli.run("run", "assay.yaml", "--output-dir", "out", status=3)
    said = "do not trust these verdicts: the judge passed 6 of 8 planted wrong answers"
    assert f"canaries  10: UNTRUSTED  {said}" in done.stdout
    assert f"verdict  INCOMPLETE  {said}" in done.stdout
    summary = json.loads((cli.folder / "out" / "results.json").read_text())["summary"]
    assert summary["judging"]["canaries"][0]["is_untrusted"] is True
    assert summary["judging"]["canaries"][0]["false_pass"]["rate"] == 0.75
    assert (summary["judging"]["verdict_count"], summary["pass_rate"]) == (20, 1.0)
    assert "UNTRUSTED" in cli.run("runs", "show", "latest").stdout
    stored = json.loads(cli.run("runs", "show", "latest", "--json").stdout)
    kinds = {tally["kind"]: tally for tally in stored["summary"]["judging"]["canaries"][0]["kinds"]}
    assert kinds["injection"] == {"kind": "injection", "canary_count": 2, "wrong_count": 2}


def test_a_run_names_the_calibration_of_its_judge(judged_project: Cli) -> None:
    """Its answers are drawn for people, their labels calibrate its judge, and from then on the run says so."""
    cli = judged_project
    with ScriptedProvider(says({"reasoning": "Lovely.", "score": 5})) as provider:
        who = {"provider": "openai", "model": "judge-2", "base_url": provider.openai_url, "canaries": 0}
        cli.write("assay.yaml", {
            "name": "judged", "dataset": "qa.jsonl", "agent": {"adapter": "python", "target": "agent:answer"},
            "metrics": ["quality"], "judge": who,
        })  # fmt: skip
        done = cli.run("run", "assay.yaml", "--output-dir", "out")
        assert "calibration  none of this judge by this rubric" in done.stdout
        drawn = cli.run("judge", "sample", "latest", "--count", "4", "--output", "labels.csv")
        assert drawn.stdout.startswith("wrote 4 of 20 answers to labels.csv")
        assert "exists already" in cli.run("judge", "sample", "latest", "--output", "labels.csv", status=2).stderr
        head, *lines = (cli.folder / "labels.csv").read_text().splitlines()
        assert head == "id,question,answer,reference,human,probability"
        assert [line.rsplit(",", 2)[1:] for line in lines] == [["", "0.2"]] * 4
        cli.write(
            "labelled.csv", "\n".join([head, *(line.replace(",,0.2", f",{n + 1},0.2") for n, line in enumerate(lines))])
        )
        calibrate = ("judge", "calibrate", "--labels", "labelled.csv", "--spec", "assay.yaml")
        assert "stored" not in cli.run(*calibrate, "--no-store").stdout
        assert "stored  runs of this judge and rubric will cite this calibration" in cli.run(*calibrate).stdout
        shown = cli.run("runs", "show", "latest").stdout
        assert "calibration  quality: UNTRUSTED, alpha" in shown
        assert "with people on 4 answers" in shown
        assert "quality: 20 of 20 rows pass, as people would -  withheld: the judge is no better than chance" in shown
        (stored,) = json.loads(cli.run("judge", "calibrations", "list", "--json").stdout)["calibrations"]
        assert stored["rubric"] == "quality"
        listed = cli.run("judge", "calibrations", "list").stdout.splitlines()
        assert [line.split()[:2] for line in listed] == [["id", "rubric"], [stored["calibration_id"], "quality"]]
        gone = cli.run("judge", "calibrations", "delete", stored["calibration_id"]).stdout
        assert gone.startswith(f"deleted calibration {stored['calibration_id']}: quality, openai:judge-2")
        again = cli.run("judge", "calibrations", "delete", stored["calibration_id"], status=2)
        assert "there is no calibration" in again.stderr
        assert "calibration  none of this judge by this rubric" in cli.run("runs", "show", "latest").stdout
        assert "no calibrations yet" in cli.run("judge", "calibrations", "list").stdout
