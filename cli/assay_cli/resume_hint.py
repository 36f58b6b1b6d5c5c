"""Commands in messages: the user's own command with another option, and others for the same server."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRINTED = re.compile(r"`assay ([^`\n]+)`")


def repeated_command(context: click.Context, *, without: str) -> str:
    """Return the user's command line without one option, quoted for a shell.

    Args:
        context: Context of the command.
        without: Parameter name of the omitted option.
    """
    names, place = list[str](), context
    while place.parent is not None:  # the outermost context holds the interpreter's arguments
        names, place = [str(place.info_name), *names], place.parent
    words = ["assay", *names]
    for parameter in context.command.params:
        name = str(parameter.name)
        value: Any = context.params.get(name)
        if not isinstance(parameter, click.Option):
            words += map(str, value) if isinstance(value, tuple) else (str(value),)
        elif name != without and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = parameter.opts[0]
            if parameter.is_flag:
                words.append(option)
            for item in () if parameter.is_flag else value if parameter.multiple else (value,):
                words += (option, str(item))
    return shlex.join(words)


def pasted(text: str, root: click.Command | None = None) -> str:
    """Add this command's --server to the commands in backquotes within a text.

    Args:
        text: The text.
        root: The root command `assay`; None for the running command's root.
    """
    server = _server_in(sys.argv)
    if root is None and (context := click.get_current_context(silent=True)) is not None:
        root = context.find_root().command
    if root is None or not server or "`assay " not in text:
        return text

    def with_server(match: re.Match[str]) -> str:
        words = match[1]
        return f"`assay {words} --server {shlex.quote(server)}`" if _takes_server(root, words.split()) else match[0]

    return _PRINTED.sub(with_server, text)


def _server_in(argv: Sequence[str]) -> str:
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--server" or word.startswith("--server="):
            return word.partition("=")[2] or following
    return ""


def _takes_server(root: click.Command, words: Sequence[str]) -> bool:
    """Return whether words are an `assay` command that takes --server but does not give it."""
    command, _ = find_command(root, words)
    options = [option for parameter in command.params for option in parameter.opts]
    return "--server" in options and "--server" not in words


def find_command(root: click.Command, words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """Return the subcommand of `root` that begins the words, and the words after its name."""
    command = root
    rest = list(words)
    while rest and isinstance(command, click.Group):
        subcommand = command.get_command(click.Context(command), rest[0])
        if subcommand is None:
            break
        command, rest = subcommand, rest[1:]
    return command, rest
