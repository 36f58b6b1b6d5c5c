"""`assay run` with a judge: started for the run, killed, too expensive, and asked nothing twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.judges import says
from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Cli

    from assay.testing.providers import ProviderRequest

GOOD = {"reasoning": "It is right.", "score": 4}
AGENT = """\
def answer(request):
    with open("calls.txt", "a") as calls:
        calls.write(request.case_id + "\\n")
    return request.input.upper()
"""


@pytest.fixture
def judged(project: Cli) -> Iterator[tuple[Cli, ScriptedProvider]]:
    """Return a project whose answers are judged by a provider on a port, and that provider."""
    project.write("prices.yaml", "prices: [{model: '*', input: 1, output: 5}]")
    project.env |= {"ASSAY_JUDGE_PRICES": str(project.folder / "prices.yaml"), "ASSAY_JUDGE_ATTEMPTS": "1"}
    with judged_by_provider(project) as provider:
        yield project, provider


@pytest.fixture
def shared_judged(judged_project: Cli) -> Iterator[tuple[Cli, ScriptedProvider]]:
    """Return such a project over the shared stack, whose judge runs."""
    with judged_by_provider(judged_project) as provider:
        yield judged_project, provider


@contextmanager
def judged_by_provider(project: Cli) -> Iterator[ScriptedProvider]:
    """Write an agent and a spec whose judge is the provider that is yielded."""
    project.write("agent.py", AGENT)
    with ScriptedProvider(says(GOOD)) as provider:
        spec(project, provider)
        yield provider


def spec(cli: Cli, provider: ScriptedProvider, **judge: Any) -> None:
    """Write a spec with this judge."""
    who = {"provider": "openai", "model": "judge-1", "base_url": provider.openai_url, "canaries": 0, **judge}
    cli.write("assay.yaml", json.dumps({
        "name": "judged", "dataset": "qa.jsonl", "agent": {"adapter": "python", "target": "agent:answer"},
        "metrics": ["quality", "latency"], "judge": who, "gates": ["quality >= 4"],
    }))  # fmt: skip


def calls(cli: Cli) -> int:
    """Return how often the agent was asked."""
    return len((cli.folder / "calls.txt").read_text().splitlines())


def stored_answers(cli: Cli) -> int:
    """Return how many answers the database holds."""
    with closing(sqlite3.connect(f"file:{cli.home}/assay.db?mode=ro", uri=True)) as database:
        count: int = database.execute("SELECT count(*) FROM answers").fetchone()[0]
    return count


def test_a_judged_run(shared_judged: tuple[Cli, ScriptedProvider]) -> None:
    """Verdicts become scores; console and report say what they cost, and what a second run saves."""
    cli, provider = shared_judged
    done = cli.run("run", "assay.yaml", "--output-dir", "first")
    assert "quality" in done.stdout
    assert "verdicts  20: 20 asked  27,000 tokens  $0.0390" in done.stdout
    assert f"judge  openai:judge-1@{provider.openai_url}" in done.stderr
    assert "20/20 cases  100.0% passed" in done.stderr
    assert "judging $0.0390" in done.stderr
    report = json.loads((cli.folder / "first" / "results.json").read_text())
    judging = report["summary"]["judging"]
    assert (judging["asked_count"], judging["cached_count"], judging["hit_rate"]) == (20, 0, 0.0)
    assert judging["cost_usd"] == pytest.approx(0.039)
    assert report["rows"][0]["scores"]["quality"]["judgements"][0]["fingerprint"] in judging["fingerprints"]
    assert report["config"]["judges"][0]["members"][0]["model"] == "judge-1"
    again = cli.run("run", "assay.yaml", "--output-dir", "second")
    assert "verdicts  20: 0 asked, 20 from the cache (100.0%)" in again.stdout
    assert "the cache saved $0.0390" in again.stdout
    assert len(provider.requests) == 20
    assert "judge  openai:judge-1@" in cli.run("runs", "show", "latest").stdout


def test_the_console_says_why_the_judge_failed_an_answer(shared_judged: tuple[Cli, ScriptedProvider]) -> None:
    """Each failing row has the judge's reason, or the sentence of an invalid verdict, without escapes of a terminal.

    It is said once, in the row's reason, as long as the line has room; a single row shows all of it.
    """
    project, _ = shared_judged
    project.write("qa.jsonl", "\n".join(json.dumps({"id": f"c{n}", "question": f"q{n}"}) for n in range(2)))
    reason = "It names\n\x1b[31mLyon\x1b]52;c;eA==\x07, not \u202eParis. " + "Really. " * 100

    def script(request: ProviderRequest) -> Reply:
        return Reply("no verdict") if "q1" in request.question else says({"reasoning": reason, "score": 2})(request)

    with ScriptedProvider(script) as provider:
        spec(project, provider, spend_cap=5)
        done = project.run("run", "assay.yaml", status=None)
    assert "spend cap $5" in done.stderr
    for text in (done.stdout, project.run("runs", "show", "latest").stdout):
        assert "c0: quality: 2 is below the threshold of 4: It names" in text
        assert text.count("Lyon") == 1
        assert 0 < text.count("Really.") < 100
        assert "c1: quality could not be computed: the judge gave no valid verdict in 2 turns: the reply is not" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert project.run("runs", "show", "latest", "--case", "c0").stdout.count("Really.") >= 100


def test_a_judge_that_is_down_and_comes_back(judged: tuple[Cli, ScriptedProvider]) -> None:
    """The answers are kept; `runs resume` has them judged without the agent's code, which is not asked again."""
    cli, provider = judged
    down = Reply("no such key", status=401)
    with ScriptedProvider(down) as broken:
        port = broken.openai_url
        spec(cli, broken)
        paused = cli.run("run", "assay.yaml", status=3)
    assert "every answer is stored, 20 rows await a verdict" in paused.stderr
    last = paused.stderr.splitlines()[-1]
    assert last == "verdict  INCOMPLETE  rows are missing: the run is paused, and no row has a result  exit status 3"
    assert "The service says: no such key" in paused.stderr
    assert paused.stderr.count("--resume ") == 1
    assert "runs resume" not in paused.stderr
    assert calls(cli) == 20
    (run,) = json.loads(cli.run("runs", "list", "--json").stdout)["runs"]
    assert (run["state"], run["pause_cause"], run["finished_count"]) == ("paused", "judge", 0)
    number = int(port.rpartition(":")[2].partition("/")[0])
    with ScriptedProvider(says(GOOD), port=number):
        done = cli.run("runs", "resume", run["run_id"])
    assert "gate  PASS  quality >= 4" in done.stdout
    assert calls(cli) == 20
    assert not provider.requests


def keys_used(provider: ScriptedProvider) -> list[str]:
    """Return the keys that the judge was asked with, and forget the requests."""
    found = sorted({request.headers.get("authorization", "").removeprefix("Bearer ") for request in provider.requests})
    provider.requests.clear()
    return found


def test_a_warm_judge_has_the_keys_and_prices_of_the_command(judged: tuple[Cli, ScriptedProvider]) -> None:
    """A judge that `assay up` started is restarted for a command with another key or other prices, and only then.

    It stays up when the command has ended, like the one before, and no key is in a file or in a process's arguments.
    """
    cli, provider = judged
    spec(cli, provider, key_variable="TEAM_KEY", concurrency=4)
    first, second = "sk-first-0123456789-abcdefghij", "sk-second-0123456789-klmnopqrst"
    cli.env |= {"TEAM_KEY": first, "ASSAY_JUDGE_CACHE": "false"}
    cli.run("up", "--no-embedder", "--judge")
    cli.run("run", "assay.yaml")
    assert keys_used(provider) == [first]
    cli.env["TEAM_KEY"] = second
    cli.run("run", "assay.yaml")
    assert keys_used(provider) == [second]
    services = {process.pid for process in cli.services()}
    assert len(services) == 2
    cli.run("run", "assay.yaml")
    assert {process.pid for process in cli.services()} == services
    cli.write("prices.yaml", "prices: [{model: '*', input: 10, output: 50}]")
    assert "$0.3900" in cli.run("run", "assay.yaml").stdout
    cli.env["ASSAY_JUDGE_PRICES"] = str(cli.folder / "absent.yaml")
    assert "absent.yaml" in cli.run("run", "assay.yaml", status=2).stderr
    written = "".join(path.read_bytes().decode("latin-1") for path in cli.home.rglob("*") if path.is_file())
    arguments = " ".join(" ".join(process.cmdline()) for process in cli.services())
    for key in (first, second):
        assert key not in written + arguments
    cli.run("down")


def test_a_key_is_corrected_without_stopping_the_stack(judged: tuple[Cli, ScriptedProvider]) -> None:
    """After a 401 the right key in the shell is enough: `runs resume` judges with it."""
    cli, provider = judged
    right = "sk-right-0123456789-abcdefghij"
    with ScriptedProvider(lambda request: (
        says(GOOD)(request) if right in request.headers["authorization"] else Reply("no such key", status=401)
    )) as service:  # fmt: skip
        spec(cli, service, key_variable="TEAM_KEY")
        cli.env["TEAM_KEY"] = "sk-wrong-0123456789-abcdefghij"
        cli.run("up", "--no-embedder", "--judge")
        assert "The service says: no such key" in cli.run("run", "assay.yaml", status=3).stderr
        (run,) = json.loads(cli.run("runs", "list", "--json").stdout)["runs"]
        cli.env["TEAM_KEY"] = right
        assert "gate  PASS  quality >= 4" in cli.run("runs", "resume", run["run_id"]).stdout
    assert calls(cli) == 20
    assert not provider.requests
    cli.run("down")


def test_a_judge_that_another_command_uses_keeps_its_key(judged: tuple[Cli, ScriptedProvider]) -> None:
    """A command with another key is refused with what to do, and the other one is judged with its own."""
    cli, provider = judged
    spec(cli, provider, key_variable="TEAM_KEY")
    cli.write("agent.py", "import pathlib, time\n"
        "def answer(request):\n"
        "    pathlib.Path('asked').touch()\n"
        "    while not pathlib.Path('go').exists():\n"
        "        time.sleep(0.01)\n"
        "    return request.input.upper()\n")  # fmt: skip
    cli.env["TEAM_KEY"] = "sk-first-0123456789-abcdefghij"
    process = cli.start("run", "assay.yaml")
    cli.wait_until((cli.folder / "asked").exists, process)
    cli.env["TEAM_KEY"] = "sk-second-0123456789-klmnopqrst"
    refused = cli.run("run", "assay.yaml", status=3).stderr
    assert "the local judge serves another command with another TEAM_KEY" in refused
    assert "ASSAY_HOME" in refused
    (cli.folder / "go").touch()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert keys_used(provider) == ["sk-first-0123456789-abcdefghij"]


def test_a_spend_cap_is_raised(shared_judged: tuple[Cli, ScriptedProvider]) -> None:
    """Judging pauses at the cap, the sentence says what to type, and that works."""
    cli, provider = shared_judged
    spec(cli, provider, spend_cap=0.03)
    paused = cli.run("run", "assay.yaml", status=3)
    assert "the spend cap of 0.03 dollars is reached" in paused.stderr
    assert "raise it: `assay runs update" in paused.stderr, "without a higher cap the run pauses again"
    run = json.loads(cli.run("runs", "show", "latest", "--json").stdout)
    assert f"assay runs update {run['run_id']} --spend-cap USD" in run["state_message"]
    assert "spend cap $0.03" in cli.run("runs", "show", run["run_id"]).stdout
    wrong = cli.run("runs", "update", run["run_id"], "--spend-cap", "lots", status=2)
    assert "must be an amount of US dollars" in wrong.stderr
    cli.run("runs", "update", run["run_id"], "--spend-cap", "5")
    cli.run("runs", "resume", run["run_id"])
    assert json.loads(cli.run("runs", "show", run["run_id"], "--json").stdout)["spend_cap_nano_usd"] == 5 * 10**9
    assert (len(provider.requests), calls(cli)) == (20, 20)


def test_without_a_judge_a_gate_on_a_judges_word_is_incomplete(judged: tuple[Cli, ScriptedProvider]) -> None:
    """Exit status 3, and the summary says that no judge is configured and how to name one; no judge is started."""
    cli, provider = judged
    done = cli.run("run", "assay.yaml", "--set", "judge=none", status=3)
    assert "skipped  quality on 20 of 20 rows: no judge configured: name one under `judge` in the spec" in done.stdout
    assert "INCOMPLETE" in done.stdout
    assert not provider.requests
    assert not (cli.home / "logs" / "judge.log").exists()


def test_a_missing_key_is_found_before_the_run(judged: tuple[Cli, ScriptedProvider]) -> None:
    """With everything else that is wrong with the spec, and before anybody is asked."""
    cli, provider = judged
    spec(cli, provider, key_variable="NO_SUCH_KEY", timeout="never")
    for command in ("run", "validate"):
        refused = cli.run(command, "assay.yaml", status=2)
        assert "judge.timeout" in refused.stdout + refused.stderr
    spec(cli, provider, key_variable="NO_SUCH_KEY")
    refused = cli.run("run", "assay.yaml", status=2)
    assert "judge.key_variable: the environment variable NO_SUCH_KEY is not set" in refused.stderr
    assert not (cli.folder / "calls.txt").exists()


def test_a_missing_price_is_found_before_the_run(judged: tuple[Cli, ScriptedProvider]) -> None:
    """With a spend cap, `validate` and `run` name the model and what to write; neither agent nor judge is asked."""
    cli, provider = judged
    spec(cli, provider, spend_cap=1.0)
    del cli.env["ASSAY_JUDGE_PRICES"]
    for command in ("validate", "run"):
        wrong = cli.run(command, "assay.yaml", status=2)
        assert "judge.model: judge-1 has no price at http://127.0.0.1:" in wrong.stderr
        assert "write its prices beside it in the spec" in wrong.stderr
    assert not (cli.folder / "calls.txt").exists()
    assert not provider.requests
    cli.write("wrong.yaml", "prices: [{model: 'judge-1', input: 1}]")
    wrong = cli.run("validate", "assay.yaml", "--prices", "wrong.yaml", status=2)
    assert "prices[0].output: is missing" in wrong.stderr
    elsewhere = cli.run("validate", "assay.yaml", "--prices", "prices.yaml", "--server", "127.0.0.1:1", status=2)
    assert "--prices: applies to a judge that this command starts" in elsewhere.stderr
    valid = cli.run("validate", "assay.yaml", "--prices", "prices.yaml").stdout
    allowed = "spend cap $1 (a verdict on 2 KB of text may cost up to $0.0202, at least 49 like that)"
    assert f"judge    openai:judge-1@{provider.openai_url}, {allowed}\n" in valid
    spec(cli, provider, spend_cap=1.0, prices={"input": 1, "output": 5})
    done = cli.run("run", "assay.yaml")
    assert "$0.0390" in done.stdout
    assert allowed in done.stderr


def test_services_that_are_killed_in_the_midst(judged: tuple[Cli, ScriptedProvider]) -> None:
    """Orchestrator and judge are killed while verdicts are out: the run ends, and the agent was asked once for each."""
    cli, _ = judged
    may_reply = threading.Event()

    def late(request: ProviderRequest) -> Reply:
        may_reply.wait(100)
        return says(GOOD)(request)

    with ScriptedProvider(late) as slow:
        spec(cli, slow)
        running = cli.start("run", "assay.yaml", "--no-progress", "--set", "agent.concurrency=20")
        # An answer that is not stored yet would be asked for again.
        cli.wait_until(lambda: slow.requests and stored_answers(cli) == 20, running)
        for process in cli.services():
            if "assay_embedder" not in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
        may_reply.set()
        out, err = running.communicate(timeout=100)
    assert running.returncode == 0, out + err
    assert "verdicts  20:" in out
    assert calls(cli) == 20


def test_the_local_stack_knows_the_judge(cli: Cli) -> None:
    """`up --judge` keeps one, `doctor` shows it, `down` stops it."""
    cli.run("up", "--no-embedder", "--judge")
    try:
        shown = cli.run("doctor").stdout
        assert "judge (process" in shown
        assert "judge installed" in shown
    finally:
        stopped = cli.run("down").stdout
    assert "judge" in stopped


def batched(cli: Cli, provider: ScriptedProvider, **judge: Any) -> None:
    """Write a spec whose verdicts come in batches that leave soon."""
    spec(cli, provider, batch=True, **judge)
    cli.env |= {"ASSAY_JUDGE_BATCH_WAIT_S": "1", "ASSAY_JUDGE_BATCH_POLL_S": "0.1"}


def test_a_batched_run_whose_services_are_killed(judged: tuple[Cli, ScriptedProvider]) -> None:
    """Orchestrator and judge are killed while a batch is out: nothing is asked twice, and it costs half."""
    cli, provider = judged
    batched(cli, provider)
    provider.batches.is_held = True
    running = cli.start("run", "assay.yaml")
    cli.wait_until(lambda: provider.batches.looked >= 2 and stored_answers(cli) == 20, running)
    for process in cli.services():
        process.send_signal(signal.SIGKILL)
    provider.batches.is_held = False
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, out + err
    assert "every answer is stored, 20 rows await verdicts of a batch" in err
    assert "verdicts  20: 20 asked (20 in batches)  27,000 tokens  $0.0195" in out
    assert (calls(cli), len(provider.batches.paid), len(provider.requests)) == (20, 20, 0)


def test_a_jury(shared_judged: tuple[Cli, ScriptedProvider]) -> None:
    """A line a judge, and how far they agree."""
    cli, provider = shared_judged
    who = {"provider": "openai", "base_url": provider.openai_url}
    spec(cli, provider)
    data = json.loads((cli.folder / "assay.yaml").read_text())
    data["judge"] = {"jury": [{**who, "model": "judge-1"}, {**who, "model": "judge-2"}], "canaries": 0}
    cli.write("assay.yaml", json.dumps(data))
    out = cli.run("run", "assay.yaml", "--output-dir", "out").stdout
    assert "verdicts  40: 40 asked" in out
    assert out.count("juror  openai:judge-") == 2
    assert "20 verdicts  quality 4.000  $0.0390" in out
    assert "jury  quality: alpha - over 20 rows" in out
    judging = json.loads((cli.folder / "out" / "results.json").read_text())["summary"]["judging"]
    assert [one["means"] for one in judging["jurors"]] == [{"quality": 4.0}] * 2
