"""The errors that Assay raises, one tree.

    AssayError
    ├── InvalidInputError        the caller's input is wrong; carries every problem
    │   ├── SpecError            a spec
    │   └── DatasetError         a dataset
    ├── NotFoundError            what was named does not exist
    ├── ConflictError            the same id with other content
    ├── WrongStateError          not possible in the present state
    ├── UnauthenticatedError     no token, or one that is not accepted
    ├── PermissionDeniedError    the caller's role lacks the right
    ├── OverloadedError          refused at the door; try again later
    ├── WatchBehindError         a watcher that did not keep up; watch again
    ├── UnavailableError         starting, stopping, or something it rests on is gone
    │   ├── DeadlineError        the call, or its silent client, took longer than the server waits
    │   └── StorageError         the store cannot be read or written
    ├── ResumeExpiredError       a sequence number that a run has not reached
    ├── SetupError               this machine or installation lacks something
    └── InternalError            a defect; only its id leaves the process

Each has `message`, a sentence for people, and `reason`, a stable word for programs. `assay.rpc.status` maps them to
status codes and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "AssayError",
    "ConflictError",
    "DatasetError",
    "DeadlineError",
    "InternalError",
    "InvalidInputError",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "Problem",
    "ResumeExpiredError",
    "SetupError",
    "SpecError",
    "StorageError",
    "UnauthenticatedError",
    "UnavailableError",
    "WatchBehindError",
    "WrongStateError",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input, and where.

    Args:
        message: What is wrong and what to do, one sentence.
        field: Path of the field, e.g. "metrics[1].threshold"; empty for the whole input.
        file: The file, as the user named it; empty where there is none.
        line: 1-based line in the file; None where unknown.
        count: How many problems it stands for: more than one where it ends a list that was cut.
    """

    message: str
    field: str = ""
    file: str = ""
    line: int | None = None
    count: int = 1

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line is not None else "")
        return ": ".join(part for part in (place, self.field, self.message) if part)


def further_problems(count: int, *, file: str = "") -> list[Problem]:
    """Return the last entry of a list of problems that was cut; none where nothing was left out.

    Args:
        count: How many problems were left out.
        file: The file, as the user named it.
    """
    return [Problem(f"... and {count:,} more", file=file, count=count)] if count else []


def first_problems(problems: Sequence[Problem], most: int) -> list[Problem]:
    """Return the first problems of a list, with an entry that counts the others where there are any."""
    left_out = problems[most:]
    return [*problems[:most], *further_problems(count_problems(left_out), file=left_out[0].file if left_out else "")]


def count_problems(problems: Iterable[Problem]) -> int:
    """Return how many problems a list names or counts."""
    return sum(problem.count for problem in problems)


class AssayError(Exception):
    """Something went wrong; the message says what and what to do.

    Args:
        message: A sentence for people.
        reason: A stable word for programs, e.g. "RUN_NOT_FOUND".
    """

    reason = "ERROR"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if reason is not None:
            self.reason = reason


class InvalidInputError(AssayError):
    """The input is wrong; `problems` holds everything that was found."""

    reason = "INVALID_INPUT"

    def __init__(self, problems: Sequence[Problem] | str, *, reason: str | None = None) -> None:
        self.problems = [Problem(problems)] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems), reason=reason)


class SpecError(InvalidInputError):
    """The spec is wrong."""

    reason = "INVALID_SPEC"


class DatasetError(InvalidInputError):
    """The dataset is wrong."""

    reason = "INVALID_DATASET"


class NotFoundError(AssayError):
    """What was named does not exist."""

    reason = "NOT_FOUND"


class ConflictError(AssayError):
    """The same id was used with other content."""

    reason = "REQUEST_ID_REUSED"


class WrongStateError(AssayError):
    """Not possible in the present state."""

    reason = "WRONG_STATE"


class UnauthenticatedError(AssayError):
    """The call has no token, or one that the server does not accept."""

    reason = "UNAUTHENTICATED"


class PermissionDeniedError(AssayError):
    """The role of the caller lacks a right; the message names it."""

    reason = "PERMISSION_DENIED"


class OverloadedError(AssayError):
    """Too much work is waiting; try again after `retry_after_s` seconds. 0: waiting alone does not help."""

    reason = "OVERLOADED"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_s = retry_after_s


class WatchBehindError(AssayError):
    """A watcher did not take what was sent; it may watch again after the event `resume_sequence`."""

    reason = "WATCH_TOO_SLOW"

    def __init__(self, message: str, *, resume_sequence: int = 0, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.resume_sequence = resume_sequence


class UnavailableError(AssayError):
    """The service cannot answer now; asking again may help."""

    reason = "UNAVAILABLE"


class DeadlineError(UnavailableError):
    """The call took longer than the server allows, or its client was silent for longer than the server waits."""

    reason = "DEADLINE_EXCEEDED"


class StorageError(UnavailableError):
    """The store cannot be read or written."""

    reason = "STORAGE_UNAVAILABLE"


class ResumeExpiredError(AssayError):
    """A run has not reached a sequence number; start again from the beginning."""

    reason = "SEQUENCE_UNKNOWN"


class SetupError(AssayError):
    """This machine or installation lacks something that the command needs."""

    reason = "SETUP"


class InternalError(AssayError):
    """A defect in Assay; the message holds only an id to look for in the server's log."""

    reason = "INTERNAL"
