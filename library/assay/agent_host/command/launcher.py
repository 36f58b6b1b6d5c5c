"""Starting the processes of a command; the program is located first, and repeated crashes end the attempts."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from assay.agent_host.command.guard import GroupGuard
from assay.agent_host.failures import Failures
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response
from assay.model.command_options import command_words, target_problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.agent_host.command.process import AgentProcess

MAX_FRUITLESS = 30
"""How many consecutive processes may end without an answer before no further one is started."""

_LAST_LINE_CHARS = 300


def find_command(target: str, folder: Path) -> list[str]:
    """Return the words of a command line whose program exists.

    Args:
        target: The command line.
        folder: The working folder; a program with a slash is relative to it, others are searched on PATH.

    Raises:
        InvalidInputError: The program does not exist or is not executable.
    """
    if problem := target_problem(target):
        raise _refusal(problem)
    words = command_words(target)
    program = words[0]
    if "/" not in program:
        if shutil.which(program) is None:
            near = f", or write ./{program} for the file in the spec's folder" if (folder / program).is_file() else ""
            raise _refusal(f"there is no program {program!r} on PATH: install it{near}")
        return words
    file = folder / program
    if not file.is_file():
        raise _refusal(f"there is no program {file}: a name with a slash is found from the spec's folder")
    if not os.access(file, os.X_OK):
        raise _refusal(f"{file} is not executable: `chmod +x` it, or name what runs it, e.g. 'sh {program}'")
    return words


def _refusal(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")


class NotStartedError(Exception):
    """A process could not be started; `response` is the answer that says why."""

    def __init__(self, response: AgentResponse) -> None:
        super().__init__()
        self.response = response


class Launcher:
    """Starts and ends the processes of a command.

    Args:
        words: The program and its arguments.
        folder: Their working folder.
        environment: Environment variables added to those of this process.
    """

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._words = words
        self._folder = folder
        self._environment = environment
        self._processes: set[AgentProcess] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._fruitless = 0
        self._why = ""
        self.guard = GroupGuard()
        self.failures = Failures()

    async def start(self, process: AgentProcess, **variables: str) -> None:
        """Start a process with this process's environment and the additional variables.

        Raises:
            NotStartedError: It cannot be started, or too many before it ended without an answer.
        """
        if self._fruitless >= MAX_FRUITLESS:
            message = f"{self._fruitless} processes in a row ended without an answer, so no further one is started"
            raise NotStartedError(error_response(AgentErrorKind.UNREACHABLE, f"{message}: {self._why}"))
        self._processes.add(process)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: process,
                *self._words,
                cwd=self._folder,
                start_new_session=True,  # a group of its own: it ends as a whole, and Ctrl-C does not reach it
                env={**os.environ, **self._environment, **variables},
            )
        except OSError as problem:
            self._processes.discard(process)
            self.note_fruitless(f"the command cannot be started: {problem.strerror or problem}")
            raise NotStartedError(error_response(AgentErrorKind.UNREACHABLE, self._why)) from None

    def note_answer(self) -> None:
        """Record that the command answers."""
        self._fruitless = 0

    def note_fruitless(self, why: str) -> None:
        """Record that a process ended without an answer."""
        self._fruitless += 1
        self._why = why

    def note_end(self, process: AgentProcess) -> None:
        """Record that a process has ended."""
        self._processes.discard(process)

    def stop(self, process: AgentProcess) -> None:
        """Begin to end a process."""
        task = asyncio.create_task(process.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def failure(
        self, kind: AgentErrorKind, message: str, process: AgentProcess, *, retryable: bool = False
    ) -> AgentResponse:
        """Return the failed answer of a process, with the last lines of its log."""
        log = self.failures.redacted(process.last_lines)
        text = self.failures.redacted(message)
        if kind is AgentErrorKind.UNREACHABLE and (last := log.rpartition("\n")[2].strip()):
            text += f"; its last line on stderr: {last[:_LAST_LINE_CHARS]}"
        return error_response(kind, text, retryable=retryable, traceback=log)

    async def aclose(self) -> None:
        """End all processes."""
        await asyncio.gather(*(process.stop() for process in list(self._processes)), *self._stopping)
        await self.guard.aclose()
