"""The openai and anthropic adapters: a prompt filled from the case, sent to a provider's model."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.local.install_hint import install_hint
from assay.model.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, error_response
from assay.model.response_limits import AnswerTooLargeError
from assay.providers.client import connect, missing_package
from assay.providers.errors import MalformedReplyError, ProviderStatusError, ReplyTooLargeError, UnreachableError
from assay.providers.messages import Request
from assay.providers.own_services import KEY_VARIABLES, OWN_URLS
from assay.providers.parameters import LearnedParameters, Parameters, token_field_of
from assay.spec.prompt_options import PromptOptions
from assay_orchestrator.agents.http_hosts import check_prompt_host
from assay_orchestrator.agents.prompt_response import refused_status, response_from_reply
from assay_orchestrator.agents.prompt_template import ConversationError, build_conversation
from assay_orchestrator.agents.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.run import AgentSettings
    from assay.providers.client import ModelClient
    from assay_orchestrator.agents.prompt_template import Conversation

_NO_KEY = "no-key"


class PromptAgent:
    """One attempt is one call of the model, but for a first one that refuses a parameter, which is left out then.

    The provider's package is imported and connected to with the first question, off the event loop and outside
    the measured time. Of the environment nothing is used but the variable that holds the key.

    Args:
        settings: Checked settings.
        allowed_hosts: Patterns of hosts that may be called.
        allowed_env: Patterns of environment variables that may be named.
        environ: Where the variables are.

    Raises:
        InvalidInputError: The provider's package is missing, its host is not allowed, or the key's variable is
            missing or not allowed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        allowed_hosts: Sequence[str],
        allowed_env: Sequence[str],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        problems: list[Problem] = []
        self._settings = settings
        self._options = PromptOptions.from_options(settings.adapter, settings.options, problems)
        self._secrets = Secrets(allowed_env, environ, problems)
        self._url = self._options.base_url or OWN_URLS[settings.adapter]
        problems += check_prompt_host(settings, allowed_hosts)
        # The provider's own key is for the provider's own service: another one gets the key that the spec names for it.
        own_key = None if self._options.base_url else f"${{{KEY_VARIABLES[settings.adapter]}}}"
        self._key_name = self._options.api_key or own_key
        self._key = self._secrets.resolve(self._key_name, "agent.api_key") if self._key_name else _NO_KEY
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            problems.append(Problem("is not a key: it must be printable ASCII without spaces", "agent.api_key"))
        problems += _missing_package(settings.adapter)
        if problems:
            raise InvalidInputError(problems)
        self._wanted = Parameters(
            self._options.max_tokens, self._options.temperature, token_field_of(self._options.base_url)
        )
        self._learned = LearnedParameters()
        self._client: ModelClient | None = None
        self._connecting = asyncio.Lock()

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the model's answer to a filled prompt."""
        try:
            conversation = build_conversation(self._options, request, case)
        except ConversationError as problem:
            return error_response(AgentErrorKind.RAISED, str(problem), type=problem.type)
        client = await self._connected()
        started = _Stopwatch()
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._ask(client, conversation, started)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        except (AnswerTooLargeError, ReplyTooLargeError) as problem:
            response = error_response(AgentErrorKind.TOO_LARGE, str(problem))
        except (MalformedAnswerError, MalformedReplyError) as problem:
            response = error_response(AgentErrorKind.MALFORMED, str(problem))
        except UnreachableError as problem:
            response = error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self._url} cannot be reached: {problem}",
                type=problem.type,
                retryable=True,
            )
        return dataclasses.replace(self._secrets.redact_answer(response), latency_ms=started.elapsed_ms())

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, client: ModelClient, conversation: Conversation, started: _Stopwatch) -> AgentResponse:
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
                    )
                )
            except ProviderStatusError as refusal:
                adapted = sent.without_refused(refusal)
                if adapted is None:
                    return refused_status(refusal, self._settings.target, self._url, self._key_name)
                self._learned.learn(sent, adapted)
                sent = adapted
                continue
            return response_from_reply(reply, sent.temperature)

    async def _connected(self) -> ModelClient:
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(
                    connect, self._settings.adapter, self._url, self._key, self._settings.concurrency
                )
            return self._client


class _Stopwatch:
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._start = time.perf_counter()

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1000


def _missing_package(adapter: str) -> list[Problem]:
    missing = missing_package(adapter, "where the orchestrator runs")
    if not missing:
        return []
    return [Problem(f"the {adapter} adapter needs {missing}: {install_hint('providers')}", "agent.adapter")]
