"""Settings of services: where a value comes from, and that everything wrong is reported at once, with its place."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError, Problem
from assay.process.logs import LogSettings
from assay.process.settings import ServiceSettings, listed, number, path, setting
from assay_orchestrator.__main__ import _in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _sizes(text: str) -> dict[str, int]:
    return {part: len(part) for part in listed(text)}


@dataclass(frozen=True, kw_only=True)
class Settings(ServiceSettings):
    """One setting of each kind."""

    service = "test"
    description = "Does nothing."

    max_things: int = setting(4, "things at once", least=1, most=500)
    pause_s: float = setting(0.5, "seconds between things", above=0, most=1_000)
    cap: float | None = setting(None, "most money", read=number, least=0)
    colour: str = setting("red", "colour of things", choices=("red", "green", "blue"))
    folder: Path | None = setting(None, "where things are", read=path)
    state: Path | None = setting(None, "where state is kept", read=path, home="state")
    database_url: str = setting("", "where things are kept", also="OTHER_URL", is_secret=True)
    allowed: tuple[str, ...] = setting((), "what may be named", flag="allow", metavar="PATTERN")
    hosts: tuple[str, ...] = setting((), "hosts, comma-separated", read=listed)
    sizes: Mapping[str, int] = setting({}, "lengths of words", read=_sizes)
    cache: bool = setting(True, "use things again")

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with values together."""
        if self.colour == "green" and not self.cache:
            yield Problem("needs a cache", "--colour")


def read(*arguments: str, **environment: str) -> Settings:
    """Return the settings."""
    return Settings.read(arguments, environment)


def problems_of(*arguments: str, **environment: str) -> list[str]:
    """Return everything that is wrong, as people read it."""
    with pytest.raises(InvalidInputError) as caught:
        read(*arguments, **environment)
    assert caught.value.reason == "INVALID_SETTINGS"
    return [str(problem) for problem in caught.value.problems]


def test_flags_go_before_variables_and_these_before_defaults() -> None:
    """An empty variable is not set, an empty flag is; a variable may have a second name."""
    assert read(ASSAY_HOME="/home") == Settings(state=Path("/home/state"))
    assert read().state == Path("~/.assay/state").expanduser()
    assert Settings().log == LogSettings()
    variables = {
        "ASSAY_TEST_MAX_THINGS": "5", "ASSAY_TEST_ALLOW": "a, b", "ASSAY_TEST_CACHE": "off", "OTHER_URL": "u",
        "ASSAY_TEST_FOLDER": "", "ASSAY_TEST_STATE": "/own", "ASSAY_TEST_LOG_LEVEL": "DEBUG",
    }  # fmt: skip
    assert read("--pause-s", "1", "--hosts", "x, y", "--sizes", "one", **variables) == Settings(
        max_things=5, pause_s=1.0, database_url="u", allowed=("a", "b"), cache=False, hosts=("x", "y"),
        state=Path("/own"), sizes={"one": 3}, log_level="debug",
    )  # fmt: skip
    labels = read("--max-things=6", "--allow", "c", "--allow", "d,e", "--cache", "--database-url", "", **variables)
    assert (labels.max_things, labels.allowed, labels.cache, labels.database_url) == (6, ("c", "d,e"), True, "")


def test_everything_wrong_is_reported_at_once() -> None:
    """Unknown flags, values of another kind by flag or variable, and values that are not allowed, alone or together."""
    arguments = ["--max-thing", "3", "--max-things", "900", "--colour", "green", "--no-cache", "--grace-s", "-1"]
    assert problems_of(*arguments, ASSAY_TEST_PAUSE_S="nan", ASSAY_TEST_REFLECTION="perhaps") == [
        "unknown flag '--max-thing'; did you mean '--max-things'?",
        "ASSAY_TEST_REFLECTION: must be true or false, not 'perhaps'",
        "ASSAY_TEST_PAUSE_S: must be a number, not 'nan'",
        "--grace-s: must be at least 0",
        "--max-things: must be from 1 to 500",
        "--colour: needs a cache",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-things", "4.5"], "--max-things: must be a whole number, not '4.5'"),
        (["--max-things", "0"], "--max-things: must be from 1 to 500"),
        (["--pause-s", "0"], "--pause-s: must be above 0 and at most 1,000"),
        (["--cap", "-1"], "--cap: must be at least 0"),
        (["--colour", "grey"], "--colour: must be red, green or blue, not 'grey'"),
        (["--log-level", "loud"], "--log-level: must be debug, info, warning or error, not 'loud'"),
        (["--listen", ""], "--listen: is empty; give unix:/path or host:port"),
        (["--state", ""], "--state: is empty: give a path"),
        (["--max-things"], "argument --max-things: expected one argument"),
        (["stray"], "'stray' belongs to no flag: leave it out"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: list[str], message: str) -> None:
    """No usage of forty lines stands before what is wrong."""
    assert problems_of(*arguments) == [message]


def test_settings_made_in_code_are_checked_too() -> None:
    """What no flag would be allowed, no caller is."""
    with pytest.raises(InvalidInputError, match="--max-things: must be from 1 to 500\n--colour: must be"):
        Settings(max_things=501, colour="grey")


def test_help_shows_what_is_in_force_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    """The help tells the value that a variable gives, but not where that may hold a secret."""
    with pytest.raises(SystemExit):
        read("--help", ASSAY_TEST_FOLDER="/a%20b", OTHER_URL="postgresql://user:secret@host/name", ASSAY_HOME="/home")
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("(default: /a%20b)", "(default: /home/state)", "colour of things: red, green or blue (default: red)",
                 "what may be named; repeatable (default: none)", "--cache, --no-cache", "(default: on)",
                 "--grace-s is ASSAY_TEST_GRACE_S"):  # fmt: skip
        assert part in shown
    assert "secret" not in shown


def test_every_setting_has_a_flag_and_a_secret_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that operators cannot reach does not exist."""
    with pytest.raises(SystemExit):
        read("--help")
    shown = capsys.readouterr().out
    names: list[Any] = ["allow" if field.name == "allowed" else field.name for field in fields(Settings)]
    assert not [name for name in names if f"--{name.replace('_', '-')} " not in shown.replace(",", " ")]
    assert "secret" not in repr(Settings(database_url="postgresql://user:secret@host/name"))


EARLY = """
import os, signal, time
from {package} import __main__ as process

class Settings:
    @staticmethod
    def read(arguments, environ):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

process.Settings = Settings
process.main()
"""


@pytest.mark.parametrize("package", ["assay_embedder", "assay_judge", "assay_orchestrator"])
def test_sigterm_before_a_service_serves_ends_it_with_0(package: str) -> None:
    """A supervisor would count a death by the signal as a crash."""
    done = subprocess.run([sys.executable, "-c", EARLY.format(package=package)], check=False, timeout=100)
    assert done.returncode == 0


def test_a_lost_listener_is_one_line_of_the_log() -> None:
    """Each restart of PostgreSQL ends it; a traceback of the queue's own code tells an operator nothing."""
    problem = OSError("server closed\n  the connection")
    record = logging.LogRecord("procrastinate.utils", logging.ERROR, "", 1, "listener error", (), None)
    record.exc_info = (OSError, problem, None)
    assert _in_one_line(record)
    assert record.getMessage() == "listener error: server closed the connection"
    assert not record.exc_info
