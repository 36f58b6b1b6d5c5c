"""The grpc adapter: the user's own AgentService, called over gRPC."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from assay.agent.v1 import agent_pb2
from assay.errors import InvalidInputError, Problem
from assay.http.egress import ForbiddenAddressError
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    MalformedAnswerError,
    clean_text,
    error_response,
    response_from_json,
    response_to_json,
)
from assay.model.answers.response_limits import MAX_ANSWER_BYTES, AnswerTooLargeError, check_bounds
from assay.rpc.channel import open_channel, read_stream
from assay.rpc.options import MIB, ChannelOptions
from assay.specs.grpc_options import GrpcOptions, target_problem
from assay.wire.agent import request_to_wire, response_from_wire
from assay_orchestrator.agents.destinations import agent_address
from assay_orchestrator.agents.grpc_errors import failed_call
from assay_orchestrator.agents.http_hosts import check_host
from assay_orchestrator.agents.secrets import SECRET_MISSING, Secrets

if TYPE_CHECKING:
    from assay.http.egress import AddressInfo, Egress
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess

SERVICE = "assay.agent.v1.AgentService"

MAX_MESSAGE_BYTES = 4 * MIB
"""The default limit of gRPC, in every language."""

_CHANNEL = ChannelOptions(
    max_message_bytes=MAX_MESSAGE_BYTES,
    # Servers in other languages end connections that are probed more often than every 5 minutes. The deadline of a call
    # detects a lost server.
    keepalive_time_ms=360_000,
    attempts=1,  # each attempt is recorded, so retries happen outside gRPC
    pool_health=False,  # not every server reports the health of the whole process
)


class AgentChannel:
    """A channel that opens with the first call.

    If every address is allowed, or a proxy resolves names, gRPC resolves the target. Otherwise the channel gets checked
    addresses, because gRPC's resolver would connect to whatever the name resolves to later.

    Args:
        target: HOST:PORT.
        options: The client's options.
        egress: Which addresses the host may have, and the proxy for connections.
    """

    def __init__(self, target: str, options: ChannelOptions, egress: Egress) -> None:
        self._target = target
        self._options = options
        self._egress = egress
        self._opening = asyncio.Lock()
        self._resolved = False
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current: grpc.aio.Channel | None = None

    async def connected(self) -> grpc.aio.Channel:
        """Return the channel.

        Raises:
            ForbiddenAddressError: The host has an address that may not be connected to.
            OSError: The host has no address.
        """
        if self._current is not None and self._resolved:
            return self._current
        async with self._opening:
            if self._current is None or not self._resolved:
                self._current = await self._open()
                self._resolved = True
            return self._current

    def resolve_again(self) -> None:
        """Resolve the name again with the next call: the servers behind it may have new addresses."""
        self._resolved = self._egress.networks is None

    async def aclose(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _open(self) -> grpc.aio.Channel:
        address, options = await self._address()
        channel = self._channels.get(address)
        if channel is None:
            # Calls on a channel to earlier addresses end in their own time; there are few such channels.
            channel = self._channels[address] = open_channel(address, options)
        return channel

    async def _address(self) -> tuple[str, ChannelOptions]:
        if self._egress.networks is None or self._egress.proxy:
            # Named as a host, so that a name like another resolver's is not taken for one.
            return f"dns:///{self._target}", dataclasses.replace(self._options, proxy=self._egress.proxy)
        host, _, port = self._target.rpartition(":")
        timeout_s = self._options.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                resolved = await self._egress.resolve(host.strip("[]"), int(port))
        except TimeoutError:
            raise OSError(f"its name was not resolved within {timeout_s:g} s") from None
        return _checked(resolved), dataclasses.replace(self._options, authority=self._target)


def _checked(resolved: list[AddressInfo]) -> str:
    """Return the target for these addresses: those of one family, because gRPC accepts one family at a time."""
    family = resolved[0][0]
    addresses = dict.fromkeys(str(entry[4][0]) for entry in resolved if entry[0] == family)
    port = resolved[0][4][1]
    if family == socket.AF_INET6:
        return "ipv6:" + ",".join(f"[{address}]:{port}" for address in addresses)
    return "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)


class GrpcAgent:
    """One attempt is one call; its deadline is the attempt's time limit.

    Args:
        settings: Checked settings; metadata may name variables and secrets.
        access: What may be called and named.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(self, settings: AgentSpec, access: AgentAccess) -> None:
        problems: list[Problem] = []
        options = GrpcOptions.from_options(settings.options, problems)
        self.target = settings.target
        if problem := target_problem(self.target):
            problems.append(Problem(problem, "agent.target"))
        problems += check_host(settings, access)
        self.options = options
        self._problems = problems
        self._secrets = Secrets(access, agent_address(settings), problems)
        self._fill()
        if problems:
            raise InvalidInputError(problems)
        credentials = None
        if options.tls:
            credentials = grpc.ssl_channel_credentials(options.ca_pem.encode("latin-1") or None)
        self.channel = AgentChannel(self.target, dataclasses.replace(_CHANNEL, credentials=credentials), access.egress)

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer to a request."""
        message = request_to_wire(request)
        if message.ByteSize() > MAX_MESSAGE_BYTES - 1024:
            refusal = (
                f"question and history are larger than {MAX_MESSAGE_BYTES // MIB} MiB: end the conversation earlier"
            )
            return error_response(AgentErrorKind.TOO_LARGE, refusal)
        start = time.perf_counter()
        try:
            self._secrets.refill(self._fill)
            ask = self._ask_in_pieces if self.options.stream else self._ask
            response = await ask(message, request.timeout_s)
        except InvalidInputError as problem:
            response = error_response(AgentErrorKind.RAISED, problem.message, type=SECRET_MISSING)
        except OSError as problem:
            response = error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self.target} cannot be reached: {problem}",
                type=type(problem).__name__,
                retryable=not isinstance(problem, ForbiddenAddressError),
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self.channel.resolve_again()
            response = failed_call(error, self.target, request.timeout_s, time.perf_counter() - start)
        except DecodeError:
            response = error_response(
                AgentErrorKind.MALFORMED,
                "the reply is not an AnswerResponse: check the service's version of agent.proto",
            )
        except AnswerTooLargeError as problem:
            response = error_response(AgentErrorKind.TOO_LARGE, str(problem))
        except (MalformedAnswerError, RecursionError) as problem:
            response = error_response(AgentErrorKind.MALFORMED, f"the service sent no answer: {problem}")
        latency_ms = (time.perf_counter() - start) * 1000
        return dataclasses.replace(self._secrets.redact_answer(response), latency_ms=latency_ms)

    def redact(self, text: str) -> str:
        """Return a message without the values of variables and secrets."""
        return self._secrets.redact(text)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.channel.aclose()

    def _fill(self) -> None:
        metadata: dict[str, str] = self._secrets.resolve_tree(self.options.metadata, "agent.metadata")
        self._problems += [problem for name, value in metadata.items() for problem in _check_value(name, value)]
        self.metadata = tuple(metadata.items())

    async def _ask(self, message: agent_pb2.AgentRequest, timeout_s: float) -> AgentResponse:
        channel = await self.channel.connected()
        # Replies are decoded here, so that an invalid message is not mistaken for a broken connection.
        answer_call: grpc.aio.UnaryUnaryMultiCallable[Any, bytes] = channel.unary_unary(
            f"/{SERVICE}/Answer", request_serializer=agent_pb2.AnswerRequest.SerializeToString
        )
        reply = await answer_call(agent_pb2.AnswerRequest(request=message), timeout=timeout_s, metadata=self.metadata)
        answer = agent_pb2.AnswerResponse.FromString(reply)
        if not answer.HasField("response"):
            raise MalformedAnswerError("the reply has no response")
        return _read(answer.response, message.request_id)

    async def _ask_in_pieces(self, message: agent_pb2.AgentRequest, timeout_s: float) -> AgentResponse:
        start = time.perf_counter()
        first_ms: float | None = None
        pieces: list[str] = []
        size = 0
        channel = await self.channel.connected()
        answer_stream: grpc.aio.UnaryStreamMultiCallable[Any, bytes] = channel.unary_stream(
            f"/{SERVICE}/AnswerStream", request_serializer=agent_pb2.AnswerStreamRequest.SerializeToString
        )
        call = answer_stream(agent_pb2.AnswerStreamRequest(request=message), timeout=timeout_s, metadata=self.metadata)
        async with read_stream(call) as replies:
            async for reply in replies:
                part = agent_pb2.AnswerStreamResponse.FromString(reply)
                if part.WhichOneof("message") == "response":
                    response = _read(part.response, message.request_id, "".join(pieces))
                    if first_ms is None or response.is_failed:
                        return response
                    return dataclasses.replace(response, time_to_first_token_ms=first_ms)
                if part.piece and first_ms is None:
                    first_ms = (time.perf_counter() - start) * 1000
                pieces.append(part.piece)
                size += len(part.piece.encode())
                if size > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError(f"the answer is larger than {MAX_ANSWER_BYTES // MIB} MiB")
        raise MalformedAnswerError("the stream ended without a response")


def _read(message: agent_pb2.AgentResponse, request_id: str, pieces: str = "") -> AgentResponse:
    """Return the answer of a service that Assay did not write.

    Raises:
        MalformedAnswerError: It belongs to another request, or contradicts itself.
        AnswerTooLargeError: It exceeds the size of an answer.
        RecursionError: It is nested too deeply.
    """
    if message.request_id not in ("", request_id):
        raise MalformedAnswerError(f"it answers another request, {clean_text(message.request_id)[:100]!r}")
    if message.status not in agent_pb2.AgentStatus.values():
        raise MalformedAnswerError(f"its status is {message.status}, which is not an AgentStatus")
    is_error = message.status == agent_pb2.AGENT_STATUS_ERROR
    if is_error and not message.HasField("error"):
        raise MalformedAnswerError("its status is ERROR and it has no error")
    if message.HasField("error") and not is_error:
        raise MalformedAnswerError("it has an error and its status is not ERROR")
    if pieces and not message.text and not is_error:
        message.text = pieces
    try:
        document = response_to_json(response_from_wire(message))
    except ValueError as problem:
        raise MalformedAnswerError(f"a field that ends in _json is not JSON: {problem}") from None
    check_bounds(document)
    return dataclasses.replace(response_from_json(document), latency_ms=None, attempts=())


def _check_value(name: str, value: str) -> list[Problem]:
    if value.isascii() and value.isprintable():
        return []
    # Without the value: it may be a secret.
    return [Problem("must be printable ASCII once its variables are filled in", f"agent.metadata.{name}")]
