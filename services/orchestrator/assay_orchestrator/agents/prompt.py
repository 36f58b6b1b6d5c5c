"""The openai and anthropic adapters: a prompt filled from the case, sent to a provider's model."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import time
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.local.install_hint import install_hint
from assay.model.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, error_response
from assay.model.response_limits import AnswerTooLargeError
from assay.spec.prompt_options import PROVIDERS, PromptOptions
from assay_orchestrator.agents.http_hosts import check_prompt_host
from assay_orchestrator.agents.prompt_template import ConversationError, build_conversation
from assay_orchestrator.agents.provider import Parameters, ProviderStatusError, UnreachableError
from assay_orchestrator.agents.provider_failures import refused_status
from assay_orchestrator.agents.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.run import AgentSettings
    from assay_orchestrator.agents.prompt_template import Conversation
    from assay_orchestrator.agents.provider import Service

_NO_KEY = "no-key"
_OLDEST_MAJOR = {"openai": 3, "anthropic": 2}  # earlier ones use another HTTP client


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
        provider = PROVIDERS[settings.adapter]
        problems: list[Problem] = []
        self._settings = settings
        self._options = PromptOptions.from_options(settings.adapter, settings.options, problems)
        self._secrets = Secrets(allowed_env, environ, problems)
        self._url = self._options.base_url or provider.base_url
        problems += check_prompt_host(settings, allowed_hosts)
        # The provider's own key is for the provider's own service: another one gets the key that the spec names for it.
        own_key = None if self._options.base_url else f"${{{provider.key_variable}}}"
        self._key_name = self._options.api_key or own_key
        self._key = self._secrets.resolve(self._key_name, "agent.api_key") if self._key_name else _NO_KEY
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            problems.append(Problem("is not a key: it must be printable ASCII without spaces", "agent.api_key"))
        problems += _missing_package(settings.adapter)
        if problems:
            raise InvalidInputError(problems)
        self._parameters = Parameters(
            self._options.temperature, "max_tokens" if self._options.base_url else "max_completion_tokens"
        )
        self._service: Service | None = None
        self._connecting = asyncio.Lock()

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the model's answer to a filled prompt."""
        try:
            conversation = build_conversation(self._options, request, case)
        except ConversationError as problem:
            return error_response(AgentErrorKind.RAISED, str(problem), type=problem.type)
        service = await self._connected()
        started = _Stopwatch()
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._ask(service, conversation, started)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        except MalformedAnswerError as problem:
            response = error_response(AgentErrorKind.MALFORMED, str(problem))
        except AnswerTooLargeError as problem:
            response = error_response(AgentErrorKind.TOO_LARGE, str(problem))
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
        if self._service is not None:
            await self._service.aclose()

    async def _ask(self, service: Service, conversation: Conversation, started: _Stopwatch) -> AgentResponse:
        while True:
            sent = self._parameters
            started.restart()
            try:
                response = await service.ask(conversation, sent)
            except ProviderStatusError as refusal:
                adapted = sent.without_refused(refusal)
                if adapted is None:
                    return refused_status(refusal, self._settings.target, self._url, self._key_name)
                # Later questions profit; one that was sent beside this one is refused and adapts by itself.
                self._parameters = adapted
                continue
            metadata: dict[str, Any] = {**response.metadata, "temperature": sent.temperature}
            return dataclasses.replace(response, metadata=metadata)

    async def _connected(self) -> Service:
        async with self._connecting:
            if self._service is None:
                self._service = await asyncio.to_thread(self._connect)
            return self._service

    def _connect(self) -> Service:
        module = importlib.import_module(f"assay_orchestrator.agents.{self._settings.adapter}_prompt")
        service: Service = module.connect(
            self._settings.target, self._options, self._url, self._key, self._settings.concurrency
        )
        return service


class _Stopwatch:
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._start = time.perf_counter()

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1000


def _missing_package(adapter: str) -> list[Problem]:
    oldest = _OLDEST_MAJOR[adapter]
    found = _version(adapter)
    if found and int(found.partition(".")[0]) >= oldest:
        return []
    return [
        Problem(
            f"the {adapter} adapter needs the package {adapter} from {oldest}.0 on where the orchestrator runs"
            f"{f', not {found}' if found else ''}: {install_hint('providers')}",
            "agent.adapter",
        )
    ]


def _version(adapter: str) -> str:
    """Return the version of a provider's package; empty where it, or what it is built on, cannot be imported."""
    if any(importlib.util.find_spec(package) is None for package in (adapter, "httpx2")):
        return ""
    try:
        return importlib.metadata.version(adapter)
    except importlib.metadata.PackageNotFoundError:
        return ""
