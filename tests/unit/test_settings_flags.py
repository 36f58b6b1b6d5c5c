"""Settings of services: where a value comes from, and that everything wrong is told at once, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.errors import InvalidInputError, Problem
from assay.runtime.logs import LogSettings
from assay.runtime.settings_flags import SettingsFlags


def flags_of(environment: dict[str, str]) -> SettingsFlags:
    """Return the flags of a service that has one of each kind."""
    flags = SettingsFlags("test", "Does nothing.", "max_things", environment)
    flags.add("max_things", "things at once", int, 4)
    flags.add("pause_s", "seconds between things", float, 0.5)
    flags.add("folder", "where things are", Path, None)
    flags.add("database_url", "where things are kept", shown="none", also="OTHER_URL")
    flags.several("allow", "PATTERN", "what may be named")
    flags.switch("cache", "use things again")
    return flags


def read(*arguments: str, **environment: str) -> dict[str, Any]:
    """Return the values."""
    return flags_of(environment).read(arguments, dict)


def problems_of(*arguments: str, **environment: str) -> list[str]:
    """Return everything that is wrong, as people read it."""
    with pytest.raises(InvalidInputError) as caught:
        read(*arguments, **environment)
    return [str(problem) for problem in caught.value.problems]


def test_flags_go_before_variables_and_these_before_defaults() -> None:
    """An empty variable is not set, an empty flag is; a variable may have a second name."""
    assert read() == {
        "max_things": 4, "pause_s": 0.5, "folder": None, "database_url": None, "allow": (), "cache": True,
        "log": LogSettings(),
    }  # fmt: skip
    variables = {"ASSAY_TEST_MAX_THINGS": "5", "ASSAY_TEST_ALLOW": "a, b", "ASSAY_TEST_CACHE": "off", "OTHER_URL": "u"}
    given = read("--pause-s", "1", **variables, ASSAY_TEST_FOLDER="")
    assert given == {
        "max_things": 5, "pause_s": 1.0, "folder": None, "database_url": "u", "allow": ("a", "b"), "cache": False,
        "log": LogSettings(),
    }  # fmt: skip
    given = read("--max-things=6", "--allow", "c", "--allow", "d", "--cache", "--database-url", "", **variables)
    assert (given["max_things"], given["allow"], given["cache"], given["database_url"]) == (6, ("c", "d"), True, "")


def test_everything_wrong_is_told_at_once() -> None:
    """Unknown flags, values of another kind by flag or variable, and what the service itself finds."""

    def build(values: dict[str, Any]) -> None:
        # A value that could not be read has its default, so that the others can be judged.
        assert values["pause_s"] == 0.5
        raise InvalidInputError([Problem("is too many", "--max-things")])

    with pytest.raises(InvalidInputError) as caught:
        flags_of({"ASSAY_TEST_PAUSE_S": "nan", "ASSAY_TEST_CACHE": "perhaps"}).read(
            ["--max-thing", "3", "--max-things", "900"], build
        )
    assert [str(problem) for problem in caught.value.problems] == [
        "unknown flag '--max-thing'; did you mean '--max-things'?",
        "ASSAY_TEST_PAUSE_S: must be a number, not 'nan'",
        "ASSAY_TEST_CACHE: must be true or false, not 'perhaps'",
        "--max-things: is too many",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-things", "4.5"], "--max-things: must be a whole number, not '4.5'"),
        (["--max-things"], "argument --max-things: expected one argument"),
        (["stray"], "'stray' belongs to no flag: leave it out"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: list[str], said: str) -> None:
    """No usage of forty lines stands before what is wrong."""
    assert problems_of(*arguments) == [said]


def test_what_building_finds_is_told_too() -> None:
    """A service may say in a plain ValueError what its settings lack."""

    def build(values: dict[str, Any]) -> None:
        raise ValueError("a folder is needed")

    with pytest.raises(InvalidInputError, match="a folder is needed"):
        flags_of({}).read([], build)


def test_help_shows_what_is_in_force_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    """The help tells the value that a variable gives, but not where that may hold a secret."""
    with pytest.raises(SystemExit):
        read("--help", ASSAY_TEST_FOLDER="/a%20b", OTHER_URL="postgresql://user:secret@host/name")
    shown = capsys.readouterr().out
    assert "(default: /a%20b)" in shown
    assert "secret" not in shown
    assert "ASSAY_TEST_MAX_THINGS" in shown
