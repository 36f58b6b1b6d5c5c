"""The orchestrator's settings: where they come from, and that everything wrong is told at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import InvalidInputError
from assay_orchestrator.settings import Settings


def test_flags_go_before_variables() -> None:
    """The database's address has a second variable, which other programs know; a flag may empty it."""
    environment = {
        "ASSAY_HOME": "/state",
        "ASSAY_DATABASE_URL": "postgresql://a@b/c",
        "ASSAY_ORCHESTRATOR_HTTP_HOSTS": "one, two",
        "ASSAY_ORCHESTRATOR_GRACE_S": "5",
        "ASSAY_ORCHESTRATOR_REFLECTION": "false",
    }
    settings = Settings.read(["--grace-s", "7"], environment)
    assert (settings.database, settings.database_url) == (Path("/state/assay.db"), "postgresql://a@b/c")
    assert (settings.http_hosts, settings.grace_s, settings.reflection) == (("one", "two"), 7.0, False)
    assert Settings.read(["--database-url", ""], environment).database_url == ""
    own = Settings.read(
        ["--database", "own.db"], {**environment, "ASSAY_ORCHESTRATOR_DATABASE_URL": "postgresql://d/e"}
    )
    assert (own.database, own.database_url) == (Path("own.db"), "")
    empty = Settings.read(["--database", "own.db", "--database-url", ""], environment)
    assert (empty.database, empty.database_url) == (Path("own.db"), "")
    with pytest.raises(InvalidInputError, match="--database: stands in place of --database-url: give one of the two"):
        Settings.read(["--database", "own.db", "--database-url", "postgresql://a@b/c"], {})
    assert Settings.read(["--no-reflection"], {}).reflection is False


def test_all_problems_are_told_at_once() -> None:
    """Values of another kind, values that are not allowed, and flags that there are not."""
    wrong = ["--recover", "never", "--grace-s", "-1", "--active-run-limit", "many"]
    wrong += ["--row-try-limit", "1", "--databse", "x"]
    with pytest.raises(InvalidInputError) as caught:
        Settings.read(wrong, {"ASSAY_ORCHESTRATOR_WATCH_STALL_S": "soon"})
    sentence = "\n".join(str(problem) for problem in caught.value.problems)
    assert len(caught.value.problems) == 6
    for part in ("--recover", "--grace-s", "--active-run-limit", "--row-try-limit", "did you mean '--database'",
                 "ASSAY_ORCHESTRATOR_WATCH_STALL_S"):  # fmt: skip
        assert part in sentence


def test_teams_have_weights_and_agents_limits() -> None:
    """Lists of name=number, and what does not fit is told."""
    settings = Settings.read(["--team-weights", "search=2,ads=0.5", "--agent-limits", "agent.example.org=40"], {})
    assert (settings.team_weights, settings.agent_limits) == ({"search": 2.0, "ads": 0.5}, {"agent.example.org": 40})
    with pytest.raises(InvalidInputError, match=r"team=weight with 0.01 to 100, not 'search=many'"):
        Settings.read(["--team-weights", "search=many"], {})
    with pytest.raises(InvalidInputError, match="host=count, not 'x=0'"):
        Settings.read(["--agent-limits", "x=0"], {})


def test_networks_and_the_proxy_of_calls_are_read() -> None:
    """Addresses among the hosts are allowed by that; a network or a proxy of another form is refused with its flag."""
    given = ["--egress-networks", "10.0.0.0/8, fd00::/8", "--http-hosts", "*.test,192.168.1.7", "--egress-proxy"]
    egress = Settings.read([*given, "http://proxy.test:3128"], {}).egress
    assert [egress.allows(each) for each in ("10.1.1.1", "fd00::1", "192.168.1.7", "192.168.1.8")] == [True] * 3 + [
        False
    ]
    assert egress.proxy == "http://proxy.test:3128"
    assert Settings.read(["--egress-networks", "*"], {}).egress.allows("127.0.0.1")
    for wrong in (["--egress-networks", "10.0.0.1/8"], ["--egress-proxy", "https://a:b@proxy.test"]):
        with pytest.raises(InvalidInputError, match=f"{wrong[0]}: must be "):
            Settings.read(wrong, {})


def test_processes_share_a_postgresql_database_alone() -> None:
    """A file has one process, which does all; roles, times and recovery that do not fit are told at once."""
    with pytest.raises(InvalidInputError) as caught:
        Settings.read(["--role", "worker", "--dead-after-s", "0.5"], {})
    sentences = [str(problem) for problem in caught.value.problems]
    assert [text.split()[0] for text in sentences] == ["--dead-after-s:", "--role:"]
    with pytest.raises(InvalidInputError, match="others take over interrupted runs"):
        Settings.read(["--database-url", "postgresql://h/d", "--recover", "on-request"], {})


def test_wrong_settings_end_the_process_with_a_sentence_each() -> None:
    """Exit status 2, a line for each problem, no traceback."""
    command = [sys.executable, "-m", "assay_orchestrator", "--recover", "never", "--grace-s", "soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "assay orchestrator: --grace-s: must be a number, not 'soon'",
        "assay orchestrator: --recover: must be auto or on-request, not 'never'",
    ]


def test_no_help_shows_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    """What the database's address is set to may hold one."""
    with pytest.raises(SystemExit):
        Settings.read(["--help"], {"ASSAY_DATABASE_URL": "postgresql://a:pa55word@b/c"})
    assert "pa55word" not in capsys.readouterr().out
