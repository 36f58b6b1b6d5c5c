"""Domain errors as gRPC status codes and back: one table for both directions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from assay import errors
from assay.errors import (
    AssayError,
    InvalidInputError,
    OverloadedError,
    Problem,
    WatchBehindError,
    count_problems,
    further_problems,
)

CODES: Mapping[type[AssayError], grpc.StatusCode] = {
    errors.InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SpecError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DatasetError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ConflictError: grpc.StatusCode.ALREADY_EXISTS,
    errors.WrongStateError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SetupError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.WatchBehindError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.StorageError: grpc.StatusCode.UNAVAILABLE,
    errors.ResumeExpiredError: grpc.StatusCode.OUT_OF_RANGE,
    errors.InternalError: grpc.StatusCode.INTERNAL,
    errors.AssayError: grpc.StatusCode.UNKNOWN,
}
"""The code of each error. Errors of one code differ by reason; the first one has all other reasons."""

SETUP_REASONS = frozenset(
    {
        "JUDGE_KEY_MISSING",
        "JUDGE_NOT_INSTALLED",
        "JUDGE_PRICE_UNKNOWN",
        "MODEL_MEMORY",
        "MODEL_NEEDS_CODE",
        "MODEL_NOT_AN_ENCODER",
        "MODEL_NOT_INSTALLED",
        "MODEL_NOT_LOADED",
        "MODEL_WEIGHTS_CHANGED",
        "NOT_INSTALLED",
        "NO_GPU",
        "PRECISION_UNAVAILABLE",
    }
)
"""Reasons of SetupError; FAILED_PRECONDITION with another reason is WrongStateError."""

_FOREIGN: Mapping[grpc.StatusCode, type[AssayError]] = {
    grpc.StatusCode.CANCELLED: errors.UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.UnavailableError,
    grpc.StatusCode.ABORTED: errors.UnavailableError,
    grpc.StatusCode.UNIMPLEMENTED: errors.SetupError,
    grpc.StatusCode.UNKNOWN: errors.InternalError,
    grpc.StatusCode.DATA_LOSS: errors.InternalError,
}
"""Errors for codes that Assay's services do not send but gRPC, proxies and older servers do."""

_SENTENCES: Mapping[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: "The service cannot be reached",
    grpc.StatusCode.DEADLINE_EXCEEDED: "No answer came before the deadline",
    grpc.StatusCode.CANCELLED: "The call was cancelled",
    grpc.StatusCode.UNIMPLEMENTED: "The server does not know this call; it may be of another version",
    grpc.StatusCode.UNAUTHENTICATED: "The server did not accept the credentials",
    grpc.StatusCode.PERMISSION_DENIED: "The server does not permit this call",
}

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "assay"
MAX_VIOLATIONS = 20
MAX_WIRE_BYTES = 7 * 1024  # larger trailers get lost: peers refuse headers over 8 KiB
_MAX_MESSAGE_BYTES = 1024
_MAX_TEXT_CHARS = 400
_OMITTED = "omitted"
_SIZES = re.compile(r"\((\d+) vs\. (\d+)\)$")
_WRITE_FAILED = "Internal error from Core"  # grpc.aio's own words, made up at this end when a write finds no stream
_RESUME = "resume_sequence"


def code_of(error: AssayError) -> grpc.StatusCode:
    """Return the status code of an error."""
    return CODES[_listed(type(error))]


def to_status(error: AssayError, redact: Callable[[str], str] = str) -> Any:
    """Return the `google.rpc.Status` of an error, small enough for response trailers.

    It contains ErrorInfo, the first field violations for invalid input, and RetryInfo for overload.

    Args:
        error: The error.
        redact: Returns a text without secrets.
    """
    problems = error.problems if isinstance(error, InvalidInputError) else []
    kept = [dataclasses.replace(problem, message=redact(problem.message)) for problem in problems[:MAX_VIOLATIONS]]
    while True:
        status = _status(error, kept, omitted=count_problems(problems[len(kept) :]))
        status.message = redact(status.message)
        if not kept or _wire_bytes(status) < MAX_WIRE_BYTES:
            return status
        kept.pop()


def from_rpc_error(error: grpc.aio.AioRpcError) -> AssayError:
    """Return the domain error of a failed call."""
    return _rebuilt(error.code(), error.details() or "", _details(error.trailing_metadata()))


def from_status(status: Any) -> AssayError:
    """Return the domain error of a `google.rpc.Status`, e.g. inside a stream."""
    return _rebuilt(_STATUS_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, _unpacked(status))


def retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """Return how long a server asks clients to wait, in seconds; None if it does not."""
    retry = _details(error.trailing_metadata()).get(error_details_pb2.RetryInfo)
    return None if retry is None else max(0.0, retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)


def _rebuilt(code: grpc.StatusCode, message: str, details: Mapping[type[Any], Any]) -> AssayError:
    info = details.get(error_details_pb2.ErrorInfo)
    if info is None or info.domain != DOMAIN:
        return _foreign(code, message)
    violations = details.get(error_details_pb2.BadRequest)
    retry = details.get(error_details_pb2.RetryInfo)
    problems = _problems(violations, info.metadata) if violations is not None else ()
    kind = _BY_REASON.get((code, info.reason)) or _BY_CODE.get(code, errors.InternalError)
    rebuilt = _made(kind, message, info.reason, problems)
    if isinstance(rebuilt, OverloadedError) and retry is not None:
        rebuilt.retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    if isinstance(rebuilt, WatchBehindError) and info.metadata.get(_RESUME, "").isdecimal():
        rebuilt.resume_sequence = int(info.metadata[_RESUME])
    return rebuilt


def _made(kind: type[AssayError], message: str, reason: str, problems: Sequence[Problem] = ()) -> AssayError:
    content: Any = (problems or [Problem(message)]) if issubclass(kind, InvalidInputError) else message
    return kind(content, reason=reason or None)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the domain error for any failed gRPC call inside the block."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


def _listed(kind: type[AssayError]) -> type[AssayError]:
    return next(parent for parent in kind.__mro__ if parent in CODES)


def _status(error: AssayError, kept: Sequence[Problem], *, omitted: int) -> Any:
    metadata = {}
    for index, problem in enumerate(kept):
        if problem.file:
            metadata[f"file_{index}"] = _clean(problem.file)
        if problem.line is not None:
            metadata[f"line_{index}"] = str(problem.line)
    if omitted:
        metadata[_OMITTED] = str(omitted)
    if isinstance(error, WatchBehindError):
        metadata[_RESUME] = str(error.resume_sequence)
    status = status_pb2.Status(code=code_of(error).value[0], message=_cut_bytes(_clean(error.message)))
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if kept:
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=map(_violation, kept)))
    if isinstance(error, OverloadedError) and error.retry_after_s > 0:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        status.details.add().Pack(retry)
    return status


def _violation(problem: Problem) -> Any:
    return error_details_pb2.BadRequest.FieldViolation(
        field=_clean(problem.field)[:_MAX_TEXT_CHARS],
        description=_place(problem.file, problem.line) + _clean(problem.message)[:_MAX_TEXT_CHARS],
    )


def _problems(violations: Any, metadata: Mapping[str, str]) -> list[Problem]:
    problems = []
    for index, violation in enumerate(violations.field_violations):
        file = metadata.get(f"file_{index}", "")
        number = metadata.get(f"line_{index}", "")
        line = int(number) if number.isdecimal() else None
        message = violation.description.removeprefix(_place(file, line))
        problems.append(Problem(message, field=violation.field, file=file, line=line))
    omitted = metadata.get(_OMITTED, "")
    return [*problems, *further_problems(int(omitted) if omitted.isdecimal() else 0)]


def _place(file: str, line: int | None) -> str:
    parts = [part for part in (_clean(file), "" if line is None else str(line)) if part]
    return ":".join(parts) + ": " if parts else ""


def _too_large(details: str) -> str:
    """Return the error for gRPC's "SERVER: Received message larger than max (50001500 vs. 4194304)"."""
    sizes = _SIZES.search(details)
    size = f"{int(sizes[1]):,} bytes, more than {int(sizes[2]):,}" if sizes else details
    return f"A message is too large: {size}. Send less in one message."


def _foreign(code: grpc.StatusCode, details: str) -> AssayError:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return InvalidInputError(_too_large(details), reason="MESSAGE_TOO_LARGE")
    if code is grpc.StatusCode.INTERNAL and details == _WRITE_FAILED:
        code, details = grpc.StatusCode.UNAVAILABLE, "the stream was closed while a message was written to it"
    sentence = _SENTENCES.get(code, "")
    message = ": ".join(part for part in (sentence, details) if part) or code.name
    return _made(_FOREIGN.get(code) or _BY_CODE.get(code, errors.InternalError), message, code.name)


def _details(trailers: Any) -> dict[type[Any], Any]:
    """Return the details of a failed call, by type."""
    raw = next((value for key, value in trailers or () if key == DETAILS_KEY), b"")
    try:
        return _unpacked(status_pb2.Status.FromString(raw))
    except DecodeError:  # Assay did not send these details
        return {}


def _unpacked(status: Any) -> dict[type[Any], Any]:
    """Return the details of a status, by type.

    Raises:
        DecodeError: A detail is not of its type.
    """
    details_by_type: dict[type[Any], Any] = {}
    for packed in status.details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
            message = kind()
            if packed.Unpack(message):
                details_by_type[kind] = message
    return details_by_type


def _clean(text: str) -> str:
    """Replace lone surrogates, which protobuf refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut_bytes(text: str) -> str:
    raw = text.encode("utf-8")
    if len(raw) <= _MAX_MESSAGE_BYTES:
        return text
    return raw[: _MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"


def _wire_bytes(status: Any) -> int:
    """Return the size in trailers: the message travels percent-encoded, the details in base64."""
    details: int = status.ByteSize()
    return len(quote(status.message)) + (details * 4 + 2) // 3


_BY_CODE = {code: kind for kind, code in reversed(list(CODES.items()))}
_BY_REASON = {
    **{(code, kind.reason): kind for kind, code in reversed(list(CODES.items()))},
    **{(grpc.StatusCode.FAILED_PRECONDITION, reason): errors.SetupError for reason in SETUP_REASONS},
}
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
