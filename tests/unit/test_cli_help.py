"""Help texts of the command: every option says what it does and what holds where it is not given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from assay_cli.commands import assay
from assay_cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from collections.abc import Iterator


def options(command: click.Command, path: str) -> Iterator[tuple[str, click.Option]]:
    """Yield every option of a command and of the commands below it."""
    context = click.Context(command, info_name=path)
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            yield path, parameter
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")


OPTIONS = list(options(assay, "assay"))


@pytest.mark.parametrize(("path", "option"), OPTIONS, ids=[f"{path} {option.opts[-1]}" for path, option in OPTIONS])
def test_an_option_is_described_with_its_default(path: str, option: click.Option) -> None:
    """One sentence; an option with a value names its default, or that it may be repeated; amounts have a unit."""
    text = option.help or ""
    assert text[:1].isupper()
    assert text.endswith(".")
    if not option.is_flag and not option.required:
        assert "default: " in text or option.show_default or (option.multiple and "repeatable" in text), text
    if option.default not in (None, False, "", ()) and isinstance(option.default, int | str):
        assert f"default: {option.default}" in text or option.show_default
    if option.metavar == "USD":
        assert "US dollars" in text


def test_all_options_are_found() -> None:
    """The walk over the options includes the groups."""
    assert len(OPTIONS) > 100
    assert {"assay runs resume", "assay judge drift", "assay datasets inspect"} <= {path for path, _ in OPTIONS}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("version", "did you mean `assay --version`?"),
        ("view", "did you mean `assay runs show latest`?"),
        ("prune", "did you mean `assay runs prune`?"),
        ("inspect", "did you mean `assay datasets inspect`?"),
        ("list", "did you mean `assay runs list` or `assay datasets list` or `assay metrics list` or `assay baseline"),
        ("rnu", "did you mean 'run'?"),
        ("frobnicate", "known: run, rescore,"),
    ],
)
def test_an_unknown_command_names_the_one_that_is_meant(name: str, message: str) -> None:
    """Names from other tools, and commands without their group, are answered with the right command."""
    done = CliRunner().invoke(assay, [name])
    assert done.exit_code == 2
    assert f"unknown command {name!r}; {message}" in done.stderr


def test_long_helps_have_headings() -> None:
    """A command with more than twenty options groups them, by names that it has; few stand under "Other"."""
    paths = [path for path, _ in OPTIONS]
    for path in {path for path in paths if paths.count(path) > 20}:
        command: click.Command | None = assay
        for name in path.split()[1:]:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        assert isinstance(command, GroupedCommand), path
        grouped = {name for names in command.groups.values() for name in names}
        own = {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}
        assert grouped <= own, path
        assert len(own - grouped) <= 8, path
