"""The command that the user gave, to be given again with another option."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.core import ParameterSource


def command_again(context: click.Context, *, without: str) -> str:
    """Return the command of a context as it was given, quoted for a shell, without one option.

    Args:
        context: Of the command.
        without: The name of that option's parameter.
    """
    names, place = list[str](), context
    while place.parent is not None:  # the outermost is what the interpreter was given
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
