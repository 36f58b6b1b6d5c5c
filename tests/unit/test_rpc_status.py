from __future__ import annotations

from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from assay import errors
from assay.errors import AssayError, DatasetError, InvalidInputError, OverloadedError, Problem, first_problems
from assay.rpc.status import (
    CODES,
    DETAILS_KEY,
    SETUP_REASONS,
    code_of,
    from_rpc_error,
    from_status,
    to_status,
    translated,
)


def arrived(error: AssayError) -> grpc.aio.AioRpcError:
    """Return what a client's call fails with when a server sends this error."""
    status = to_status(error)
    trailers = grpc.aio.Metadata((DETAILS_KEY, status.SerializeToString()))
    return grpc.aio.AioRpcError(code_of(error), grpc.aio.Metadata(), trailers, details=status.message)


def foreign(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def test_table_names_every_error() -> None:
    """An error added to the tree fails this test until its code is decided."""
    assert {kind.__name__ for kind in CODES} == {name for name in errors.__all__ if name.endswith("Error")}


@pytest.mark.parametrize("kind", CODES)
def test_every_error_survives_the_wire(kind: type[AssayError]) -> None:
    """Class, message and reason come back; a reason of its own is one of the first error with the code."""
    first = next(other for other, code in CODES.items() if code is CODES[kind])
    for reason, rebuilt_kind in ((None, kind), ("OWN_REASON", first)):
        rebuilt = from_rpc_error(arrived(kind("What is wrong.", reason=reason)))
        assert type(rebuilt) is rebuilt_kind
        assert rebuilt.message == "What is wrong."
        assert rebuilt.reason == (reason or kind.reason)


@pytest.mark.parametrize("reason", sorted(SETUP_REASONS))
def test_reasons_of_a_setup_survive_the_wire(reason: str) -> None:
    """A service that lacks a key or a model is not a run in the wrong state, although both have one code."""
    assert type(from_rpc_error(arrived(errors.SetupError("no key", reason=reason)))) is errors.SetupError


def test_details_name_no_class_of_python() -> None:
    """Clients in other languages get the reason; metadata has what belongs to no other detail."""
    info = error_details_pb2.ErrorInfo()
    assert to_status(errors.SpecError("x")).details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == ("INVALID_SPEC", "assay", {})


def test_private_subclass_arrives_as_its_public_parent() -> None:
    """A module may refine an error; clients see the error of the tree."""

    class FencedError(errors.WrongStateError):
        """The worker lost its shard."""

    assert type(from_rpc_error(arrived(FencedError("x")))) is errors.WrongStateError


def test_retry_delay_survives() -> None:
    """A client that is told to come back in 2.5 s knows it."""
    rebuilt = from_rpc_error(arrived(OverloadedError("full", retry_after_s=2.5)))
    assert isinstance(rebuilt, OverloadedError)
    assert rebuilt.retry_after_s == 2.5


def test_violation_reads_well_for_other_clients() -> None:
    """A client without Assay's library sees file and line in the description."""
    status = to_status(DatasetError([Problem("has no id", field="id", file="qa.jsonl", line=7)]))
    violations: Any = error_details_pb2.BadRequest()
    assert any(detail.Unpack(violations) for detail in status.details)
    assert violations.field_violations[0].description == "qa.jsonl:7: has no id"


texts = st.text(st.characters(), max_size=2_000)
problems = st.builds(
    Problem, message=texts, field=texts, file=texts, line=st.none() | st.integers(min_value=1, max_value=10**9)
)


@given(st.lists(problems, min_size=1, max_size=30))
def test_details_always_fit_into_trailers(hits: list[Problem]) -> None:
    """Whatever is wrong, lone surrogates included, the status is small enough and can be read back."""
    status = to_status(InvalidInputError(hits))
    assert len(quote(status.message)) + status.ByteSize() < 7 * 1024
    assert isinstance(from_rpc_error(arrived(InvalidInputError(hits))), InvalidInputError)


def test_at_most_twenty_violations_and_the_rest_counted() -> None:
    """The first problems help; the number of the others says how far there is to go."""
    rebuilt = from_rpc_error(arrived(InvalidInputError([Problem(f"p{n}") for n in range(25)])))
    assert isinstance(rebuilt, InvalidInputError)
    assert [problem.message for problem in rebuilt.problems[:2]] == ["p0", "p1"]
    assert len(rebuilt.problems) == 21
    assert (rebuilt.problems[-1].message, rebuilt.problems[-1].count) == ("... and 5 more", 5)


def test_a_list_that_was_cut_before_is_counted_whole() -> None:
    """A server that names 30 problems of 2,030 leaves out 2,010."""
    cut = first_problems([Problem(f"p{n}") for n in range(2_030)], 30)
    rebuilt = from_rpc_error(arrived(InvalidInputError(cut)))
    assert isinstance(rebuilt, InvalidInputError)
    assert rebuilt.problems[-1].message == "... and 2,010 more"


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError, "UNAVAILABLE"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.UnavailableError, "DEADLINE_EXCEEDED"),
        (grpc.StatusCode.UNIMPLEMENTED, errors.SetupError, "UNIMPLEMENTED"),
        (grpc.StatusCode.UNAUTHENTICATED, errors.UnauthenticatedError, "UNAUTHENTICATED"),
        (grpc.StatusCode.UNKNOWN, errors.InternalError, "UNKNOWN"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.OverloadedError, "RESOURCE_EXHAUSTED"),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidInputError, "INVALID_ARGUMENT"),
    ],
)
def test_failures_of_others_are_understood(code: grpc.StatusCode, kind: type[AssayError], reason: str) -> None:
    """gRPC itself, proxies and users' agents send no details of Assay's; the code says enough."""
    rebuilt = from_rpc_error(foreign(code, "connection refused"))
    assert type(rebuilt) is kind
    assert rebuilt.reason == reason
    assert "connection refused" in rebuilt.message


def test_a_write_to_a_stream_that_is_gone_is_a_lost_connection() -> None:
    """grpc.aio calls it an internal error; whoever meets it may connect again, and a server's own defects stay."""
    lost, defect = (
        from_rpc_error(foreign(grpc.StatusCode.INTERNAL, details))
        for details in ("Internal error from Core", "something else")
    )
    assert type(lost) is errors.UnavailableError
    assert type(defect) is errors.InternalError


def test_every_code_becomes_some_error() -> None:
    """No status code makes the translation itself fail."""
    for code in grpc.StatusCode:
        assert isinstance(from_rpc_error(foreign(code, "")), AssayError)


@given(st.binary(max_size=200))
def test_malformed_details_are_ignored(raw: bytes) -> None:
    """Bytes of a stranger in the details leave the code and the sentence."""
    trailers = grpc.aio.Metadata((DETAILS_KEY, raw))
    error = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailers, details="gone")
    assert isinstance(from_rpc_error(error), errors.NotFoundError)


def test_error_of_one_message_in_a_stream() -> None:
    """Errors inside a stream become the same errors, with what their details hold."""
    rebuilt = from_status(to_status(OverloadedError("The queue is full.", reason="QUEUE_FULL", retry_after_s=2.5)))
    assert isinstance(rebuilt, OverloadedError)
    assert (rebuilt.reason, rebuilt.message, rebuilt.retry_after_s) == ("QUEUE_FULL", "The queue is full.", 2.5)
    problems = [Problem("is too long", "texts[3]")]
    refused = from_status(to_status(errors.InvalidInputError(problems)))
    assert isinstance(refused, errors.InvalidInputError)
    assert refused.problems == problems
    assert isinstance(from_status(status_pb2.Status(code=12345, message="?")), AssayError)


def test_translated_leaves_other_exceptions_alone() -> None:
    """Only failed calls are translated."""
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError
    with pytest.raises(errors.UnavailableError) as caught, translated():
        raise foreign(grpc.StatusCode.UNAVAILABLE, "x")
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
