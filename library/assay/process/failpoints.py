"""Failpoints: places where a test may kill, stop, delay or fail this process; inert without a setting.

ASSAY_FAILPOINTS is a list of `NAME=ACTION` separated by semicolons:

    run.before_commit=kill@3; agent.before_call=delay:0.5; answer.before_commit=error@2+

`@3` fires on the third pass only, `@2+` from the second pass on; without it, every pass fires.

    kill         the process ends as by `kill -9`
    stop         the process stops until it gets SIGCONT
    exit         the process exits at once, with status 86
    delay:S      the passing thread sleeps for S seconds
    error        StorageError is raised
    nospace      OSError(ENOSPC) is raised
    jump:S       from now on the store's clock is S seconds ahead, or behind if S is negative

ASSAY_FAILPOINTS_LOG is a file that gets a line for every pass of every failpoint: process id, name, number of the pass,
action or `-`. With it, kill, stop and exit fire only once per name, so that a restarted process is not ended again.

Both variables are read once, at the start of the process. Nothing that arrives over a connection has any effect.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FAILPOINTS = {
    "schema.before_commit": "tables were made or upgraded, their transaction is open",
    "schema.after_commit": "tables were made or upgraded, nothing else is done yet",
    "recovery.run_continued": "after a start, a run that a stop interrupted has been continued or paused",
    "recovery.job_given_back": "a job of a worker that is gone waits for others again",
    "dataset.before_commit": "cases of an upload were written, their transaction is open",
    "dataset.after_commit": "cases of an upload are stored, more are to come",
    "dataset.finished": "a whole dataset is stored, its client does not know yet",
    "run.before_commit": "a run and its shards were written, their transaction is open",
    "run.after_commit": "a run is stored, its client does not know yet",
    "shard.start_before_commit": "a shard was taken, the transaction is open",
    "shard.start_after_commit": "a shard is taken, nothing of it is read yet",
    "agent.before_call": "a question is about to be asked",
    "agent.after_answer": "an answer has come and is in memory only",
    "answer.before_commit": "answers were written, their transaction is open",
    "answer.after_commit": "answers are stored, nothing depends on them yet",
    "evidence.before": "vectors are about to be asked for",
    "evidence.after": "vectors have come, the row is about to be scored",
    "result.before_commit": "results were written, their transaction is open",
    "result.after_commit": "results are stored, no watcher has them yet",
    "early_stop.before_commit": "a comparison has stopped early, the transaction is open",
    "early_stop.after_commit": "a comparison has stopped early, its runs still ask",
    "shard.leave_before_commit": "a shard was marked done, the transaction is open",
    "shard.leave_after_commit": "a shard is done, what follows is not started yet",
    "summary.before_commit": "a run was ended, with its summary or the reason why, the transaction is open",
    "summary.after_commit": "a run has ended, its watchers do not know yet",
    "watch.page_read": "events for a watcher were read and are not sent",
    "watch.events_sent": "a message of a watch was sent",
    "retry.before_commit": "rows with errors were set aside, the transaction is open",
    "retry.after_commit": "rows with errors are set aside, none of them is tried again yet",
    "deletion.begun": "a run is gone, its rows are not",
    "deletion.batch_removed": "some rows of a deleted run are gone",
    "team.batch_erased": "some rows of a deleted team are gone",
    "team.rows_erased": "all rows of a deleted team are gone, other services are not asked yet",
    "judge.order_before_commit": "an order of a verdict was written, its transaction is open",
    "judge.order_after_commit": "an order of a verdict is stored, its caller does not know yet",
    "judge.batch_before_submit": "a batch is about to be created at the provider, its lease is not checked yet",
    "judge.batch_after_submit": "the provider has a batch, its id is not stored",
    "judge.batch_before_settle": "results of a batch were read, nothing of them is stored",
    "stop.draining": "the process stops and drains the work in flight",
    "store.clock": "the store reads the clock",
    "client.dataset_uploaded": "a client knows that its dataset is stored",
    "client.run_created": "a client knows of the run that it has started",
    "client.run_followed": "a client knows how a run ended and has not read its rows",
    "host.question_received": "a client that hosts an agent was asked and has not called it",
    "host.before_call": "a client that hosts an agent is about to call it",
    "host.answer_ready": "a hosted agent has answered, the answer is not sent",
    "report.before_rename": "a report is complete under its temporary name",
    "report.after_rename": "a report has its final name",
}
"""Every failpoint there is, and where a process stands that comes by."""

ACTIONS = {"kill": False, "stop": False, "exit": False, "delay": True, "error": False, "nospace": False, "jump": True}
"""Every action, and whether it takes a number of seconds."""

EXIT_STATUS = 86
_ENDING = ("kill", "stop", "exit")


class _Entry:
    """The action of one failpoint, and on which pass it fires."""

    def __init__(self, text: str) -> None:
        name, equals, rest = (part.strip() for part in text.partition("="))
        action, _, times = rest.partition("@")
        self.name = name
        self.action, colon, seconds = action.partition(":")
        self.goes_on = not times or times.endswith("+")
        if name not in FAILPOINTS or not equals or self.action not in ACTIONS or ACTIONS[self.action] != bool(colon):
            raise ValueError(
                f"ASSAY_FAILPOINTS: {text.strip()!r} is not NAME=ACTION[:SECONDS][@TIME] with a name of "
                f"assay.process.failpoints.FAILPOINTS and one of the actions {', '.join(ACTIONS)}"
            )
        try:
            self.first = int(times.removesuffix("+")) if times else 1
            self.seconds = float(seconds or 0)
        except ValueError:
            raise ValueError(f"ASSAY_FAILPOINTS: {text.strip()!r} has something else where a number belongs") from None

    def applies(self, passing: int) -> bool:
        return passing >= self.first if self.goes_on else passing == self.first


class Failpoints:
    """The failpoint actions of a process.

    Args:
        text: The value of ASSAY_FAILPOINTS.
        log: The file of ASSAY_FAILPOINTS_LOG; None for no log.

    Raises:
        ValueError: The text is invalid.
    """

    def __init__(self, text: str, log: str | None) -> None:
        import threading

        self._entries = [_Entry(part) for part in text.split(";") if part.strip()]
        self._log = log
        self._passings: dict[str, int] = {}
        self._mutex = threading.Lock()
        self.clock_offset_s = 0.0

    def pass_by(self, name: str) -> None:
        """Carry out a failpoint's action, if it has one."""
        with self._mutex:
            passing = self._passings[name] = self._passings.get(name, 0) + 1
            entries = [entry for entry in self._entries if entry.name == name and entry.applies(passing)]
            entries = [entry for entry in entries if entry.action not in _ENDING or not self._has_ended(entry)]
            self._note(name, passing, ",".join(entry.action for entry in entries) or "-")
        for entry in entries:
            self._act(entry)

    def _act(self, entry: _Entry) -> None:
        import errno
        import signal
        import time

        match entry.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "exit":
                _END(EXIT_STATUS)
            case "delay":
                time.sleep(entry.seconds)
            case "jump":
                self.clock_offset_s = entry.seconds
            case "nospace":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), entry.name)
            case _:
                from assay.errors import StorageError

                raise StorageError(f"failpoint {entry.name}")

    def _note(self, name: str, passing: int, actions: str) -> None:
        if self._log is not None:
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(log, f"{os.getpid()} {name} {passing} {actions}\n".encode())
            finally:
                os.close(log)

    def _has_ended(self, entry: _Entry) -> bool:
        """Return whether the previous entry of the log ended a process."""
        if self._log is None:
            return False
        try:
            with open(self._log, encoding="utf-8") as lines:  # noqa: PTH123 - pathlib is not imported for this alone
                passed = [line.split() for line in lines]
        except FileNotFoundError:
            return False
        return any(name == entry.name and entry.action in actions.split(",") for _, name, _, actions in passed)


def _nothing(name: str) -> None:
    """Pass a failpoint, one of FAILPOINTS."""


def _no_offset() -> float:
    """Return the offset of the store's clock, in seconds."""
    return 0.0


def _chosen(environ: Mapping[str, str]) -> tuple[Callable[[str], None], Callable[[], float]]:
    text, log = environ.get("ASSAY_FAILPOINTS", ""), environ.get("ASSAY_FAILPOINTS_LOG")
    if not text and not log:
        return _nothing, _no_offset
    points = Failpoints(text, log)
    return points.pass_by, lambda: points.clock_offset_s


_END = os._exit  # as it is now: a host of agents may replace it for these

failpoint, clock_offset_s = _chosen(os.environ)
