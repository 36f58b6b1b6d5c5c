"""The openai and anthropic adapters: send a prompt, filled from the case, to a provider's model."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.identity.quotas import NANO, nano_from_usd
from assay.local_stack.install_hint import install_hint
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    MalformedAnswerError,
    Message,
    clean_text,
    error_response,
)
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.providers.client import Service, connect, missing_package
from assay.providers.errors import MalformedReplyError, ProviderStatusError, ReplyTooLargeError, UnreachableError
from assay.providers.messages import Request
from assay.providers.own_services import KEY_VARIABLES, OWN_URLS
from assay.providers.parameters import LearnedParameters, Parameters, refuses, token_field_of
from assay.providers.prices import cost_of
from assay.specs.prompt_options import PromptOptions
from assay.specs.prompt_template import FilledTooLargeError, case_values, fill, missing_variables
from assay.specs.variables import NAMED
from assay_orchestrator.agents.destinations import agent_address
from assay_orchestrator.agents.http_hosts import check_host
from assay_orchestrator.agents.prompt_response import refused_status, response_from_reply
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.agents.secrets import SECRET_MISSING, Secrets
from assay_orchestrator.budgets.budget_store import BudgetExhaustedError
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.store.teams.allotments import NOTHING, Amount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.model_price import ModelPrice
    from assay.model.run import AgentSpec
    from assay.providers.client import ModelClient
    from assay.providers.messages import Reply
    from assay.specs.prompt_options import PromptOptions
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.budgets.run_budget import Reservation

_FRAME_TOKENS = 2_000
"""More than a protocol adds to a request."""


_ROLES = ("system", "user", "assistant")


class ConversationError(ValueError):
    """Case and templates do not form a conversation; `type` is the cause, "template" or "history"."""

    def __init__(self, message: str, type: str) -> None:  # noqa: A002 - the name that it has in an AgentError
        super().__init__(message)
        self.type = type


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages for a model.

    Args:
        system: The system text; empty without one.
        messages: With the roles system, user and assistant; the last is the user's.
    """

    system: str
    messages: tuple[Message, ...]


def build_conversation(options: PromptOptions, request: AgentRequest, case: Case) -> Conversation:
    """Return the system text, the earlier messages, and the filled prompt.

    Raises:
        ConversationError: A variable has no value, a filled template is too large, or the history has messages that
            cannot be sent.
    """
    values = case_values(case, request.input)
    missing = missing_variables(options.templates, values)
    if missing:
        raise ConversationError(f"the prompt does not fit the case: {'; '.join(missing)}", "template")
    for message in request.history:
        if message.role not in _ROLES:
            raise ConversationError(
                f"the history has a message with the role {message.role!r}; a prompt is sent with messages of "
                f"{', '.join(_ROLES)} only",
                "history",
            )
    try:
        question = request.input if options.prompt is None else fill(options.prompt, values)
        system = clean_text(fill(options.system, values)) if options.system else ""
    except FilledTooLargeError as problem:
        raise ConversationError(str(problem), "template") from None
    history = [Message(message.role, message.content) for message in request.history if message.content.strip()]
    return Conversation(
        system=system,
        messages=tuple(Message(turn.role, clean_text(turn.content)) for turn in (*history, Message("user", question))),
    )


@dataclass(frozen=True, slots=True)
class _PromptParameters(Parameters):
    """Parameters of a prompt; a service may refuse some of them.

    Args:
        stream_usage: Whether to request the usage of a streamed reply.
    """

    stream_usage: bool = True

    def without_refused(self, refusal: ProviderStatusError, request_text: str) -> _PromptParameters | None:
        """Return other parameters if a refusal says that one of these is unknown, else None."""
        # By name: a dataclass with slots is not the class that super() without arguments refers to.
        return Parameters.without_refused(self, refusal, request_text) or self._without_stream_usage(
            refusal, request_text
        )

    def _without_stream_usage(self, refusal: ProviderStatusError, request_text: str) -> _PromptParameters | None:
        if self.stream_usage and refuses(refusal, "stream_options", request_text):
            return dataclasses.replace(self, stream_usage=False)
        return None


class PromptAgent:
    """One attempt is one call of the model; only a first call that refuses a parameter is repeated without it.

    The provider's package is imported and connected with the first question, off the event loop and outside the
    measured time. Of the environment only what the spec names is used, and the provider's key.

    Args:
        settings: Checked settings.
        access: What may be called and named.
        budget: The run's share of its team's quotas.

    Raises:
        InvalidInputError: The provider's package is missing, its host is not allowed, or the key's variable or secret
            is missing or not allowed.
    """

    def __init__(self, settings: AgentSpec, access: AgentAccess, budget: RunBudget | None = None) -> None:
        problems: list[Problem] = []
        self._settings = settings
        self._budget = budget or RunBudget()
        self._options = PromptOptions.from_options(settings.adapter, settings.options, problems)
        self._secrets = Secrets(access, agent_address(settings), problems)
        self._url = self._options.base_url or OWN_URLS[settings.adapter]
        self._egress = access.egress
        self._problems = problems
        problems += check_host(settings, access)
        # The provider's own key is for the provider's own service; any other gets the key that the spec names.
        own_key = None if self._options.base_url else f"${{{KEY_VARIABLES[settings.adapter]}}}"
        self._key_name = self._options.api_key or own_key
        # A refusal of the key names these too: a service may expect its key in a header of its own.
        of_headers = (match[0] for value in self._options.headers.values() for match in NAMED.finditer(value))
        self._key_names = " or ".join(filter(None, (self._key_name, *of_headers)))
        self._price = self._options.price_of(settings.adapter, settings.target, problems)
        self._fill()
        problems += _missing_package(settings.adapter)
        if problems:
            raise InvalidInputError(problems)
        self._wanted = _PromptParameters(
            self._options.max_tokens, self._options.temperature, token_field_of(self._options.base_url)
        )
        self._learned = LearnedParameters()
        self._client: ModelClient | None = None
        self._connected_to: Service | None = None
        self._earlier: list[ModelClient] = []
        self._connecting = asyncio.Lock()

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the model's answer to a filled prompt.

        Raises:
            NotAskedError: The run's team has too little money or tokens left for the call, or the run is being paused.
        """
        return await self._answer(request, case, None)

    async def answer_after_waiting(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]]
    ) -> AgentResponse:
        """Return the answer as `answer`; a call that had to wait for its team's quota is sent after `before`.

        Raises:
            NotAskedError: As in `answer`.
        """
        return await self._answer(request, case, before)

    async def aclose(self) -> None:
        """Close the connections."""
        for client in (*self._earlier, *filter(None, (self._client,))):
            await client.aclose()

    async def _answer(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]] | None
    ) -> AgentResponse:
        try:
            conversation = build_conversation(self._options, request, case)
        except ConversationError as problem:
            return error_response(AgentErrorKind.RAISED, str(problem), type=problem.type)
        try:
            self._secrets.refill(self._fill)
        except InvalidInputError as problem:
            return error_response(AgentErrorKind.RAISED, problem.message, type=SECRET_MISSING)
        client = await self._connected()
        try:
            reservation = await self._budget.reserve(lambda: most_of(conversation, self._options, self._price))
        except BudgetExhaustedError:
            raise NotAskedError from None
        with reservation:
            if before is not None and reservation.has_waited:
                most, reservation.cost = reservation.cost, NOTHING  # nothing is sent if `before` raises
                await before()
                reservation.cost = most
            started = _Stopwatch()
            response = await self._answered(client, conversation, request.timeout_s, started, reservation)
        return dataclasses.replace(self._secrets.redact_answer(response), latency_ms=started.elapsed_ms())

    async def _answered(
        self,
        client: ModelClient,
        conversation: Conversation,
        timeout_s: float,
        started: _Stopwatch,
        reservation: Reservation,
    ) -> AgentResponse:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(client, conversation, started, reservation)
        except TimeoutError:
            return error_response(AgentErrorKind.TIMEOUT, f"no answer within {timeout_s:g} s", retryable=True)
        except (AnswerTooLargeError, ReplyTooLargeError) as problem:
            return error_response(AgentErrorKind.TOO_LARGE, str(problem))
        except (MalformedAnswerError, MalformedReplyError) as problem:
            return error_response(AgentErrorKind.MALFORMED, str(problem))
        except UnreachableError as problem:
            if not problem.sent:
                reservation.cost = NOTHING
            return error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self._url} cannot be reached: {problem}",
                type=problem.type,
                retryable=problem.may_pass,
            )

    def _fill(self) -> None:
        key = self._secrets.resolve(self._key_name, "agent.api_key") if self._key_name else ""
        if not _is_sendable(key) or " " in key:
            self._problems.append(Problem("is not a key: it must be printable ASCII without spaces", "agent.api_key"))
        self._service = Service(
            self._url,
            key,
            self._secrets.resolve_tree(self._options.headers, "agent.headers"),
            self._secrets.resolve_tree(self._options.query, "agent.query"),
            self._options.api,
            self._egress,
        )
        self._problems += _unsendable_headers(self._service.headers)

    async def _ask(
        self, client: ModelClient, conversation: Conversation, started: _Stopwatch, reservation: Reservation
    ) -> AgentResponse:
        sent = self._learned.apply(self._wanted)
        while True:
            started.restart()
            try:
                reply = await client.ask(
                    Request(
                        self._settings.target,
                        conversation.messages,
                        sent,
                        system=conversation.system,
                        extra=self._options.extra,
                        stream=self._options.stream,
                        stream_usage=sent.stream_usage,
                    )
                )
            except ProviderStatusError as refusal:
                texts = [conversation.system, *(message.content for message in conversation.messages)]
                adapted = sent.without_refused(refusal, "\n".join(texts))
                if adapted is None:
                    reservation.cost = NOTHING
                    return refused_status(refusal, self._settings.target, self._url, self._key_names)
                sent = adapted
                continue
            self._learned.learn(self._wanted, sent)
            reservation.cost = cost_of_reply(reply, self._price, reservation.cost)
            return response_from_reply(reply, sent.temperature, self._price)

    async def _connected(self) -> ModelClient:
        async with self._connecting:
            if self._client is None or self._connected_to is not self._service:
                service = self._service
                client = await asyncio.to_thread(connect, self._settings.adapter, service, self._settings.concurrency)
                if self._client is not None:
                    self._earlier.append(self._client)  # questions may be in flight on it
                self._client, self._connected_to = client, service
            return self._client


class _Stopwatch:
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._start = time.perf_counter()

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1000


def _is_sendable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _unsendable_headers(headers: Mapping[str, str]) -> list[Problem]:
    # Without the value: it may be a key.
    return [
        Problem("is not a header's value: it must be printable ASCII", f"agent.headers.{name}")
        for name, value in headers.items()
        if not _is_sendable(value)
    ]


def _missing_package(adapter: str) -> list[Problem]:
    missing = missing_package(adapter, "where the orchestrator runs")
    if not missing:
        return []
    return [Problem(f"the {adapter} adapter needs {missing}: {install_hint('providers')}", "agent.adapter")]


def most_of(conversation: Conversation, options: PromptOptions, price: ModelPrice | None) -> Amount:
    """Return the most that a call can use: no token is shorter than a byte, and all may be written to the cache.

    Args:
        conversation: The messages to send.
        options: The options of the call.
        price: The price of the model; None if unknown, so that only tokens are counted.
    """
    sent = [
        conversation.system,
        [[message.role, message.content] for message in conversation.messages],
        dict(options.extra),
    ]
    read = len(json.dumps(sent, ensure_ascii=False).encode()) + _FRAME_TOKENS
    written = options.max_tokens
    if price is None:
        return Amount(tokens=read + written)
    cached = read if price.cache_write > 1 else 0
    return Amount(math.ceil(price.dollars(read, written, cache_write=cached) * NANO), read + written)


def cost_of_reply(reply: Reply, price: ModelPrice | None, most: Amount) -> Amount:
    """Return the usage of a call; if the service does not report it, the reserved amount."""
    tokens = reply.tokens
    if tokens is None:
        return most
    total = tokens.total
    if not total:
        if tokens.input is None or tokens.output is None or not (tokens.input or tokens.output):
            return most
        total = tokens.input + tokens.output
    if price is None:
        return Amount(tokens=total)
    dollars = cost_of(price, tokens)
    return Amount(most.nano_usd if dollars is None else nano_from_usd(dollars), total)
