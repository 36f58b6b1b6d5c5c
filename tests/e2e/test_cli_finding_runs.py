"""Finding runs and rows by id, name, labels, state and `--where`, and specs by their folder, as subprocesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


HOSTILE = "v1 \x1b[2J\u202e"


def test_short_ids_stand_for_runs(own_stack: Cli) -> None:
    """A unique beginning and `latest` name a run in every command; several candidates are listed."""
    assert "no runs yet" in own_stack.run("runs", "show", "latest", status=2).stderr
    own_stack.run("run", "--name", "alpha", "--no-progress")
    own_stack.run("run", "--name", "alphabet", "--no-progress")
    newest, oldest = (run["run_id"] for run in json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"])
    shown = own_stack.run("runs", "show", "alphab", "--json")
    assert json.loads(shown.stdout)["run_id"] == newest
    assert f"alphab is run {newest}" in shown.stderr
    assert "is run" not in own_stack.run("runs", "show", newest).stderr
    several = own_stack.run("runs", "watch", "alpha", status=2).stderr
    assert f"'alpha' begins the ids of several runs: {newest}, {oldest}" in several
    for command in ("pause", "cancel"):
        refused = own_stack.run("runs", command, "latest", status=2).stderr
        assert f"latest is run {newest}" in refused
        assert "already completed" in refused
    assert "exact_match" in own_stack.run("runs", "watch", "alpha-").stdout
    assert "no row has an error" in own_stack.run("runs", "resume", "alpha-", "--retry-errors", "--spec", ".").stderr
    assert "exact_match" in own_stack.run("run", "--resume", "alpha-").stdout
    deleted = own_stack.run("runs", "delete", "latest", "alphabet", "--yes")
    assert f"latest is run {newest}" in deleted.stderr
    assert "deleted 1 run with 20 rows" in deleted.stdout
    assert [run["run_id"] for run in json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]] == [oldest]
    mistyped = own_stack.run("runs", "show", f"{oldest}x", status=2).stderr
    assert f"did you mean {oldest!r}?" in mistyped


def test_a_spec_is_found_by_its_folder(project: Cli) -> None:
    """Without SPEC the folder's assay.yaml is taken; a folder without one is told by name."""
    assert "valid" in project.run("validate").stdout
    assert "valid" in project.run("validate", ".").stdout
    (project.folder / "sub").mkdir()
    (project.folder / "assay.yaml").rename(project.folder / "sub" / "assay.yaml")
    for name in ("agent.py", "qa.jsonl"):
        (project.folder / name).rename(project.folder / "sub" / name)
    assert "20/20 cases" in project.run("run", "sub").stderr
    assert "valid" in project.run("validate", "sub").stdout
    for command in ("run", "validate"):
        refused = project.run(command, status=2).stderr
        assert f"{project.folder}: there is no assay.yaml in this folder" in refused
        assert "assay init" in refused
        assert "no assay.yaml in the folder home" in project.run(command, "home", status=2).stderr


def test_runs_have_names_labels_and_notes(own_stack: Cli) -> None:
    """They are stored, shown in text and JSON with agent and prompt, and runs are found by them."""
    with (own_stack.folder / "assay.yaml").open("a") as spec:
        spec.write("labels: {pr: 12, branch: main}\n")
    marks = ("--name", "try", "--label", "branch=fix", "--label", f"odd={chr(0x202E)}x", "--note", "smaller\nprompt")
    own_stack.run("run", *marks, "--no-progress")
    own_stack.run("run", "--no-progress")
    (found,) = json.loads(own_stack.run("runs", "list", "--name", "try", "--json").stdout)["runs"]
    assert found["labels"] == {"branch": "fix", "odd": "\u202ex", "pr": "12"}
    assert found["note"] == "smaller\nprompt"
    assert found["agent"] == {"adapter": "python", "target": "agent:answer"}
    shown = own_stack.run("runs", "show", found["run_id"]).stdout
    assert "labels  branch=fix odd=x pr=12\n" in shown
    assert "note  smaller prompt\n" in shown
    listed = own_stack.run("runs", "list").stdout
    assert "try; agent:answer; branch=fix odd=x pr=12; smaller prompt" in listed
    assert "small; agent:answer; branch=main pr=12" in listed
    for arguments, count in (
        (("--label", "pr=12"), 2),
        (("--label", "pr=12", "--label", "branch=fix"), 1),
        (("--label", "pr=13"), 0),
        (("--state", "completed,failed"), 2),
        (("--state", "running"), 0),
        (("--name", "small", "--state", "completed", "--label", "branch=main"), 1),
    ):
        assert len(json.loads(own_stack.run("runs", "list", *arguments, "--json").stdout)["runs"]) == count
    assert "no run matches these conditions" in own_stack.run("runs", "list", "--name", "none").stdout
    assert "did you mean 'running'?" in own_stack.run("runs", "list", "--state", "runing", status=2).stderr
    (path,) = own_stack.folder.glob(f"assay-reports/{found['run_id']}/results.json")
    head = json.loads(path.read_text())["run"]
    assert (head["name"], head["labels"], head["note"]) == ("try", found["labels"], "smaller\nprompt")


def test_labels_and_notes_are_bounded(project: Cli) -> None:
    """Wrong labels and notes are refused before anything is started, on the command and in the spec."""
    for arguments, said in (
        (("--label", "branch"), "--label: must be KEY=VALUE, such as branch=main, not 'branch'"),
        (("--label", "a b=c"), "a label's key has 1 to 64 letters"),
        (("--label", f"k={'x' * 201}"), "at most 200 characters, not 201"),
        (("--label", f"k={HOSTILE}"), "must not hold control characters"),
        (("--note", "x" * 2001), "at most 2000 characters, not 2001"),
        (("--set", "labels=[a]"), "labels: must be a mapping of keys to texts"),
        (tuple(part for i in range(33) for part in ("--label", f"k{i}=")), "has 33 labels: a run may have 32"),
    ):
        assert said in project.run("run", *arguments, status=2).stderr


def test_a_run_of_a_prompt_tells_model_and_prompt(shared_project: Cli) -> None:
    """`runs list` and `runs show` name the model, the prompt's file and its first line, without what is hostile."""
    shared_project.write("prompt.txt", f"Answer {HOSTILE} shortly.\n{{{{input}}}}\n")
    shared_project.env["OPENAI_API_KEY"] = "sk-test"
    agent = "{adapter: openai, target: gpt-x, base_url: 'http://127.0.0.1:9/v1', prompt_file: prompt.txt, retries: 0}"
    shared_project.run("run", "--set", f"agent={agent}", "--limit", "1", status=1)
    shown = json.loads(shared_project.run("runs", "show", "latest", "--json").stdout)
    assert (shown["model"], shown["prompt_file"]) == ("gpt-x", "prompt.txt")
    assert shown["prompt"] == f"Answer {HOSTILE} shortly."
    text = shared_project.run("runs", "show", "latest").stdout
    assert "prompt  prompt.txt: Answer v1 \ufffd[2J shortly." in text
    assert "agent  openai gpt-x" in text
    assert "gpt-x; prompt.txt" in shared_project.run("runs", "list").stdout


CASES = [
    {"id": "c1", "question": "one?", "reference": "yes", "recorded": "yes", "category": "a", "tags": ["t"]},
    {"id": "c2", "question": "two?", "reference": "yes", "recorded": "no", "category": "a"},
    {"id": "c3", "question": "three?", "reference": "yes", "recorded": "no \x1b[31m", "category": "b\x1b[2J"},
    {"id": "c4", "question": "four?", "recorded": "so"},
]
SPEC = {
    "agent": {"adapter": "replay"},
    "dataset": "qa.jsonl",
    "metrics": ["exact_match"],
    "gates": ["pass_rate >= 0"],
}


def test_rows_and_runs_are_found_by_filters(shared_cli: Cli) -> None:
    """Tables end with how many rows meet the filter; what is wrong with a text is said with its place in it."""
    cli = shared_cli
    cli.write("qa.jsonl", "\n".join(map(json.dumps, CASES)))
    cli.write("assay.yaml", SPEC)
    cli.run("run", "assay.yaml", "--name", "found")

    shown = cli.run("runs", "show", "latest", "--where", "failed", "--sort", "-case").stdout.splitlines()
    assert shown[0].split() == ["case", "outcome", "latency", "exact_match", "message"]
    assert [line.split()[:2] for line in shown[1:-1]] == [["c3", "failed"], ["c2", "failed"]]
    assert shown[-1] == "2 of 4 rows match the filter"

    limited = cli.run("runs", "show", "latest", "--sort", "case", "--limit", "1").stdout
    assert limited.splitlines()[-1] == "4 rows stored; these are the first 1 by case: --limit 4 lists all"
    assert cli.run("runs", "show", "latest", "--where", "tag:none").stdout == "0 of 4 rows match the filter\n"

    document = json.loads(cli.run("runs", "show", "latest", "--where", "exact_match<1", "--json").stdout)
    assert (document["matching"], document["finished_count"]) == (2, 4)
    assert [row["answer"] for row in document["rows"]] == ["no", "no \x1b[31m"]

    full = cli.run("runs", "show", "latest", "--failed", "--where", "answer~31m").stdout
    assert "c3" in full
    assert "c2" not in full
    assert "\x1b" not in full

    case = cli.run("runs", "show", "latest", "--case", "c3", "--where", "category:a", "--sort", "-dataset").stdout
    assert case.splitlines()[-1] == "next: c2"
    around = json.loads(cli.run("runs", "show", "latest", "--case", "c2", "--json").stdout)
    assert (around["previous_case"], around["next_case"], len(around["rows"])) == ("c1", "c3", 1)

    wrong = cli.run("runs", "show", "latest", "--where", "faild answer:x", "--sort", "a b", status=2).stderr
    for problem in (
        "--where: character 1: unknown word 'faild'",
        "--where: character 7: write answer~TEXT",
        "--sort: ",
    ):
        assert problem in wrong
    unknown = cli.run("runs", "show", "latest", "--where", "exact_mach<1", status=2).stderr
    known = "did you mean 'exact_match'? (metrics of this run: exact_match)"
    assert f"--where: character 1: unknown metric 'exact_mach'; {known}" in unknown

    listed = cli.run("runs", "list", "--where", "name:found dataset:qa.jsonl since:2020-01-01", "--sort", "-pass_rate")
    assert "found-" in listed.stdout
    assert cli.run("runs", "list", "--where", "until:2020-01-01").stdout == "no run matches these conditions\n"
    assert cli.run("runs", "list", "--where", "name:found verdict:FAIL").stdout == "no run matches these conditions\n"
    ranked = cli.run("runs", "list", "--where", "name:found verdict:PASS exact_match < 0.5", "--sort", "exact_match")
    assert "found-" in ranked.stdout
    twice = cli.run("runs", "list", "--name", "a", "--where", "name:b", status=2).stderr
    assert "--where: name is given twice" in twice


def test_a_wrong_filter_is_refused_before_anything_is_dialled(shared_cli: Cli) -> None:
    """No server is asked, so that a mistake is shown at once wherever it is."""
    nowhere = ("--server", "127.0.0.1:1")
    for arguments in (("show", "r", "--where", "faild"), ("show", "r", "--sort", "a b"), ("list", "--where", "faild")):
        refused = shared_cli.run("runs", *arguments, *nowhere, status=2).stderr
        assert "127.0.0.1:1" not in refused
