"""The options and the target of the command adapter; no shell interprets the command line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.parsing.fields import Fields
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES = ("stream", "per_question")
"""How many questions a process answers: all of them, or one."""

COMMAND_KEYS = ("mode", "processes")
"""The adapter's options."""

MAX_PROCESSES = 100


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """How a command's processes are used.

    Args:
        mode: One of `MODES`.
        processes: Maximum number of concurrent processes that answer streams of questions, 1 to 100.
    """

    mode: str = "stream"
    processes: int = 1

    @classmethod
    def from_options(cls, options: Mapping[str, Any], problems: list[Problem]) -> CommandOptions:
        """Return the options of a spec; append problems to `problems`."""
        Fields.of_agent(options, problems).unknown(COMMAND_KEYS, "option of the command adapter")
        mode, processes = options.get("mode", "stream"), options.get("processes", 1)
        if mode not in MODES:
            problems.append(Problem(unknown_name("mode", mode, MODES), "agent.mode"))
        if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= MAX_PROCESSES:
            message = f"must be a whole number from 1 to {MAX_PROCESSES}, not {processes!r}"
            problems.append(Problem(message, "agent.processes"))
            processes = 1
        elif mode == "per_question" and "processes" in options:
            message = "a process answers one question: remove it; `concurrency` says how many run at once"
            problems.append(Problem(message, "agent.processes"))
        return cls(mode if mode in MODES else "stream", processes)


def command_line(target: object) -> object:
    """Return a target given as a list of words as a text that `command_words` splits into them; others unchanged."""
    if isinstance(target, list) and target and all(isinstance(word, str) for word in target):
        return shlex.join(target)
    return target


def command_words(target: str) -> list[str]:
    """Return the program of a command line and its arguments.

    Raises:
        ValueError: A quotation is not closed, or there is no program.
    """
    words = shlex.split(target)
    if not words or not words[0]:
        raise ValueError("No program")
    return words


def target_problem(target: str) -> str:
    """Return why a target is not a command line; empty if it is one."""
    if "\0" in target:
        return "holds a NUL character: remove it"
    try:
        command_words(target)
    except ValueError as problem:
        if str(problem) == "No program":
            return "must be a command line, e.g. 'node agent.js', or a list of its words"
        return f"cannot be split into words ({str(problem).lower()}): quote them as in a shell, or give a list of words"
    return ""
