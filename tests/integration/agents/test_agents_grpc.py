"""The grpc adapter against services that are slow, wrong and hostile: each failure is an answer with its reason."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from tests.support.services.certificates import certificate_for

from assay.agent.v1 import agent_pb2 as pb
from assay.agent_host.agent_server import agent_server
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Interrupt,
    InterruptKind,
)
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.grpc import GrpcAgent
from assay_orchestrator.agents.grpc_preflight import service_problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CASE = Case("c", (Turn("q"),))
SERVICE = "assay.agent.v1.AgentService"
NEVER = 3600.0
HEALTHY = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING).SerializeToString()


def asked(timeout_s: float = 30.0, **changes: Any) -> AgentRequest:
    """Return a question."""
    return AgentRequest("id#0", "r", "c", "q", timeout_s=timeout_s, **changes)


@dataclass
class Service:
    """A service that replies with whatever bytes a test asks for; its methods get a request's bytes and the call.

    Args:
        answer: Sends the reply to Answer.
        pieces: Sends the replies to AnswerStream; None for a service without it.
        health: The reply to a health check; None for a service without health.
    """

    answer: Callable[[bytes, Any], Awaitable[bytes]] | None = None
    pieces: Callable[[bytes, Any], AsyncIterator[bytes]] | None = None
    health: bytes | None = HEALTHY
    address: str = ""
    metadata: list[dict[str, Any]] = field(default_factory=list)

    async def start(self) -> grpc.aio.Server:
        """Listen."""
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        methods: dict[str, Any] = {}
        if self.answer is not None:
            answer = self.answer

            async def noted(request: bytes, context: Any) -> bytes:
                self.metadata.append(dict(context.invocation_metadata()))
                return await answer(request, context)

            methods["Answer"] = grpc.unary_unary_rpc_method_handler(noted)
        if self.pieces is not None:
            methods["AnswerStream"] = grpc.unary_stream_rpc_method_handler(self.pieces)
        handlers = [grpc.method_handlers_generic_handler(SERVICE, methods)]
        if (health := self.health) is not None:

            async def check(request: bytes, context: Any) -> bytes:
                return health

            checks: dict[str, Any] = {"Check": grpc.unary_unary_rpc_method_handler(check)}
            handlers.append(grpc.method_handlers_generic_handler("grpc.health.v1.Health", checks))
        server.add_generic_rpc_handlers(tuple(handlers))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        return server


def replies(response: pb.AgentResponse) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """Return an `answer` of one response."""

    async def answer(request: bytes, context: Any) -> bytes:
        return pb.AnswerResponse(response=response).SerializeToString()

    return answer


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Service]]]:
    """Start a service; what is given are its methods."""
    async with AsyncExitStack() as stack:

        async def start(answer: Any = None, **methods: Any) -> Service:
            service = Service(answer, **methods)
            server = await service.start()
            stack.push_async_callback(server.stop, None)
            return service

        yield start


@pytest.fixture
async def agent_of() -> AsyncIterator[Callable[..., GrpcAgent]]:
    """Make an agent of an address; what is given beside goes to its options."""
    async with AsyncExitStack() as stack:

        def make(address: str, environ: dict[str, str] | None = None, **options: Any) -> GrpcAgent:
            agent = GrpcAgent(
                AgentSpec("grpc", address, options=options),
                AgentAccess(("127.0.0.1", "localhost"), ("BOT_*",), environ or {}),
            )
            stack.push_async_callback(agent.aclose)
            return agent

        yield make


def failure(response: AgentResponse) -> tuple[AgentErrorKind, bool, str]:
    """Return kind, whether another attempt may help, and the message of a failed answer."""
    assert response.error is not None, response
    assert response.latency_ms is not None
    return response.error.kind, response.error.retryable, response.error.message


async def test_question_and_answer_travel_whole(serve: Any, agent_of: Any) -> None:
    """The service sees every field, the deadline among them; what it may not say about the call is Assay's own."""
    seen: list[tuple[pb.AgentRequest, float]] = []

    async def answer(request: bytes, context: Any) -> bytes:
        seen.append((pb.AnswerRequest.FromString(request).request, context.time_remaining()))
        response = pb.AgentResponse(request_id="id#0", text="a", output_json='{"x": [1]}', latency_ms=1e9, model="m")
        response.attempts.add(latency_ms=1)
        return pb.AnswerResponse(response=response).SerializeToString()

    service = await serve(answer)
    agent = agent_of(service.address, metadata={"x-team": "one"})
    response = await agent.answer(asked(20.0, variables={"v": 1}, idempotency_key="k"), CASE)
    assert (response.text, response.output, response.model, response.attempts) == ("a", {"x": [1]}, "m", ())
    assert response.latency_ms is not None
    assert response.latency_ms < 1e6
    ((request, left_s),) = seen
    assert (request.timeout_ms, request.idempotency_key, json.loads(request.variables_json)) == (20_000, "k", {"v": 1})
    assert 15 < left_s < 21  # gRPC rounds it up
    assert service.metadata[0]["x-team"] == "one"


ERROR = pb.AgentError(message="no")
LATER: Any = 99  # a status of a later version
MALFORMED, TOO_LARGE = AgentErrorKind.MALFORMED, AgentErrorKind.TOO_LARGE


@pytest.mark.parametrize(
    ("response", "kind", "said"),
    [
        (pb.AgentResponse(request_id="other", text="a"), MALFORMED, "'other'"),
        (pb.AgentResponse(status=pb.AGENT_STATUS_ERROR, text="a"), MALFORMED, "has no error"),
        (pb.AgentResponse(error=ERROR, text="a"), MALFORMED, "is not ERROR"),
        (pb.AgentResponse(status=LATER, text="a"), MALFORMED, "its status is 99"),
        (pb.AgentResponse(text="a", interrupts=[pb.Interrupt()]), MALFORMED, "must be interrupted"),
        (pb.AgentResponse(output_json="{"), MALFORMED, "is not JSON"),
        (pb.AgentResponse(output_json="[" * 100_000), MALFORMED, "no answer"),
        (pb.AgentResponse(output_json="[" * 200 + "]" * 200), MALFORMED, "100 levels"),
        (pb.AgentResponse(reported_latency_ms=float("nan")), MALFORMED, "reported_latency_ms"),
        (pb.AgentResponse(output_json="[" + "0," * 250_000 + "0]"), TOO_LARGE, "200,000 values"),
        (pb.AgentResponse(text="x" * 3_000_000), TOO_LARGE, "2 MiB"),
        (pb.AgentResponse(text="x" * 5_000_000), TOO_LARGE, "4 MiB"),
        (pb.AgentResponse(status=pb.AGENT_STATUS_ERROR, error=ERROR), AgentErrorKind.RAISED, "no"),
    ],
    ids=lambda value: str(value)[:30].strip() if isinstance(value, str) else "",
)
async def test_a_wrong_answer_is_an_error_with_a_reason(
    serve: Any, agent_of: Any, response: pb.AgentResponse, kind: AgentErrorKind, said: str
) -> None:
    """Alone: the next question on the same connection has its answer."""
    waiting = [response, pb.AgentResponse(text="fine")]

    async def answer(request: bytes, context: Any) -> bytes:
        return await replies(waiting.pop(0))(request, context)

    agent = agent_of((await serve(answer)).address)
    found, retryable, message = failure(await agent.answer(asked(), CASE))
    assert (found, retryable) == (kind, False)
    assert said in message
    assert (await agent.answer(asked(), CASE)).text == "fine"


async def test_an_agent_may_wait_for_a_person(serve: Any, agent_of: Any) -> None:
    """Its draft is no answer, and what it waits for is kept; without interrupts, its text is what it asks."""
    stop = pb.Interrupt(kind=pb.INTERRUPT_KIND_CALL, tool="pay", id="1", arguments_json="{}")
    status = pb.AGENT_STATUS_INTERRUPTED
    waiting = [pb.AgentResponse(status=status, interrupts=[stop]), pb.AgentResponse(status=status, text="Which?")]

    async def answer(request: bytes, context: Any) -> bytes:
        return await replies(waiting.pop(0))(request, context)

    agent = agent_of((await serve(answer)).address)
    for interrupt in (Interrupt("1", InterruptKind.CALL, "pay", "{}"), Interrupt(message="Which?")):
        response = await agent.answer(asked(), CASE)
        assert (response.status, response.interrupts) == (AgentStatus.INTERRUPTED, (interrupt,))
        assert (response.is_failed, response.error) == (True, None)


@pytest.mark.parametrize("reply", [b"\xff\xff", b""])
async def test_bytes_that_are_no_answer_are_malformed(serve: Any, agent_of: Any, reply: bytes) -> None:
    """Neither a connection that broke nor an empty answer; one by one and in pieces."""

    async def answer(request: bytes, context: Any) -> bytes:
        return reply

    async def pieces(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield reply

    service = await serve(answer, pieces=pieces)
    for stream in (False, True):
        kind, retryable, message = failure(await agent_of(service.address, stream=stream).answer(asked(), CASE))
        assert (kind, retryable) == (MALFORMED, False), message


async def test_200_megabytes_are_refused_and_the_rest_goes_on(serve: Any, agent_of: Any) -> None:
    """Nothing of that size is read: other calls on the connection have their answers meanwhile."""
    huge = pb.AnswerResponse(response=pb.AgentResponse(text="x" * 200_000_000)).SerializeToString()

    async def answer(request: bytes, context: Any) -> bytes:
        if pb.AnswerRequest.FromString(request).request.case_id == "huge":
            return huge
        return await replies(pb.AgentResponse(text="fine"))(request, context)

    agent = agent_of((await serve(answer)).address)
    requests = [AgentRequest("id", "r", "huge" if number == 3 else "c", "q") for number in range(8)]
    answers = await asyncio.gather(*(agent.answer(request, CASE) for request in requests))
    assert [each.text for each in answers if each.error is None] == ["fine"] * 7
    kind, retryable, message = failure(answers[3])
    assert (kind, retryable, "4 MiB" in message) == (TOO_LARGE, False, True)


CODE = grpc.StatusCode
UNREACHABLE, RAISED = AgentErrorKind.UNREACHABLE, AgentErrorKind.RAISED


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (CODE.UNAVAILABLE, UNREACHABLE, True), (CODE.CANCELLED, UNREACHABLE, True), (CODE.ABORTED, UNREACHABLE, True),
        (CODE.DEADLINE_EXCEEDED, AgentErrorKind.TIMEOUT, True), (CODE.RESOURCE_EXHAUSTED, RAISED, True),
        (CODE.UNKNOWN, RAISED, True), (CODE.INTERNAL, RAISED, True), (CODE.INVALID_ARGUMENT, RAISED, False),
        (CODE.FAILED_PRECONDITION, RAISED, False), (CODE.UNIMPLEMENTED, UNREACHABLE, False),
        (CODE.UNAUTHENTICATED, UNREACHABLE, False), (CODE.PERMISSION_DENIED, UNREACHABLE, False),
    ],
)  # fmt: skip
async def test_every_status_is_a_kind_of_failure(
    serve: Any, agent_of: Any, code: grpc.StatusCode, kind: AgentErrorKind, retryable: bool
) -> None:
    """Its name and the service's words are in the error; what may pass is tried again, after the wait asked for."""
    retry = Packed()
    retry.Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=7)))
    details = status_pb2.Status(code=code.value[0], details=[retry]).SerializeToString()

    async def answer(request: bytes, context: Any) -> bytes:
        await context.abort(code, "quota \x1b[31mused\nup", trailing_metadata=(("grpc-status-details-bin", details),))
        raise AssertionError

    response = await agent_of((await serve(answer)).address).answer(asked(), CASE)
    found, again, message = failure(response)
    assert (found, again) == (kind, retryable)
    assert response.error is not None
    assert response.error.type == code.name
    assert code.name in message
    assert "\n" not in message
    if retryable and kind is not AgentErrorKind.TIMEOUT:
        assert response.error.retry_after_s == 7.0


async def test_a_service_that_hangs_is_left_at_the_deadline(serve: Any, agent_of: Any) -> None:
    """The call is cancelled there, too; so is a stream that stops in the middle."""
    cancelled: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: bytes, context: Any) -> bytes:
        try:
            await asyncio.sleep(NEVER)
        finally:
            cancelled.put_nowait("answer")
        return b""

    async def pieces(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield pb.AnswerStreamResponse(piece="a").SerializeToString()
            await asyncio.sleep(NEVER)
        finally:
            cancelled.put_nowait("pieces")

    service = await serve(answer, pieces=pieces)
    for stream, name in ((False, "answer"), (True, "pieces")):
        kind, retryable, message = failure(await agent_of(service.address, stream=stream).answer(asked(0.2), CASE))
        assert (kind, retryable, message) == (AgentErrorKind.TIMEOUT, True, "no answer within 0.2 s")
        assert await cancelled.get() == name


async def test_a_server_that_stops_breaks_its_calls_alone(agent_of: Any) -> None:
    """Its calls in flight are unreachable, and may be tried again; so is one to a port without a server."""
    reached = asyncio.Event()

    async def answer(request: bytes, context: Any) -> bytes:
        reached.set()
        await asyncio.sleep(NEVER)
        return b""

    service = Service(answer)
    server = await service.start()
    agent = agent_of(service.address)
    asking = asyncio.create_task(agent.answer(asked(), CASE))
    await reached.wait()
    await server.stop(None)
    for response in (await asking, await agent.answer(asked(), CASE)):
        kind, retryable, message = failure(response)
        assert (kind, retryable) == (UNREACHABLE, True)
        assert service.address in message


def part(piece: str = "", **response: Any) -> bytes:
    """Return one message of a stream."""
    if response:
        return pb.AnswerStreamResponse(response=pb.AgentResponse(**response)).SerializeToString()
    return pb.AnswerStreamResponse(piece=piece).SerializeToString()


@pytest.mark.parametrize(
    ("parts", "text", "is_timed"),
    [
        ([part("a"), part(""), part("b"), part(model="m")], "ab", True),
        ([part(""), part(text="all at once")], "all at once", False),
        ([part("draft"), part(text="final")], "final", True),
        ([part("a"), part(text="a"), part(text="too late")], "a", True),
    ],
)
async def test_pieces_make_the_answer(serve: Any, agent_of: Any, parts: list[bytes], text: str, is_timed: bool) -> None:
    """Their texts in order, or the text of the last message; the first one is timed."""

    async def pieces(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for each in parts:
            yield each

    response = await agent_of((await serve(pieces=pieces)).address, stream=True).answer(asked(), CASE)
    assert (response.text, response.error) == (text, None)
    assert response.latency_ms is not None
    first_ms = response.time_to_first_token_ms
    assert (first_ms is not None) is is_timed
    assert first_ms is None or 0 < first_ms <= response.latency_ms


@pytest.mark.parametrize(
    ("parts", "kind", "said"),
    [
        ([], MALFORMED, "without a response"),
        ([part("a")], MALFORMED, "without a response"),
        ([part("x" * 1_000_000)] * 10, TOO_LARGE, "2 MiB"),
        ([part("a"), part(status=pb.AGENT_STATUS_ERROR)], MALFORMED, "has no error"),
        ([part("a"), part(status=pb.AGENT_STATUS_ERROR, error=ERROR)], RAISED, "no"),
        ([part("a"), part(request_id="other")], MALFORMED, "another request"),
    ],
)
async def test_a_broken_stream_is_an_error(
    serve: Any, agent_of: Any, parts: list[bytes], kind: AgentErrorKind, said: str
) -> None:
    """What came before counts for nothing."""

    async def pieces(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for each in parts:
            yield each

    response = await agent_of((await serve(pieces=pieces)).address, stream=True).answer(asked(), CASE)
    found, _, message = failure(response)
    assert (found, response.text, response.time_to_first_token_ms) == (kind, "", None)
    assert said in message


async def test_a_question_that_no_message_holds_is_not_sent(serve: Any, agent_of: Any) -> None:
    """A conversation may grow past 4 MiB; the row says what to do."""
    service = await serve(replies(pb.AgentResponse(text="a")))
    response = await agent_of(service.address).answer(asked(metadata={"m": "x" * 2**22}), CASE)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable, response.latency_ms) == (TOO_LARGE, False, None)
    assert "4 MiB" in response.error.message
    assert service.metadata == []


async def test_a_secret_in_metadata_reaches_the_service_alone(
    serve: Any, agent_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is taken out of answers and of the messages of failed calls; no log has it."""
    caplog.set_level("DEBUG")

    async def answer(request: bytes, context: Any) -> bytes:
        echoed = dict(context.invocation_metadata())["authorization"]
        if pb.AnswerRequest.FromString(request).request.case_id == "c":
            return await replies(pb.AgentResponse(text=f"I was sent {echoed}"))(request, context)
        await context.abort(CODE.UNAUTHENTICATED, f"wrong key {echoed}")
        raise AssertionError

    service = await serve(answer, health=None)
    environ = {"BOT_KEY": "sekret-4711-key"}
    agent = agent_of(service.address, environ, metadata={"authorization": "Bearer ${BOT_KEY}"})
    answered = await agent.answer(asked(), CASE)
    refused = await agent.answer(AgentRequest("id", "r", "other", "q"), CASE)
    assert service.metadata[0]["authorization"] == "Bearer sekret-4711-key"
    assert answered.text.startswith("I was sent Bearer ")
    assert failure(refused)[0] is UNREACHABLE
    assert "sekret" not in f"{answered}{refused}{caplog.text}"


@pytest.mark.parametrize(
    ("metadata", "field"),
    [({"k": "${OTHER}"}, "agent.metadata.k"), ({"k": "${BOT_NONE}"}, "agent.metadata.k"),
     ({"k": "${BOT_LINES}"}, "agent.metadata.k")],
)  # fmt: skip
def test_variables_that_cannot_be_sent_are_refused(metadata: dict[str, str], field: str) -> None:
    """One that is not allowed, not set, or no text of metadata; and a host that is not allowed."""
    with pytest.raises(InvalidInputError) as refusal:
        GrpcAgent(
            AgentSpec("grpc", "10.0.0.1:1", options={"metadata": metadata}),
            AgentAccess(("127.0.0.1",), ("BOT_*",), {"BOT_LINES": "one\ntwo", "OTHER": "x"}),
        )
    assert {problem.field for problem in refusal.value.problems} == {"agent.target", field}
    assert "two" not in str(refusal.value)


async def test_what_keeps_a_service_from_answering_is_found_before_the_run(serve: Any, agent_of: Any) -> None:
    """No server, no service, not ready, no stream, no credentials: each with its place in the spec and a remedy."""
    not_serving = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)

    read: list[pb.AnswerRequest] = []

    async def reads(request: bytes, context: Any) -> bytes:
        read.append(pb.AnswerRequest.FromString(request))
        return await replies(pb.AgentResponse(text="a"))(request, context)

    async def wants_a_key(request: bytes, context: Any) -> bytes:
        await context.abort(CODE.PERMISSION_DENIED, "no key")
        raise AssertionError

    async def problems(service: Service, **options: Any) -> list[tuple[str, str]]:
        return [(p.field, p.message) for p in await service_problems(agent_of(service.address, **options))]

    fine = await serve(reads)
    assert await problems(fine) == []
    ((place, said),) = await problems(fine, stream=True)
    assert (place, "AnswerStream" in said, "remove stream" in said) == ("agent.stream", True, True)
    assert await problems(await serve(reads, health=None)) == []  # its method says that it is there
    for service, field_name, words in (
        (await serve(health=None), "agent.target", "no method Answer"),
        (await serve(reads, health=not_serving.SerializeToString()), "agent.target", "NOT_SERVING"),
        (await serve(wants_a_key, health=None), "agent.metadata", "credentials"),
    ):
        ((place, said),) = await problems(service)
        assert (place, words in said) == (field_name, True), said
    stopped = Service(reads)
    await (await stopped.start()).stop(None)
    ((place, said),) = await problems(stopped)
    assert (place, "cannot be reached" in said, "tls: true" in said) == ("agent.target", True, True)
    assert read == []  # no service has run its agent


async def test_a_service_without_tls_is_asked_without_it(serve: Any, agent_of: Any) -> None:
    """The remedy is to remove `tls`, beside what may be wrong with certificates."""
    (problem,) = await service_problems(agent_of((await serve(replies(pb.AgentResponse()))).address, tls=True))
    assert "if it does not use TLS, remove tls" in problem.message


async def test_tls_needs_the_authority_that_the_spec_names(agent_of: Any) -> None:
    """With it the answer comes; another authority, none, and no TLS at all are problems before the run."""
    own, other = certificate_for("localhost"), certificate_for("localhost")
    credentials = grpc.ssl_server_credentials([(own.key_pem, own.certificate_pem)])
    with agent_server(lambda question: f"{question}!", credentials=credentials) as server:
        target = server.address.replace("127.0.0.1", "localhost")
        agent = agent_of(target, tls={"ca": "ca.pem", "ca_pem": own.certificate_pem.decode()})
        assert await service_problems(agent) == []
        assert (await agent.answer(asked(), CASE)).text == "q!"
        for options in ({"tls": {"ca": "x", "ca_pem": other.certificate_pem.decode()}}, {"tls": True}, {}):
            wrong = agent_of(target, **options)
            (problem,) = await service_problems(wrong)
            assert (problem.field, "cannot be reached" in problem.message) == ("agent.target", True)
            assert failure(await wrong.answer(asked(), CASE))[0] is UNREACHABLE
