"""What a new user types in the first hour: help, metrics, doctor, an address, hints on what to install."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import sqlite3
import struct
import subprocess
import sys
import termios
from contextlib import closing
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from assay.metrics import METRICS, definition
from assay.specs.loader import spec_from_mapping
from assay_cli.commands.metrics import metrics

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    (): ("run", "init", "score", "metrics", "validate", "datasets", "runs", "up", "down", "serve", "doctor"),
    ("runs",): ("list", "show", "watch", "pause", "resume", "cancel", "delete", "prune"),
    ("metrics",): ("list", "show"),
    ("datasets",): ("inspect", "list", "show", "cases", "delete"),
    ("judge",): ("calibrate", "drift"),
}


def without(cli: Cli, *packages: str) -> None:
    """Let a command find none of these packages."""
    folder = cli.folder / "lacking"
    folder.mkdir()
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in packages)]
    (folder / "sitecustomize.py").write_text("\n".join(lines), encoding="utf-8")
    cli.env["PYTHONPATH"] = str(folder)


def on_terminal(cli: Cli, *arguments: str, columns: int = 120, **variables: str) -> tuple[int, str]:
    """Call in a terminal of so many columns; return the status and what it was sent."""
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in cli.env.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    env |= {"TERM": "xterm", **variables}
    process = subprocess.Popen(
        cli.command(*arguments), cwd=cli.folder, env=env, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    sent = b""
    try:
        while select.select([parent], [], [], 110)[0]:
            sent += os.read(parent, 65536)
    except OSError:  # Linux says so at the end of the terminal's last user
        pass
    finally:
        os.close(parent)
    return process.wait(timeout=60), sent.decode()


@pytest.mark.parametrize(("group", "names"), GROUPS.items(), ids=lambda each: " ".join(each) or "assay")
def test_help_of_groups_is_whole(cli: Cli, group: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Every command has a whole sentence, `help` asks for it too, and an unknown one is answered with the nearest."""
    shown = cli.run(*group, "--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert re.findall(r"^  (\w+)  ", shown.partition("Commands:")[2], re.MULTILINE)[0]
    for name in names:
        assert re.search(rf"^  {name}\s", shown, re.MULTILINE)
    assert cli.run(*group, "help").stdout == shown
    assert cli.run(*group, "help", names[0]).stdout == cli.run(*group, names[0], "--help").stdout
    assert f"did you mean '{names[-1]}'" in cli.run(*group, f"{names[-1]}x", status=2).stderr


@pytest.mark.parametrize(
    "command", [("run",), ("validate",), ("doctor",), *(("runs", name) for name in GROUPS["runs",])]
)
def test_help_has_examples(cli: Cli, command: tuple[str, ...]) -> None:
    """Each of them is a line of its own that a user can copy."""
    shown = cli.run(*command, "--help").stdout
    assert re.search(rf"^ {{4,}}assay {' '.join(command)}\b", shown, re.MULTILINE)


def test_the_version_has_a_short_option(cli: Cli) -> None:
    """`-V` is `--version`."""
    assert cli.run("-V").stdout == cli.run("--version").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_the_guide_says(cli: Cli, shell: str) -> None:
    """The line of docs/installation.md prints a script for the shell."""
    guide = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert f"_ASSAY_COMPLETE={shell}_source assay" in guide
    cli.env["_ASSAY_COMPLETE"] = f"{shell}_source"
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['assay']; from assay_cli.__main__ import main; main()"],
        cwd=cli.folder, env=cli.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"_ASSAY_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [(("serve", "judge"), "openai", "judge"), (("up",), "sentence_transformers", "embedder")],
)
def test_what_is_missing_is_installed_by_the_command_that_is_named(
    cli: Cli, command: tuple[str, ...], package: str, extra: str
) -> None:
    """In a checkout it names the environment's own pip and the checkout, from any folder."""
    without(cli, package)
    said = cli.run(*command, status=3).stderr
    words = shlex.split(said.partition("not installed: ")[2])
    assert words == [f"{sys.prefix}/bin/pip", "install", "-e", f"{ROOT}[{extra}]"]


def test_doctor_says_what_only_some_runs_need(cli: Cli) -> None:
    """An extra that is not there is said to be that, with what it is for, and the machine is fit without it."""
    without(cli, "openai", "pyarrow")
    lines = cli.run("doctor").stdout.splitlines()
    assert any(line.startswith("not installed  judge, for metrics that a model judges: ") for line in lines)
    assert any(line.startswith("not installed  parquet, for datasets in Parquet: ") for line in lines)
    checks = {check["check"]: check for check in json.loads(cli.run("doctor", "--json").stdout)["checks"]}
    assert (checks["judge"]["status"], checks["judge"]["ok"]) == ("not installed", False)


def test_doctor_looks_at_path_and_database(cli: Cli) -> None:
    """`assay` of this environment on PATH or not; a database that is none yet, whole, or damaged."""
    cli.env["PATH"] = "/usr/bin:/bin"
    said = cli.run("doctor").stdout
    assert f"warning        `assay` is not on PATH: . {sys.prefix}/bin/activate" in said
    assert "the first run creates it" in said
    cli.env["PATH"] = f"{sys.prefix}/bin:/usr/bin:/bin"
    with closing(sqlite3.connect(cli.home / "assay.db")) as database:
        database.executescript(
            "CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('0013');"
            "CREATE TABLE runs (run_id); INSERT INTO runs VALUES ('r1')"
        )
    said = cli.run("doctor").stdout
    assert f"ok             `assay` on PATH is {sys.prefix}/bin/assay" in said
    assert "assay.db, runs 1, 0.0 MiB, schema 0013" in said
    (cli.home / "assay.db").write_bytes(b"no database at all" * 100)
    said = cli.run("doctor", status=3).stdout
    assert "MISSING" in said
    assert "cannot be read as a database" in said


def test_doctor_names_a_package_of_others_that_brings_the_same_module(cli: Cli) -> None:
    """By its name, as the one on PyPI, or by its files."""
    for name, record in (("assay", ""), ("assay-it", "assay/__init__.py,sha256=x,0\n"), ("essay", "essay.py,,\n")):
        info = cli.folder / "others" / f"{name}-0.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (info / "RECORD").write_text(record)
    cli.env["PYTHONPATH"] = str(cli.folder / "others")
    warnings = [line for line in cli.run("doctor").stdout.splitlines() if "also contains a module" in line]
    assert {line.split(" 0.1 ")[0].split()[-1] for line in warnings} == {"assay", "assay-it"}
    assert all("then install Assay again (its package is assay-scoring)" in line for line in warnings)


def test_doctor_reaches_a_server_and_names_its_version(shared_cli: Cli) -> None:
    """With --server the services of this machine are not needed, and the orchestrator's version is named."""
    address = f"unix:{shared_cli.home / 'run' / 'orchestrator.sock'}"
    version = shared_cli.run("--version").stdout.split()[1]
    said = shared_cli.run("doctor", "--server", address).stdout
    assert f"ok             orchestrator at {address} runs assay {version}" in said
    without(shared_cli, "sqlalchemy")
    try:
        shared_cli.run("doctor", status=3)
        said = shared_cli.run("doctor", "--server", address).stdout
        assert "not installed  orchestrator, for runs on this machine: " in said
    finally:
        del shared_cli.env["PYTHONPATH"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://10.0.0.1:7070", "is a URL: write host:port, such as 10.0.0.1:7070"),
        ("https://me:s3cret@assay.example.org/x", "is a URL: write host:port, such as assay.example.org:7070"),
        ("localhost", "must be host:port, such as 127.0.0.1:7070, not 'localhost'"),
        ("localhost:70700", "must be host:port"),
        ("me:s3cret@host", "must be host:port, such as 127.0.0.1:7070"),
    ],
)
def test_an_address_of_another_form_is_named_with_its_variable(project: Cli, address: str, said: str) -> None:
    """Nothing is dialled; the sentence names the variable or the option that holds it, and no password."""
    for command in (("runs", "list"), ("run", "assay.yaml"), ("validate",), ("doctor",)):
        done = project.run(*command, "--server", address, status=2)
        assert f"error: --server: {said}" in done.stderr
    project.env["ASSAY_SERVER"] = address
    done = project.run("runs", "list", status=2)
    assert f"error: ASSAY_SERVER: {said}" in done.stderr
    assert "s3cret" not in done.stderr


def test_a_server_that_does_not_answer_is_named_with_its_variable(project: Cli) -> None:
    """It is said what is awaited before the wait is over, and in the end which variable to unset."""
    project.env["ASSAY_SERVER"] = "127.0.0.1:1"
    said = project.run("runs", "list", status=3).stderr.splitlines()
    assert said[0] == "waiting for the orchestrator at 127.0.0.1:1 (ASSAY_SERVER) …"
    assert said[1].startswith("error: no orchestrator answers at 127.0.0.1:1 (ASSAY_SERVER): check that it runs")
    assert "unset ASSAY_SERVER to use the local stack" in said[1]
    assert "leave out --server" in project.run("runs", "list", "--server", "127.0.0.1:1", status=3).stderr


def test_what_a_command_waits_for_is_counted_on_a_terminal(cli: Cli) -> None:
    """While the local services start, a line says so; it goes away, and a pipe sees nothing of it."""
    status, sent = on_terminal(cli, "up")  # the embedder loads a model, which is never there at once
    assert status == 0
    assert re.search(r"\r\x1b\[2Kstarting the local \w+ … \d+ s", sent)
    assert re.search(r"\r\x1b\[2Kthe local stack is up", sent)
    cli.run("down")
    assert cli.run("runs", "list").stderr == ""


def test_a_terminal_that_cannot_redraw_gets_lines(shared_project: Cli) -> None:
    """Neither a dumb terminal nor a narrow one gets a bar, carriage returns or cursor movements."""
    for columns, variables in ((40, {}), (120, {"TERM": "dumb"})):
        status, sent = on_terminal(shared_project, "run", "assay.yaml", columns=columns, **variables)
        assert status == 0
        assert "20/20 cases" in sent
        assert "━" not in sent
        assert "\x1b[2K" not in sent
        assert "\r" not in sent.replace("\r\n", "")
    assert "━" in on_terminal(shared_project, "run", "assay.yaml")[1]


def test_colours_follow_the_variables_of_terminals(shared_project: Cli) -> None:
    """A terminal has colours unless NO_COLOR or TERM=dumb says otherwise; FORCE_COLOR gives them to a pipe, too."""
    green = "\x1b[32mPASS\x1b[0m"
    assert green in on_terminal(shared_project, "run", "assay.yaml")[1]
    assert "\x1b[3" not in on_terminal(shared_project, "runs", "show", "latest", TERM="dumb")[1]
    assert "\x1b[3" not in on_terminal(shared_project, "runs", "show", "latest", NO_COLOR="1", FORCE_COLOR="1")[1]
    assert green not in shared_project.run("runs", "show", "latest").stdout
    del shared_project.env["NO_COLOR"]
    assert green not in shared_project.run("runs", "show", "latest").stdout
    shared_project.env["FORCE_COLOR"] = "1"
    assert green in shared_project.run("runs", "show", "latest").stdout


def test_empty_input_has_a_sentence(project: Cli) -> None:
    """An empty spec, and a value that was forgotten behind --set."""
    project.write("empty.yaml", "\n")
    assert "empty.yaml: is empty; expected one YAML document" in project.run("run", "empty.yaml", status=2).stderr
    done = project.run("validate", "--set", "repeats=", status=2)
    assert "--set repeats: has no value: write repeats=VALUE, or repeats=null for none" in done.stderr


def test_a_comma_too_many_is_found(project: Cli) -> None:
    """JSON's usual slip has its line and column, in a file of one line, of many, and in JSON Lines."""
    files = {
        "one.json": ('[{"question": "a", "answer": "b"},]', "one.json:1", "comma before ]", "column 35"),
        "many.json": ('[\n {"question": "a",\n  "answer": "b",\n }\n]', "many.json:4", "comma before }", "column 2"),
        "lines.jsonl": ('{"question": "a", "answer": ["b",]}\n', "lines.jsonl:1", "comma before ]", "column 34"),
    }
    for name, (text, place, *words) in files.items():
        project.write(name, text)
        said = project.run("validate", "--dataset", name, status=2).stderr
        assert place in said
        assert all(word in said for word in words), said


def test_a_default_threshold_is_no_gate(shared_cli: Cli) -> None:
    """A threshold that has no part in the exit status is called that; one that was given is not."""
    texts = ("similarity", "We open at nine.", "Zebras eat grass.")
    assert "failed  (default threshold 0.75, not gated)" in shared_cli.run("score", *texts).stdout
    assert "failed  (threshold 0.75)" in shared_cli.run("score", *texts, "--threshold", "0.75", status=1).stdout


def test_deletion_is_announced(own_stack: Cli) -> None:
    """Runs, rows, dataset and room are said before anything goes; with --json on stderr, so that stdout is JSON."""
    own_stack.run("run", "assay.yaml")
    refused = own_stack.run("runs", "delete", "latest", status=2)
    assert "to be deleted: 1 run with 20 rows: about " in refused.stdout
    assert "; written reports are kept" in refused.stdout
    done = own_stack.run("runs", "delete", "latest", "--yes", "--json")
    assert "to be deleted: 1 run with 20 rows" in done.stderr
    assert json.loads(done.stdout)["runs"][0]["rows"] == 20


def test_every_metric_is_listed(cli: Cli) -> None:
    """The table and the document name every metric, with what it reads and its default threshold."""
    lines = cli.run("metrics", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(METRICS)]] == list(METRICS)
    listed = json.loads(cli.run("metrics", "list", "--json").stdout)["metrics"]
    assert [metric["name"] for metric in listed] == list(METRICS)
    assert listed[0]["threshold"] == 0.75
    assert "references" in listed[0]["reads"]


def test_a_metric_is_shown_whole(cli: Cli) -> None:
    """Formula, parameters with type, range and default, and an example."""
    shown = cli.run("metrics", "show", "hit-rate").stdout
    for text in ("hit = 1 when", "k  (integer, at least 1, default none)", "threshold  (number, 0 to 1, default 0.8)"):
        assert text in shown


@pytest.mark.parametrize("name", METRICS)
def test_every_example_is_a_spec(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown as an example can be put into a spec as it is."""
    metrics.main(["show", name, "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    example = yaml.safe_load(document["example"])
    spec = spec_from_mapping(example, needs_dataset=False, needs_agent=False)
    assert [metric.kind for metric in spec.settings.metrics] == [name]
    assert document["definition"]
    assert document["range"]


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_tells_its_range_and_what_a_gate_may_compare(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people: what it reads, its range, its definition, its parameters, the names that gates know, an example."""
    metrics.main(["show", name], standalone_mode=False)
    shown = capsys.readouterr().out
    info = METRICS[name].info
    for heading in ("Reads      ", "Range      ", "Threshold  ", "Parameters\n", "Gates\n", "Example\n"):
        assert heading in shown
    assert all(f"{name}.{stat}" in shown for stat in ("pass_rate", *info.stats))
    assert all(f"    {parameter.name}  (" in shown for parameter in info.parameters)
    # A formula or a rule that decides stands by itself, indented.
    assert "\n    " in definition(name) or "1. " in definition(name) or "(a) " in definition(name)


def test_an_unknown_metric_is_answered_with_the_nearest(cli: Cli) -> None:
    """Exit status 2 and what was probably meant."""
    assert "did you mean 'coverage'" in cli.run("metrics", "show", "covrage", status=2).stderr
