"""The a2a adapter: an agent that speaks Agent2Agent 1.0, as JSON-RPC over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from assay.agent_host.failures import Failures, TooManyStopsError, UnusableDecisionError
from assay.agent_host.frameworks.approvals import run_to_end
from assay.errors import Problem
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    error_response,
)
from assay.model.answers.approvals import ScriptedApprovals
from assay.model.answers.interrupts import InterruptKind
from assay.model.answers.response_fields import shown
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.parsing.names import kind_of
from assay.specs.server_options import A2aOptions, check_url
from assay_orchestrator.agents.a2a_reply import (
    ENDED_STATES,
    failure_of,
    response_from_result,
    state_of,
    task_id_of,
    waiting_for,
)
from assay_orchestrator.agents.a2a_stops import answering_message
from assay_orchestrator.agents.http_connection import FailedRequestError, HttpConnection, url_problems
from assay_orchestrator.agents.retrying import is_retry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.answers.approvals import Decision
    from assay.model.answers.interrupts import Interrupt
    from assay.model.case import Case
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess

_PREFLIGHT_TIMEOUT_S = 10.0
_VERSION_HEADER = {"a2a-version": "1.0"}
_OUTPUT_MODES = ["text/plain", "application/json"]
_FIRST_POLL_S, _SLOWEST_POLL_S, _POLL_TIMEOUT_S = 0.1, 5.0, 10.0
_NAMESPACE = uuid.UUID("5d0f1c1e-7a83-4be4-9d64-6f8f7e5f6c1a")
"""The namespace of context and message ids, which are derived from the rows' ids."""


CARD_PATH = "/.well-known/agent-card.json"
"""The path of a card under the agent's URL."""


class CardRefusedError(Exception):
    """The card offers no interface that this adapter supports; the message says what it offers."""


@dataclass(frozen=True, slots=True)
class Interface:
    """How to call an agent.

    Args:
        url: The URL of requests.
        tenant: Sent with each request; empty for none.
    """

    url: str
    tenant: str = ""


def card_url(target: str) -> str:
    """Return the URL of a target's card; the target is the URL of an agent or of its card."""
    return target if urlsplit(target).path.endswith(".json") else f"{target.rstrip('/')}{CARD_PATH}"


def interface_of(card: Any, target: str) -> Interface:
    """Return the JSON-RPC interface of protocol 1.x that a card offers on the target's host.

    Raises:
        CardRefusedError: It offers none.
    """
    if not isinstance(card, dict) or "name" not in card:
        raise CardRefusedError(f"{card_url(target)} is not an agent card: it has no name")
    offered = card.get("supportedInterfaces")
    if not isinstance(offered, list):
        version = card.get("protocolVersion", "before 1.0")
        raise CardRefusedError(
            f"the agent speaks A2A {shown(version)}, and this adapter 1.0: update the agent (a2a-sdk 1.0 or newer)"
        )
    interfaces = [interface for interface in offered if isinstance(interface, dict)]
    for interface in interfaces:
        if (
            interface.get("protocolBinding") == "JSONRPC"
            and str(interface.get("protocolVersion", "")).split(".")[0] == "1"
        ):
            return Interface(_checked(interface.get("url"), target), str(interface.get("tenant") or ""))
    offers = ", ".join(
        f"{interface.get('protocolBinding')} {interface.get('protocolVersion')}"[:60] for interface in interfaces[:10]
    )
    raise CardRefusedError(
        f"the agent card offers {offers or 'no interface'}, and this adapter speaks JSONRPC 1.0: add that interface"
    )


def _checked(url: Any, target: str) -> str:
    """Return the URL of an interface, which receives the questions and the headers of the spec."""
    if not isinstance(url, str) or not url.isprintable() or check_url(url) or url_problems(url):
        raise CardRefusedError(f"the agent card has no http or https URL for JSONRPC, but {shown(url)}")
    target_url, interface_url = urlsplit(target), urlsplit(url)
    if interface_url.hostname != target_url.hostname:
        raise CardRefusedError(
            f"the agent card sends requests to the host {shown(interface_url.hostname)}, not to "
            f"{target_url.hostname!r} of the target: correct the URL in the card, or make that host the target"
        )
    if target_url.scheme == "https" != interface_url.scheme:
        raise CardRefusedError(f"the agent card sends requests to {shown(url)} without encryption: it must be https")
    return url


@dataclasses.dataclass(frozen=True, slots=True)
class _Conversation:
    """What the turns of a row share.

    Args:
        context_id: The context of its messages.
        task_id: The task that awaits the user's next message; empty for none.
    """

    context_id: str
    task_id: str = ""


class A2aAgent:
    """One attempt is one SendMessage, then GetTask until its task ends; the latency excludes reading the card.

    A task that is input-required gets the decisions of the request's approvals, in further messages.

    Each attempt at a first turn has a context of its own, which the further turns of its conversation share. The
    context of a first attempt is derived from the row, so a run that resumes elsewhere uses the same one. The message
    of a turn has the same id in each attempt, by which an agent can recognise it.

    Args:
        settings: Checked settings; headers and URL may name variables and secrets.
        access: What may be called and named.
        poll_timeout_s: Maximum time of one GetTask before it is sent again, in seconds.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(self, settings: AgentSpec, access: AgentAccess, *, poll_timeout_s: float = _POLL_TIMEOUT_S) -> None:
        problems: list[Problem] = []
        options = A2aOptions.from_options(settings.options, problems)
        self._connection = HttpConnection(settings, access, problems, headers=options.headers)
        self._poll_timeout_s = poll_timeout_s
        self._interface: Interface | None = None
        self._reading = asyncio.Lock()
        self._conversations: dict[str, _Conversation] = {}
        """Conversations with a further turn, by session."""

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer to a question."""
        if request.turn_index == 0 and request.history:
            refusal = "the case has messages before its question, which an A2A agent cannot receive: make them turns"
            return error_response(AgentErrorKind.RAISED, refusal, type="history")
        is_last = request.turn_index == len(case.turns) - 1
        conversation = self._conversation_of(request)
        approvals = ScriptedApprovals(request.approvals)

        async def run() -> Any:
            return await self._send(request, conversation, {"parts": [{"text": request.input}]})

        async def resume(result: Any, decisions: Sequence[tuple[Interrupt, Decision]]) -> Any:
            same_task = dataclasses.replace(conversation, task_id=task_id_of(result))
            message = answering_message(result, decisions)
            return await self._send(request, same_task, message, len(approvals.interrupts))

        async def ask(_: AgentRequest) -> Any:
            try:
                return await run_to_end(run, resume, waiting_for, approvals)
            except (TooManyStopsError, UnusableDecisionError) as problem:
                raise FailedRequestError(Failures().of(problem)) from None

        async def read(result: Any, request: AgentRequest) -> AgentResponse:
            # A waiting call is not a question that the next turn answers.
            asks = all(stop.kind is InterruptKind.INPUT for stop in approvals.waiting)
            response = response_from_result(result, may_continue=asks and not is_last)
            # Not before there is a result: a retry of this turn goes to the same task.
            task_id = task_id_of(result) if approvals.is_waiting else ""
            self._conversations[request.session_id] = dataclasses.replace(conversation, task_id=task_id)
            if is_last or response.status is AgentStatus.INTERRUPTED:
                del self._conversations[request.session_id]
            return response

        response = await self._connection.attempt(request, ask, read, self._prepare)
        # A question that a further turn answers is no interrupt: it is the answer to this turn.
        stops = approvals.interrupts if response.status is AgentStatus.INTERRUPTED else approvals.decided
        return dataclasses.replace(response, interrupts=stops)

    async def problems(self) -> list[Problem]:
        """Return why the agent will not answer: it cannot be reached, or its card offers no supported interface."""
        try:
            async with asyncio.timeout(_PREFLIGHT_TIMEOUT_S):
                await self._known_interface()
        except CardRefusedError as refusal:
            problem_text = str(refusal)
        except (FailedRequestError, MalformedAnswerError, AnswerTooLargeError) as problem:
            problem_text = f"there is no agent card at {card_url(self._connection.url)}: {problem}"
        except (httpx2.HTTPError, TimeoutError) as problem:
            why = str(problem) or f"no answer within {_PREFLIGHT_TIMEOUT_S:g} s"
            problem_text = f"{self._connection.url} cannot be reached: start the agent, or correct the URL ({why})"
        else:
            return []
        return [Problem(self._connection.redact(problem_text), "agent.target")]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _prepare(self) -> None:
        try:
            await self._known_interface()
        except CardRefusedError as refusal:
            raise MalformedAnswerError(str(refusal)) from None

    async def _known_interface(self) -> Interface:
        async with self._reading:
            if self._interface is None:
                card = await self._connection.json("GET", card_url(self._connection.url), headers=_VERSION_HEADER)
                self._interface = interface_of(card, self._connection.url)
            return self._interface

    def _conversation_of(self, request: AgentRequest) -> _Conversation:
        is_fresh = request.turn_index == 0 and is_retry(request)
        name = request.request_id if is_fresh else f"{request.session_id}#0"
        first = _Conversation(str(uuid.uuid5(_NAMESPACE, name)))
        return first if request.turn_index == 0 else self._conversations.get(request.session_id, first)

    async def _send(
        self, request: AgentRequest, conversation: _Conversation, content: Mapping[str, Any], stop_count: int = 0
    ) -> Any:
        """Return the agent's reply to a message.

        Args:
            request: The question.
            conversation: The conversation of the message.
            content: Its parts, and its metadata if any.
            stop_count: How many answered stops the turn has had.
        """
        name = f"{request.idempotency_key}+{stop_count}" if stop_count else request.idempotency_key
        message = {
            "messageId": str(uuid.uuid5(_NAMESPACE, name)),
            "contextId": conversation.context_id,
            "role": "ROLE_USER",
            **content,
        }
        if conversation.task_id:
            message["taskId"] = conversation.task_id
        parameters = {"message": message, "configuration": {"acceptedOutputModes": _OUTPUT_MODES}}
        result = await self._call("SendMessage", parameters, request)
        task = result.get("task") if isinstance(result, dict) else None
        wait_s = _FIRST_POLL_S
        # By the protocol, the agent answers when the task has ended; an agent that answers earlier is polled.
        while isinstance(task, dict) and state_of(task) not in ENDED_STATES:
            await asyncio.sleep(wait_s)
            wait_s = min(_SLOWEST_POLL_S, wait_s * 1.5)
            task = await self._poll(task, request)
            result = {"task": task}
        return result

    async def _poll(self, task: dict[str, Any], request: AgentRequest) -> Any:
        """Return the current state of a task, or the known one if polling failed and must not fail again.

        The task continues at the agent: if the attempt failed, its retry would start and pay another.
        """
        try:
            async with asyncio.timeout(self._poll_timeout_s):
                return await self._call("GetTask", {"id": task.get("id")}, request)
        except FailedRequestError as failure:
            if failure.response.error is None or not failure.response.error.retryable:
                raise
        except (httpx2.HTTPError, TimeoutError):
            pass  # the next poll, or the attempt's time limit
        return task

    async def _call(self, method: str, parameters: dict[str, Any], request: AgentRequest) -> Any:
        interface = await self._known_interface()
        tenant = {"tenant": interface.tenant} if interface.tenant else {}
        call = {"jsonrpc": "2.0", "id": request.request_id, "method": method, "params": {**tenant, **parameters}}
        reply = await self._connection.json("POST", interface.url, call, headers=_VERSION_HEADER)
        if not isinstance(reply, dict) or (reply.get("error") is None and "result" not in reply):
            raise MalformedAnswerError(f"the reply must be an object of JSON-RPC with a result, not {kind_of(reply)}")
        if reply.get("error") is not None:
            raise FailedRequestError(failure_of(reply["error"]))
        if reply.get("id") != request.request_id:
            raise MalformedAnswerError(f"the reply is to another request, {str(reply.get('id'))[:100]!r}")
        return reply["result"]
